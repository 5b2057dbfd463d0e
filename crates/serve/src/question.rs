//! Parsing requests, and refusals.
//!
//! Vectors are read into one list, with no more numbers than the net takes: a body of brackets needs no more memory
//! than its length.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Most vectors in a request.
pub(crate) const MOST_ROWS: usize = 1024;
/// Most classes in an answer for each vector.
pub(crate) const MOST_CLASSES: usize = 1000;
/// Most classes in an answer for all vectors: about 2 MB of text.
const MOST_NAMED: usize = 32_768;

/// A refusal: an HTTP status and a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) sentence: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, sentence: impl Into<String>) -> Refusal {
        let sentence = sentence.into();
        Refusal { status, sentence }
    }
}

/// The kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    /// An encoded picture; its first bytes decide the format.
    Image,
}

impl Kind {
    /// From a content type; JSON if absent.
    pub(crate) fn from_content_type(content_type: Option<&str>) -> Result<Kind, Refusal> {
        let text = content_type.unwrap_or("application/json");
        let essence = text.split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            "application/json" => Ok(Kind::Json),
            image if image.starts_with("image/") => Ok(Kind::Image),
            _ => Err(Refusal::new(
                415,
                format!(
                    "the content type {essence:?} is not understood; send application/json, or image/png or that of another picture"
                ),
            )),
        }
    }
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked<B> {
    pub(crate) kind: Kind,
    /// Whether it requests features instead of classes.
    pub(crate) features: bool,
    /// Number of classes requested in the address.
    pub(crate) k: Option<usize>,
    pub(crate) body: B,
}

/// A parsed request.
#[derive(Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) rows: Rows,
    /// Number of classes wanted for each row; `None` for features.
    pub(crate) k: Option<usize>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Rows {
    Vectors(Vectors),
    /// An encoded picture.
    Image(Vec<u8>),
}

/// Vectors of a request.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Vectors {
    pub(crate) count: usize,
    /// The numbers vector by vector; incomplete if there are too many vectors or one has a wrong length.
    pub(crate) values: Vec<f32>,
    /// The first vector of a wrong length, and its length.
    pub(crate) wrong: Option<(usize, usize)>,
}

#[derive(Default)]
struct Json {
    features: Option<Vectors>,
    image: Option<String>,
    k: Option<usize>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Features,
    Image,
    K,
}

/// Reads a body with vectors of `width` numbers.
struct Body {
    width: usize,
}

impl<'de> Visitor<'de> for Body {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut json = Json::default();
        while let Some(key) = map.next_key()? {
            let (name, again) = match key {
                Key::Features => {
                    let width = self.width;
                    let vectors = map.next_value_seed(VectorsOf { width })?;
                    ("features", json.features.replace(vectors).is_some())
                }
                Key::Image => {
                    let before = std::mem::replace(&mut json.image, map.next_value()?);
                    ("image", before.is_some())
                }
                Key::K => {
                    let before = std::mem::replace(&mut json.k, map.next_value()?);
                    ("k", before.is_some())
                }
            };
            if again {
                return Err(A::Error::duplicate_field(name));
            }
        }
        Ok(json)
    }
}

/// Reads a list of vectors.
struct VectorsOf {
    width: usize,
}

impl<'de> DeserializeSeed<'de> for VectorsOf {
    type Value = Vectors;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Vectors, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for VectorsOf {
    type Value = Vectors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of vectors")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vectors, A::Error> {
        let mut vectors = Vectors::default();
        let width = self.width;
        while let Some(length) = list.next_element_seed(VectorOf {
            width,
            vectors: &mut vectors,
        })? {
            if length != width && vectors.wrong.is_none() {
                vectors.wrong = Some((vectors.count, length));
            }
            vectors.count += 1;
        }
        Ok(vectors)
    }
}

/// Appends one vector, and returns its length.
struct VectorOf<'a> {
    width: usize,
    vectors: &'a mut Vectors,
}

impl<'de> DeserializeSeed<'de> for VectorOf<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for VectorOf<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
        let takes = self.vectors.count < MOST_ROWS && self.vectors.wrong.is_none();
        let mut length = 0;
        while let Some(number) = list.next_element()? {
            if takes && length < self.width {
                self.vectors.values.push(number);
            }
            length += 1;
        }
        Ok(length)
    }
}

