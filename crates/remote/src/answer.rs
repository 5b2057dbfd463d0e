//! Limits on answers: a body is cut at the requested bytes, and everything without such a length has a limit, so that
//! a server never decides how much memory this process takes.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};

/// The server's last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Such as 404.
    pub(crate) status: u16,
    /// Such as `404 Not Found`.
    pub(crate) text: String,
}

/// Notes on an attempt.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) answer: Option<Answer>,
    /// Bytes of lists so far.
    pub(crate) listed: u64,
}

tokio::task_local! {
    /// The last answer to this attempt. The crate `object_store` does not expose it.
    pub(crate) static LAST: RefCell<Noted>;
}

/// Bytes kept of the explanation of a refusal.
const REFUSAL: u64 = 64 << 10;
/// Most bytes of a page of a list: 5 000 names of 1 024 letters, each spelled in six, with as much around them.
const PAGE: u64 = 64 << 20;
/// Most bytes of all pages of a list, which is about 1.5 million files.
const LIST: u64 = 512 << 20;

/// An answer without a requested length, longer than any valid one.
#[derive(Debug, thiserror::Error)]
#[error("its list is longer than {} MiB", .0 >> 20)]
pub(crate) struct TooLong(u64);

#[derive(Debug)]
struct Limited {
    body: HttpResponseBody,
    left: u64,
    /// Whether more than that is an error; otherwise the body ends there.
    is_list: bool,
}

/// Bytes of the part that a request names, as in `bytes=10-19`.
pub(crate) fn part_of(request: &HttpRequest) -> Option<u64> {
    let range = request.headers().get("range")?.to_str().ok()?;
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    to.checked_sub(from)?.checked_add(1)
}

/// The same answer with a body of limited length: that of the requested `part`, if there is one.
pub(crate) fn limited(answer: HttpResponse, part: Option<u64>) -> HttpResponse {
    let status = answer.status();
    let (left, is_list) = match part {
        _ if !status.is_success() => (REFUSAL, false),
        Some(bytes) => (bytes, false),
        None => (PAGE, true),
    };
    answer.map(|body| {
        HttpResponseBody::new(Limited {
            body,
            left,
            is_list,
        })
    })
}

impl Body for Limited {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.left == 0 && !self.is_list {
            // Takes the end of a chunked body, if it has arrived, so that the connection can be reused.
            let _ = Pin::new(&mut self.body).poll_frame(context);
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let mut bytes = match frame?.into_data() {
                Ok(bytes) => bytes,
                // Trailers are ignored.
                Err(_) => return Ok(Frame::data(Bytes::new())),
            };
            if self.is_list {
                let count = bytes.len() as u64;
                let listed = LAST.try_with(|last| {
                    let mut last = last.borrow_mut();
                    last.listed += count;
                    last.listed
                });
                if count > self.left || listed.is_ok_and(|listed| listed > LIST) {
                    let most = if count > self.left { PAGE } else { LIST };
                    return Err(HttpError::new(HttpErrorKind::Unknown, TooLong(most)));
                }
            }
            bytes.truncate(self.left.min(usize::MAX as u64) as usize);
            self.left -= bytes.len() as u64;
            Ok(Frame::data(bytes))
        }))
    }
}
