//! Corrects headers of answers that are valid but that the crate `object_store` refuses.

use object_store::client::{HttpRequest, HttpRequestBody};
use object_store::{HeaderMap, HeaderValue};

const SIZE: &str = "content-length";
const PART: &str = "content-range";
const TAG: &str = "etag";

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Whether the range of a part lacks the size of the whole, as in `bytes 0-9/*`.
pub(crate) fn lacks_size(answer: &HeaderMap) -> bool {
    text(answer, PART).is_some_and(|part| part.ends_with("/*"))
}

/// The request for the headers of the whole file, derived from that for a part.
pub(crate) fn of_whole(mut part: HttpRequest) -> HttpRequest {
    *part.method_mut() = "HEAD".parse().expect("a method");
    part.headers_mut().remove("range");
    *part.body_mut() = HttpRequestBody::empty();
    part
}

/// Puts the size of the whole file, from the answer to that request, into the answer for a part.
pub(crate) fn take_size(part: &mut HeaderMap, whole: &HeaderMap) {
    let range = text(part, PART).and_then(|range| range.strip_suffix('*'));
    let known = range.zip(text(whole, SIZE));
    if let Some(Ok(known)) = known.map(|(range, size)| format!("{range}{size}").parse()) {
        part.insert(PART, known);
    }
}

/// Replaces other harmless headers by accepted forms.
pub(crate) fn mend(answer: &mut HeaderMap) {
    // Times have many formats. Only differences matter, so a weak ETag will do.
    if let Some(modified) = answer.remove("last-modified")
        && !answer.contains_key(TAG)
    {
        answer.insert(TAG, weak(&modified));
    }
    if let Some(tag) = answer.get(TAG).filter(|tag| tag.to_str().is_err()) {
        answer.insert(TAG, weak(tag));
    }
    // File names that are not ASCII.
    let others = answer.iter().filter(|(_, value)| value.to_str().is_err());
    let others: Vec<_> = others.map(|(name, _)| name.clone()).collect();
    for name in others {
        answer.remove(name);
    }
    // The length comes from the range: an answer in chunks has no other, and of two only the range is checked.
    if let Some(part) = text(answer, PART) {
        match length_of(part) {
            Some(length) => answer.insert(SIZE, length.into()),
            None => answer.remove(PART),
        };
    }
}

/// As an ETag that no request names.
fn weak(value: &HeaderValue) -> HeaderValue {
    let text = value.as_bytes().escape_ascii();
    let tag = format!("W/\"{text}\"");
    tag.parse().expect("letters of ASCII")
}

/// Bytes of a part such as `bytes 10-19/200`.
fn length_of(part: &str) -> Option<u64> {
    let (range, _) = part.strip_prefix("bytes ")?.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    to.checked_sub(from)?.checked_add(1)
}