impl<B: AsRef<[u8]>> Asked<B> {
    /// Reads a body with vectors of `width` numbers.
    pub(crate) fn read(&self, width: usize, default_k: usize) -> Result<Question, Refusal> {
        let bad = |sentence: String| Refusal::new(400, sentence);
        let (rows, k) = match self.kind {
            Kind::Image => (Rows::Image(self.body.as_ref().to_vec()), None),
            Kind::Json => {
                let mut text = serde_json::Deserializer::from_slice(self.body.as_ref());
                let read = text.deserialize_map(Body { width });
                let json = read.and_then(|json| text.end().map(|()| json));
                let json = json.map_err(|error| {
                    bad(format!(
                        "the body is not {{\"features\": [[number, …], …], \"k\": count}} or {{\"image\": \"base64\", \"k\": count}}: {error}"
                    ))
                })?;
                let rows = match (json.features, json.image) {
                    (Some(rows), None) => Rows::Vectors(rows),
                    (None, Some(text)) => Rows::Image(from_base64(&text).ok_or_else(|| {
                        bad("`image` is not base64; send the bytes of a PNG, JPEG or WebP file in base64".into())
                    })?),
                    _ => {
                        return Err(bad(
                            "the body must contain either `features` or `image`".to_string()
                        ));
                    }
                };
                (rows, json.k)
            }
        };
        let k = match (self.k.or(k), self.features) {
            (Some(_), true) => {
                return Err(bad(
                    "`k` counts classes, and features have none; leave it out".to_string(),
                ));
            }
            (None, true) => None,
            (k, false) => Some(k.unwrap_or(default_k)),
        };
        if let Some(k) = k.filter(|k| !(1..=MOST_CLASSES).contains(k)) {
            return Err(bad(format!("`k` is {k}; give 1 to {MOST_CLASSES}")));
        }
        let named = k.unwrap_or(0);
        // JSON has no NaN, and the parser refuses numbers beyond f32.
        match &rows {
            Rows::Vectors(rows) if !(1..=MOST_ROWS).contains(&rows.count) => Err(bad(format!(
                "`features` contains {} vectors; send 1 to {MOST_ROWS} at once",
                rows.count
            ))),
            Rows::Vectors(rows) if rows.count * named > MOST_NAMED => Err(bad(format!(
                "`features` contains {} vectors, and with `k` {named} the answer would have {} classes, more than {MOST_NAMED}; send at most {} vectors at once, or a smaller `k`",
                rows.count,
                rows.count * named,
                MOST_NAMED / named
            ))),
            _ => Ok(Question { rows, k }),
        }
    }
}

