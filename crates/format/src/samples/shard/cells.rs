//! The cells of samples in shards: decodes their bytes by the name of their encoding.

use pelton_batch::DType;

use crate::record::rows::fields::MOST_DIMENSIONS;

/// Type of the numbers of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Is(DType),
    /// An unsigned 64-bit number, which becomes an i64.
    U64,
}

impl Element {
    /// By NumPy's name.
    pub(crate) fn from_name(name: &str) -> Option<Element> {
        Some(match name {
            "uint8" | "bool" => Element::Is(DType::U8),
            "int8" => Element::Is(DType::I8),
            "int16" => Element::Is(DType::I16),
            "uint16" => Element::Is(DType::U16),
            "int32" => Element::Is(DType::I32),
            "uint32" => Element::Is(DType::U32),
            "int64" => Element::Is(DType::I64),
            "uint64" => Element::U64,
            "float16" => Element::Is(DType::F16),
            "bfloat16" => Element::Is(DType::BF16),
            "float32" => Element::Is(DType::F32),
            "float64" => Element::Is(DType::F64),
            _ => return None,
        })
    }

    pub(crate) fn dtype(self) -> DType {
        match self {
            Element::Is(dtype) => dtype,
            Element::U64 => DType::I64,
        }
    }

    /// Bytes of a number.
    pub(crate) fn bytes(self) -> usize {
        self.dtype().bytes()
    }

    /// Numbers as rows hold them; `None` if one is too large.
    pub(crate) fn checked(self, stored: &[u8]) -> Option<&[u8]> {
        let (numbers, _) = stored.as_chunks();
        let fits = |number: &[u8; 8]| i64::from_le_bytes(*number) >= 0;
        (self != Element::U64 || numbers.iter().all(fits)).then_some(stored)
    }
}

/// The source of the type and the shape of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// With the column.
    Known(Vec<usize>),
    /// Nowhere: it has one dimension.
    Flat,
    /// In MDS's encoding, before the numbers: the type as a byte unless it is known, then four times the number of
    /// dimensions plus the logarithm of the bytes of a length, then the lengths.
    Mds,
    /// In LitData's encoding: type, number of dimensions and lengths as u32, little-endian for NumPy and big-endian
    /// for Torch.
    Numpy,
    Torch,
}

/// The kind of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// Left out: rows cannot hold it.
    Out,
    /// A string of bytes.
    Text,
    /// A list or dictionary of LitData, which becomes JSON text.
    Nested,
    Number(Element),
    Array(Option<Element>, Shape),
    /// Pixels as Pillow's `tobytes` gives them, after width, height, length of the mode, and the mode.
    Pixels,
}

/// An array in a cell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) element: Element,
    pub(crate) dims: Vec<usize>,
    pub(crate) numbers: &'a [u8],
}

impl Cell {
    /// The array in the bytes of a cell; `None` if they are not an array.
    pub(crate) fn array<'a>(&self, bytes: &'a [u8]) -> Option<Found<'a>> {
        let mut rest = bytes;
        let (element, dims) = match self {
            Cell::Number(element) => (*element, Vec::new()),
            Cell::Array(Some(element), Shape::Known(dims)) => (*element, dims.clone()),
            Cell::Array(Some(element), Shape::Flat) => {
                (*element, vec![bytes.len() / element.bytes()])
            }
            Cell::Array(element, Shape::Known(dims)) => {
                let stated = || mds_element(rest.split_off_first()?);
                let element = element.map_or_else(stated, Some)?;
                (element, dims.clone())
            }
            Cell::Array(element, Shape::Mds) => {
                let stated = || mds_element(rest.split_off_first()?);
                let element = element.map_or_else(stated, Some)?;
                (element, mds_dims(&mut rest)?)
            }
            Cell::Array(_, shape @ (Shape::Numpy | Shape::Torch)) => {
                let mut word = || {
                    let word = *rest.split_off(..4)?.first_chunk()?;
                    Some(match shape {
                        Shape::Torch => u32::from_be_bytes(word),
                        _ => u32::from_le_bytes(word),
                    } as usize)
                };
                let code = word()?;
                let rank = word().filter(|rank| *rank <= MOST_DIMENSIONS)?;
                let dims = (0..rank).map(|_| word()).collect::<Option<_>>()?;
                let element = match shape {
                    Shape::Torch => torch_element(code)?,
                    _ => numpy_element(code)?,
                };
                (element, dims)
            }
            Cell::Pixels => {
                let mut word = || Some(u32::from_le_bytes(*rest.split_off(..4)?.first_chunk()?));
                let (width, height, mode) = (word()?, word()?, word()?);
                let channels = match rest.split_off(..mode as usize)? {
                    b"L" => 1,
                    b"RGB" => 3,
                    b"RGBA" | b"CMYK" => 4,
                    _ => return None,
                };
                let dims = vec![height as usize, width as usize, channels];
                (Element::Is(DType::U8), dims)
            }
            _ => return None,
        };
        let fits = dims.iter().all(|length| u32::try_from(*length).is_ok());
        let size = dims
            .iter()
            .try_fold(element.bytes(), |all, length| all.checked_mul(*length));
        (fits && size == Some(rest.len())).then_some(Found {
            element,
            dims,
            numbers: rest,
        })
    }
}

