//! A request in progress, with the receiver of its answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::fair::{Client, Taken};
use crate::question::{Asked, Refusal};
use crate::reader::{Reader, Stage};

/// Bytes of a small body, and of a small answer.
pub(crate) const SMALL_BODY: usize = 16 << 10;

/// A request in progress.
pub(crate) struct Task {
    pub(crate) client: Client,
    pub(crate) stage: Stage,
    pub(crate) reply: Reply,
    pub(crate) began: Instant,
    /// Its slot among all requests.
    pub(crate) place: Taken,
    /// Room for its body, and then for the numbers read from it.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// The text of an answer, with its room until written.
pub(crate) struct Text {
    pub(crate) text: Vec<u8>,
    pub(crate) _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The text of an answer and its number of rows, or the refusal.
pub(crate) type Answered = Result<(Text, u64), Refusal>;

/// Delivers one answer to its waiting client. If dropped without an answer, the client receives an error.
pub(crate) struct Reply(oneshot::Sender<Answered>);

impl Reply {
    pub(crate) fn send(self, answer: Answered) {
        let _ = self.0.send(answer);
    }

    /// Whether the answer is no longer needed: time out, the client left, or the server ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl Task {
    /// A request, and the receiver of its answer. The answer is an error if answering panics.
    pub(crate) fn new(
        client: Client,
        place: Taken,
        asked: Asked<Vec<u8>>,
        room: Option<OwnedSemaphorePermit>,
    ) -> (Task, oneshot::Receiver<Answered>) {
        let (reply, answer) = oneshot::channel();
        let task = Task {
            client,
            stage: Stage::Asked(asked),
            reply: Reply(reply),
            began: Instant::now(),
            place,
            room,
        };
        (task, answer)
    }

    /// Reads it, and prepares it unless it has more pixels. `None` if it was refused or its client no longer waits; a
    /// panic fails only this request.
    pub(crate) fn advanced(mut self, reader: &Reader, most_pixels: u64) -> Option<Task> {
        if self.reply.is_closed() {
            return None;
        }
        let stage = self.stage;
        let advance = || {
            let question = match stage {
                Stage::Asked(asked) => reader.read(&asked)?,
                Stage::Read(question) => question,
                Stage::Prepared(_) => return Ok(stage),
            };
            reader.prepared(question, most_pixels)
        };
        match catch_unwind(AssertUnwindSafe(advance)).ok()? {
            Ok(stage) => {
                self.stage = stage;
                Some(self)
            }
            Err(refusal) => {
                self.reply.send(Err(refusal));
                None
            }
        }
    }
}
