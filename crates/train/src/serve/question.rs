//! What a request asks, and how it is refused.

use serde::Deserialize;

/// Most vectors of a request.
pub(super) const MOST_ROWS: usize = 1024;
/// Most classes that an answer names for each of them.
pub(super) const MOST_CLASSES: usize = 1000;

/// Why there is no answer: a status of HTTP and a sentence.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) sentence: String,
}

impl Refusal {
    pub(super) fn new(status: u16, sentence: impl Into<String>) -> Refusal {
        let sentence = sentence.into();
        Refusal { status, sentence }
    }
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    /// Of an encoded picture; its own first bytes tell which.
    Image,
}

impl Kind {
    /// From a content type; JSON where there is none.
    pub(super) fn of(content_type: Option<&str>) -> Result<Kind, Refusal> {
        let text = content_type.unwrap_or("application/json");
        let essence = text.split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            "application/json" => Ok(Kind::Json),
            "image/png" | "image/jpeg" | "image/webp" => Ok(Kind::Image),
            _ => Err(Refusal::new(
                415,
                format!(
                    "the content type {essence:?} is not understood; send application/json, image/png, image/jpeg or image/webp"
                ),
            )),
        }
    }
}

/// A request to classify, as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Asked<B> {
    pub(super) kind: Kind,
    /// Classes that the address asks for.
    pub(super) k: Option<usize>,
    pub(super) body: B,
}

/// A request to classify, read.
#[derive(Debug, PartialEq)]
pub(super) struct Question {
    pub(super) rows: Rows,
    /// Classes it wants of each.
    pub(super) k: usize,
}

#[derive(Debug, PartialEq)]
pub(super) enum Rows {
    Vectors(Vec<Vec<f32>>),
    /// Encoded.
    Image(Vec<u8>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    features: Option<Vec<Vec<f32>>>,
    image: Option<String>,
    k: Option<usize>,
}

impl<B: AsRef<[u8]>> Asked<B> {
    /// Reads the body.
    pub(super) fn read(&self, default_k: usize) -> Result<Question, Refusal> {
        let bad = |sentence: String| Refusal::new(400, sentence);
        let (rows, k) = match self.kind {
            Kind::Image => (Rows::Image(self.body.as_ref().to_vec()), None),
            Kind::Json => {
                let json: Json = serde_json::from_slice(self.body.as_ref()).map_err(|error| {
                    bad(format!(
                        "the body is not {{\"features\": [[number, …], …], \"k\": count}} or {{\"image\": \"base64\", \"k\": count}}: {error}"
                    ))
                })?;
                let rows = match (json.features, json.image) {
                    (Some(rows), None) => Rows::Vectors(rows),
                    (None, Some(text)) => Rows::Image(from_base64(&text).ok_or_else(|| {
                        bad("`image` is not base64; encode the bytes of a PNG, JPEG or WebP file so".into())
                    })?),
                    _ => {
                        return Err(bad(
                            "the body must have either `features` or `image`".to_string()
                        ));
                    }
                };
                (rows, json.k)
            }
        };
        let k = self.k.or(k).unwrap_or(default_k);
        if !(1..=MOST_CLASSES).contains(&k) {
            return Err(bad(format!("`k` is {k}; give 1 to {MOST_CLASSES}")));
        }
        // JSON has no NaN, and numbers beyond f32 are refused as they are read.
        match &rows {
            Rows::Vectors(rows) if !(1..=MOST_ROWS).contains(&rows.len()) => Err(bad(format!(
                "`features` holds {} vectors; send 1 to {MOST_ROWS} at once",
                rows.len()
            ))),
            _ => Ok(Question { rows, k }),
        }
    }
}

/// Bytes of base64 (RFC 4648, section 4), of which the padding may be missing and which a data address may precede.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = match text.starts_with("data:") {
        true => text.split_once(";base64,")?.1,
        false => text,
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
        Asked { kind, k, body }
    }

    #[test]
    fn a_body_of_json_is_read() {
        let question = asked("{\"features\": [[1, 2.5], [-3, 0]], \"k\": 7}")
            .read(5)
            .unwrap();
        assert_eq!(
            question.rows,
            Rows::Vectors(vec![vec![1.0, 2.5], vec![-3.0, 0.0]])
        );
        assert_eq!(question.k, 7);
        let question = asked("{\"image\": \"AAEC\"}").read(5).unwrap();
        assert_eq!((question.rows, question.k), (Rows::Image(vec![0, 1, 2]), 5));
        let picture = Asked {
            kind: Kind::Image,
            k: Some(3),
            body: [9, 8],
        };
        let question = picture.read(5).unwrap();
        assert_eq!((question.rows, question.k), (Rows::Image(vec![9, 8]), 3));
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
            ("{\"image\": \"A?==\"}", "not base64"),
        ] {
            let refusal = asked(body).read(5).unwrap_err();
            assert_eq!(refusal.status, 400);
            assert!(
                refusal.sentence.contains(part),
                "{body}: {}",
                refusal.sentence
            );
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
        assert_eq!(Kind::of(None), Ok(Kind::Json));
        assert_eq!(
            Kind::of(Some("application/json; charset=utf-8")),
            Ok(Kind::Json)
        );
        assert_eq!(Kind::of(Some("Image/PNG")), Ok(Kind::Image));
        assert_eq!(Kind::of(Some("text/plain")).unwrap_err().status, 415);
    }
}