/// Bytes of base64 (RFC 4648, section 4), possibly without padding or after a data URL's prefix.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = if text.starts_with("data:") {
        text.split_once(";base64,")?.1
    } else {
        text
    };
    let text = text.trim_end_matches('=');
    if text.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for &letter in group {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(body: &str) -> Asked<&str> {
        let (kind, k) = (Kind::Json, None);
        let features = false;
        Asked {
            kind,
            features,
            k,
            body,
        }
    }

    #[test]
    fn a_body_of_json_is_read() {
        let question = asked("{\"features\": [[1, 2.5], [-3, 0]], \"k\": 7}")
            .read(2, 5)
            .unwrap();
        let vectors = Vectors {
            count: 2,
            values: vec![1.0, 2.5, -3.0, 0.0],
            wrong: None,
        };
        assert_eq!(question.rows, Rows::Vectors(vectors));
        assert_eq!(question.k, Some(7));
        let question = asked("{\"image\": \"AAEC\"}").read(1, 5).unwrap();
        assert_eq!(
            (question.rows, question.k),
            (Rows::Image(vec![0, 1, 2]), Some(5))
        );
        let picture = Asked {
            kind: Kind::Image,
            features: false,
            k: Some(3),
            body: [9, 8],
        };
        let question = picture.read(1, 5).unwrap();
        assert_eq!(
            (question.rows, question.k),
            (Rows::Image(vec![9, 8]), Some(3))
        );
    }

    #[test]
    fn features_are_of_no_class() {
        let asked = |body| Asked {
            features: true,
            ..asked(body)
        };
        assert_eq!(asked("{\"features\": [[1]]}").read(1, 5).unwrap().k, None);
        let refusal = asked("{\"features\": [[1]], \"k\": 2}").read(1, 5);
        assert!(refusal.unwrap_err().sentence.contains("leave it out"));
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_a_sentence() {
        for (body, part) in [
            ("", "the body is not {\"features\""),
            ("[1]", "the body is not"),
            ("{}", "either `features` or `image`"),
            ("{\"features\": [[1]], \"image\": \"AA\"}", "either"),
            ("{\"features\": []}", "0 vectors"),
            ("{\"features\": [1]}", "the body is not"),
            ("{\"features\": [[NaN]]}", "the body is not"),
            ("{\"features\": [[1], [1e300]]}", "number out of range"),
            ("{\"features\": [[1]], \"k\": 0}", "`k` is 0"),
            ("{\"features\": [[1]], \"k\": 1001}", "`k` is 1001"),
            ("{\"features\": [[1]], \"k\": -1}", "the body is not"),
            ("{\"feature\": [[1]]}", "unknown field `feature`"),
            ("{\"k\": 1, \"k\": 2}", "duplicate field `k`"),
            ("{\"features\": [[1]]} x", "trailing characters"),
            ("{\"image\": \"A?==\"}", "not base64"),
        ] {
            let refusal = asked(body).read(1, 5).unwrap_err();
            assert_eq!(refusal.status, 400);
            assert!(
                refusal.sentence.contains(part),
                "{body}: {}",
                refusal.sentence
            );
        }
    }

    #[test]
    fn vectors_take_no_more_memory_than_the_net_takes_numbers() {
        let read = |body: String| asked(&body).read(3, 1).map(|question| question.rows);
        let long = format!(
            "{{\"features\": [[1,2,3],[{}1],[4,5,6]]}}",
            "0,".repeat(9999)
        );
        let Ok(Rows::Vectors(vectors)) = read(long) else {
            panic!("vectors")
        };
        assert_eq!((vectors.count, vectors.wrong), (3, Some((1, 10_000))));
        assert!(vectors.values.len() <= 9, "{}", vectors.values.len());
        let short = "{\"features\": [[1,2,3],[],[4]]}".to_string();
        let Ok(Rows::Vectors(vectors)) = read(short) else {
            panic!("vectors")
        };
        assert_eq!((vectors.count, vectors.wrong), (3, Some((1, 0))));
        let many = format!("{{\"features\": [{}[1]]}}", "[1],".repeat(1024));
        let refusal = asked(&many).read(1, 5).unwrap_err();
        assert!(
            refusal.sentence.contains("1025 vectors"),
            "{}",
            refusal.sentence
        );
    }

    #[test]
    fn an_answer_names_a_limited_number_of_classes() {
        let body = |rows: usize, k: usize| {
            let more = "[1],".repeat(rows - 1);
            format!("{{\"features\": [{more}[1]], \"k\": {k}}}")
        };
        assert!(asked(&body(1024, 32)).read(1, 5).is_ok());
        assert!(asked(&body(32, 1000)).read(1, 5).is_ok());
        let refusal = asked(&body(1024, 1000)).read(1, 5).unwrap_err();
        assert_eq!(refusal.status, 400);
        for part in ["1024 vectors", "1024000 classes", "at most 32 vectors"] {
            assert!(refusal.sentence.contains(part), "{}", refusal.sentence);
        }
    }

    #[test]
    fn base64_is_read_as_it_is_written() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zg", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYmE=", b"fooba"),
            ("+/8A", b"\xfb\xff\0"),
            ("data:image/png;base64,Zm9v", b"foo"),
        ] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes), "{text}");
        }
        for text in ["Z", "Zm9vY", "Zm 9", "Zm9\n", "data:image/png,Zm9v"] {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }

    #[test]
    fn content_types_say_what_a_body_is() {
        assert_eq!(Kind::from_content_type(None), Ok(Kind::Json));
        assert_eq!(
            Kind::from_content_type(Some("application/json; charset=utf-8")),
            Ok(Kind::Json)
        );
        assert_eq!(Kind::from_content_type(Some("Image/PNG")), Ok(Kind::Image));
        assert_eq!(
            Kind::from_content_type(Some("text/plain"))
                .unwrap_err()
                .status,
            415
        );
    }
}
