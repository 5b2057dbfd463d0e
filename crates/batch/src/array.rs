//! Numbers of one type with a shape.

use std::fmt;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::dtype::{DType, Element};
use crate::shape::Shape;

/// Numbers of one type with a shape. Clones share the memory, which can then be read only.
#[derive(Clone)]
pub struct Array {
    dtype: DType,
    shape: Shape,
    buffer: Arc<Buffer>,
}

impl Array {
    /// An array over `buffer`. Panics unless the length of the buffer matches type and shape.
    pub fn new(dtype: DType, shape: Shape, buffer: Buffer) -> Array {
        assert_eq!(
            shape.elements() * dtype.bytes(),
            buffer.len(),
            "bytes of an array of {dtype} and {shape:?}"
        );
        Array {
            dtype,
            shape,
            buffer: Arc::new(buffer),
        }
    }

    /// One number a sample.
    pub fn from_slice<T: Element>(numbers: &[T]) -> Array {
        let shape = Shape::stacked(numbers.len(), &[]);
        Array::new(T::DTYPE, shape, Buffer::from_slice(numbers))
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dimensions, and the layout of the samples.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The elements as bytes; they begin at a multiple of 64.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// The elements; `None` if they are of another type.
    pub fn values<T: Element>(&self) -> Option<&[T]> {
        // Empty memory may be anywhere.
        (self.dtype == T::DTYPE).then(|| {
            if self.buffer.is_empty() {
                &[][..]
            } else {
                bytemuck::cast_slice(&self.buffer)
            }
        })
    }

    /// The elements, to be changed in place; `None` if they are of another type, or while the memory is
    /// shared: a batch that is repeated must not change.
    pub fn values_mut<T: Element>(&mut self) -> Option<&mut [T]> {
        let of_type = self.dtype == T::DTYPE;
        let buffer = Arc::get_mut(&mut self.buffer).filter(|_| of_type)?;
        Some(if buffer.is_empty() {
            &mut [][..]
        } else {
            bytemuck::cast_slice_mut(buffer.bytes_mut())
        })
    }

    /// The memory, for a tensor of another library that borrows it: it is not changed until the last owner is gone.
    pub fn owner(&self) -> Arc<Buffer> {
        Arc::clone(&self.buffer)
    }

    /// The bytes of sample `i`. Panics unless there is one.
    pub fn sample(&self, i: usize) -> &[u8] {
        let range = self.shape.ranges().swap_remove(i);
        let size = self.dtype.bytes();
        &self.bytes()[range.start * size..range.end * size]
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape.dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_the_type_they_say() {
        let mut array = Array::from_slice(&[1i64, 2, 3]);
        assert_eq!(array.values::<i64>(), Some(&[1, 2, 3][..]));
        assert_eq!(array.values::<u8>(), None);
        assert_eq!(array.sample(1), 2i64.to_ne_bytes());
        array.values_mut::<i64>().unwrap()[0] = 7;
        assert!(array.values_mut::<f32>().is_none());
        let shared = array.clone();
        assert!(array.values_mut::<i64>().is_none(), "it is shared");
        drop(shared);
        assert_eq!(array.values_mut::<i64>(), Some(&mut [7, 2, 3][..]));
        assert_eq!(format!("{array:?}"), "int64[3]");
    }

    /// A rank without an example in a step used to get invalid memory, and crashed on reading it.
    #[test]
    fn no_elements_may_lie_anywhere() {
        let nowhere = Buffer::new(bytes::BytesMut::new(), None);
        let mut array = Array::new(DType::U32, Shape::stacked(0, &[3]), nowhere);
        assert_eq!(array.values::<u32>(), Some(&[][..]));
        assert_eq!(array.values_mut::<u32>(), Some(&mut [][..]));
    }

    #[test]
    #[should_panic(expected = "bytes of an array")]
    fn a_buffer_of_another_size_is_a_mistake() {
        Array::new(
            DType::F32,
            Shape::stacked(2, &[2]),
            Buffer::from_slice(&[0u8; 15]),
        );
    }
}