fn mds_element(code: &u8) -> Option<Element> {
    Element::from_name(match code {
        8 => "uint8",
        9 => "int8",
        16 => "uint16",
        17 => "int16",
        18 => "float16",
        32 => "uint32",
        33 => "int32",
        34 => "float32",
        64 => "uint64",
        65 => "int64",
        66 => "float64",
        _ => return None,
    })
}

fn mds_dims(rest: &mut &[u8]) -> Option<Vec<usize>> {
    let head = rest.split_off_first()?;
    let (rank, bytes) = (usize::from(head >> 2), 1 << (head & 3));
    if rank > MOST_DIMENSIONS {
        return None;
    }
    let length = |stored: &[u8]| {
        let mut all = [0; 8];
        all[..bytes].copy_from_slice(stored);
        usize::try_from(u64::from_le_bytes(all)).ok()
    };
    let lengths = rest.split_off(..rank * bytes)?;
    lengths.chunks_exact(bytes).map(length).collect()
}

/// By its index in LitData's list of NumPy's types.
pub(crate) fn numpy_element(code: usize) -> Option<Element> {
    const NAMES: [&str; 14] = [
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
        "float32", "float64", "", "", "bool",
    ];
    Element::from_name(NAMES.get(code)?)
}

/// By its index in LitData's list of Torch's types.
pub(crate) fn torch_element(code: usize) -> Option<Element> {
    Element::from_name(match code {
        0 | 1 => "float32",
        2 | 3 => "float64",
        8 | 9 => "float16",
        10 => "bfloat16",
        11 => "uint8",
        12 => "int8",
        13 | 14 => "int16",
        15 | 16 => "int32",
        17 | 18 => "int64",
        19 => "bool",
        20 => "uint16",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_64_bits_without_a_sign_are_such_with_one() {
        let element = Element::from_name("uint64").unwrap();
        assert_eq!(element.dtype(), DType::I64);
        let [small, large] = [7, u64::MAX].map(u64::to_le_bytes);
        assert_eq!(element.checked(&small), Some(&small[..]));
        assert_eq!(element.checked(&[small, large].concat()), None);
        let others = Element::from_name("float64").unwrap();
        assert_eq!(others.checked(&large), Some(&large[..]));
    }

    #[test]
    fn arrays() {
        let check = |cell: &Cell, bytes: &[u8], expected: Option<(&str, &[usize], &[u8])>| {
            let found = cell.array(bytes);
            let expected = expected.map(|(name, dims, numbers)| Found {
                element: Element::from_name(name).unwrap(),
                dims: dims.to_vec(),
                numbers,
            });
            assert_eq!(found, expected, "{cell:?} {bytes:?}");
        };
        let u8s = Some(Element::Is(DType::U8));
        let known = Cell::Array(u8s, Shape::Known(vec![2, 2]));
        check(&known, b"abcd", Some(("uint8", &[2, 2], b"abcd")));
        check(&known, b"abc", None);
        let flat = Cell::Array(Element::from_name("int16"), Shape::Flat);
        check(&flat, b"abcd", Some(("int16", &[2], b"abcd")));
        check(&flat, b"abc", None);
        let mds = Cell::Array(None, Shape::Mds);
        check(&mds, &[17, 4, 1, 5, 6], Some(("int16", &[1], &[5, 6])));
        check(
            &mds,
            &[8, 9, 1, 0, 2, 0, 5, 6],
            Some(("uint8", &[1, 2], &[5, 6])),
        );
        check(&mds, &[8, 7, 255, 255, 255, 255, 255, 255, 255, 255], None);
        check(&mds, &[8, 4], None);
        check(&mds, &[99, 4, 1, 5], None);
        check(&mds, &[8, 68], None);
        check(&mds, &[], None);
        let some = Cell::Array(u8s, Shape::Mds);
        check(&some, &[4, 2, 5, 6], Some(("uint8", &[2], &[5, 6])));
        let numpy = Cell::Array(None, Shape::Numpy);
        check(
            &numpy,
            &[4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5, 6],
            Some(("uint8", &[2], &[5, 6])),
        );
        check(&numpy, &[4, 0, 0, 0, 17, 0, 0, 0], None);
        let torch = Cell::Array(None, Shape::Torch);
        check(
            &torch,
            &[0, 0, 0, 11, 0, 0, 0, 0, 7],
            Some(("uint8", &[], &[7])),
        );
        let pil = [&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0][..], b"RGBabcdef"].concat();
        check(&Cell::Pixels, &pil, Some(("uint8", &[2, 1, 3], b"abcdef")));
        check(&Cell::Pixels, &pil[..17], None);
        let grey = [&[1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0][..], b"Lab"].concat();
        check(&Cell::Pixels, &grey, Some(("uint8", &[2, 1, 1], b"ab")));
        check(&Cell::Text, b"", None);
    }
}
