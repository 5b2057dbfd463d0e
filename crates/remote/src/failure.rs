//! Why an attempt failed: whether another may help, and what the user can do.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, Error as StoreError};

use crate::answer::{Answer, LAST, TooLong, limited, part_of};
use crate::headers;

/// Makes clients that record the servers' answers, correct headers and limit bodies.
#[derive(Debug, Default)]
pub(crate) struct NotingConnector;

/// A client that does so.
#[derive(Debug)]
pub(crate) struct Noting(pub(crate) HttpClient);

impl HttpConnector for NotingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Noting(client)))
    }
}

impl HttpService for Noting {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let note = |answer| LAST.try_with(|last| last.borrow_mut().answer = answer);
            // Outside of an attempt it is not read.
            let _ = note(None);
            let (again, part) = (request.clone(), part_of(&request));
            let mut response = self.0.execute(request).await?;
            let status = response.status();
            let _ = note(Some(Answer {
                status: status.as_u16(),
                text: status.to_string(),
            }));
            if headers::lacks_size(response.headers()) {
                let whole = self.0.execute(headers::of_whole(again)).await?;
                headers::take_size(response.headers_mut(), whole.headers());
            }
            headers::mend(response.headers_mut());
            Ok(limited(response, part))
        })
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) status: Option<u16>,
    pub(crate) what: String,
    pub(crate) remedy: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The next attempt may succeed.
    Passing,
    /// The next attempt would fail too.
    Lasting,
    /// The file has changed.
    Changed,
}

const NETWORK: &str = "check the network and the server's name, or try again later";
const BUSY: &str = "the server is down or has too much to do; try again later";
pub(crate) const ACCESS: &str =
    "check the credentials in the environment, and that they may read it";
const KEYS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for a profile AWS_PROFILE), or AWS_SKIP_SIGNATURE=true for public data";
const RANGES: &str =
    "give a server that answers requests for parts of a file, or copy the file to a disk first";

impl Failure {
    pub(crate) fn passing(what: impl Into<String>) -> Failure {
        Failure {
            kind: Kind::Passing,
            status: None,
            what: what.into(),
            remedy: NETWORK,
        }
    }

    pub(crate) fn changed(what: impl Into<String>) -> Failure {
        Failure {
            kind: Kind::Changed,
            ..Failure::passing(what)
        }
    }

    /// From an error of the crate `object_store`, and the server's last answer to this attempt.
    pub(crate) fn from_error(error: &StoreError) -> Failure {
        let answer = LAST.try_with(|last| last.borrow().answer.clone());
        let answer = answer.ok().flatten();
        let text = whole_text(error);
        // The address of credentials on Amazon's machines, which is tried last.
        if text.contains("/latest/api/token") || text.contains("/latest/meta-data/") {
            return Failure {
                kind: Kind::Lasting,
                status: None,
                what: "no credentials are known".into(),
                remedy: KEYS,
            };
        }
        let refused = answer.as_ref().filter(|answer| answer.status >= 300);
        if let Some(Answer {
            status,
            text: answer,
        }) = refused
        {
            let (kind, remedy) = by_status(*status);
            let code = code_of(&text).map_or_else(String::new, |code| format!(" ({code})"));
            return Failure {
                kind,
                status: Some(*status),
                what: format!("the server answered {answer}{code}"),
                remedy,
            };
        }
        let status = answer.map(|answer| answer.status);
        if causes(error).any(|cause| cause.is::<TooLong>()) {
            return Failure {
                kind: Kind::Lasting,
                remedy: "name a folder with fewer files",
                ..Failure::passing(last_text(error))
            };
        }
        if of_transport(error) {
            return Failure {
                status,
                ..Failure::passing(last_text(error))
            };
        }
        let ignored =
            status == Some(200) && (text.contains("non-partial") || text.contains("Range request"));
        Failure {
            kind: Kind::Lasting,
            status,
            what: if ignored {
                "the server answered with the whole file (200 OK)".into()
            } else {
                last_text(error)
            },
            remedy: match status {
                Some(200..=299) => RANGES,
                _ => "check the name and the settings in the environment",
            },
        }
    }
}

fn by_status(status: u16) -> (Kind, &'static str) {
    match status {
        408 | 425 | 429 | 500 | 502 | 503 | 504 => (Kind::Passing, BUSY),
        401 | 403 => (Kind::Lasting, ACCESS),
        404 | 410 => (Kind::Lasting, "check the name"),
        412 => (Kind::Changed, ""),
        300..=399 => (
            Kind::Lasting,
            "check the name, and that AWS_REGION is the bucket's region",
        ),
        400 => (
            Kind::Lasting,
            "check the name, the region (AWS_REGION) and the endpoint (AWS_ENDPOINT_URL)",
        ),
        501..=599 => (Kind::Passing, BUSY),
        _ => (Kind::Lasting, "check the name and the server"),
    }
}

/// Errors from the outermost to the first cause.
fn causes(error: &StoreError) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

fn of_transport(error: &StoreError) -> bool {
    causes(error).any(|cause| cause.is::<HttpError>())
}

/// The text of the innermost cause.
fn last_text(error: &StoreError) -> String {
    causes(error)
        .last()
        .map_or_else(String::new, ToString::to_string)
}

fn whole_text(error: &StoreError) -> String {
    let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    texts.join(": ")
}

/// The error code in an object store's XML answer.
fn code_of(text: &str) -> Option<&str> {
    let (_, from) = text.split_once("<Code>")?;
    let (code, _) = from.split_once("</Code>")?;
    (code.len() < 64 && code.chars().all(|c| c.is_ascii_alphanumeric())).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        let kind = |status| by_status(status).0;
        for status in [408, 429, 500, 502, 503, 504, 507] {
            assert_eq!(kind(status), Kind::Passing, "{status}");
        }
        for status in [301, 400, 401, 403, 404, 405, 416] {
            assert_eq!(kind(status), Kind::Lasting, "{status}");
        }
        assert_eq!(kind(412), Kind::Changed);
    }

    #[test]
    fn codes_of_object_stores() {
        let text = "403: <?xml?><Error><Code>SignatureDoesNotMatch</Code><Message>x</Message>";
        assert_eq!(code_of(text), Some("SignatureDoesNotMatch"));
        assert_eq!(code_of("<Code>a b</Code>"), None);
        assert_eq!(code_of("nothing"), None);
    }
}
