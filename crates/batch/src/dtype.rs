//! Types of array elements.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// The type of an array's elements, in the byte order of the machine. Files that keep it spell it as NumPy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DType {
    /// Unsigned bytes.
    #[serde(rename = "uint8")]
    U8,
    /// Signed bytes.
    #[serde(rename = "int8")]
    I8,
    /// Signed, 2 bytes.
    #[serde(rename = "int16")]
    I16,
    /// Unsigned, 2 bytes.
    #[serde(rename = "uint16")]
    U16,
    /// Signed, 4 bytes.
    #[serde(rename = "int32")]
    I32,
    /// Signed, 8 bytes.
    #[serde(rename = "int64")]
    I64,
    /// Unsigned, 4 bytes.
    #[serde(rename = "uint32")]
    U32,
    /// Half precision (IEEE 754).
    #[serde(rename = "float16")]
    F16,
    /// Half precision with the exponent of single precision.
    #[serde(rename = "bfloat16")]
    BF16,
    /// Single precision.
    #[serde(rename = "float32")]
    F32,
    /// Double precision.
    #[serde(rename = "float64")]
    F64,
}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::U8 | DType::I8 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::F64 => 8,
        }
    }
}

/// The name as NumPy spells it.
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::U8 => "uint8",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::U16 => "uint16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::U32 => "uint32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F32 => "float32",
            DType::F64 => "float64",
        })
    }
}

/// A number that arrays hold.
pub trait Element: bytemuck::Pod {
    /// Its type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($number:ty => $dtype:ident),*) => {
        $(impl Element for $number {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements!(u8 => U8, i8 => I8, i16 => I16, u16 => U16, i32 => I32, i64 => I64, u32 => U32, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Element>(name: &str) {
        assert_eq!(T::DTYPE.bytes(), size_of::<T>());
        assert_eq!(T::DTYPE.to_string(), name);
    }

    #[test]
    fn types_have_the_size_and_the_name_of_their_numbers() {
        check::<u8>("uint8");
        check::<i32>("int32");
        check::<i64>("int64");
        check::<u32>("uint32");
        check::<f16>("float16");
        check::<bf16>("bfloat16");
        check::<f32>("float32");
        check::<f64>("float64");
    }
}
