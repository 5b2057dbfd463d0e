//! Requests on their way to the one thread that answers them.
//!
//! It takes all waiting requests at once, so requests that arrive together share a pass through the net, and a
//! single request does not wait. A pass uses every processor, so a second thread would gain nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pelton_storage::StorageError;
use tokio::sync::oneshot;

/// Requests that are answered together at most.
const TOGETHER: usize = 64;
/// How long the end of a queue waits for its thread. A longer computation ends after its pass, since no client
/// waits for its answers.
const LAST_PASS: Duration = Duration::from_millis(100);

/// A question and the channel for its answer.
pub(crate) type Waiting<Q, A> = (Q, Reply<A>);

/// The thread, and the channel to it.
pub(crate) struct Queue<Q, A> {
    /// None once the queue ends.
    sender: Option<SyncSender<Waiting<Q, A>>>,
    thread: Option<JoinHandle<()>>,
}

/// The reason for a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// The queue was full, possibly with questions of clients that have gone.
    Full,
    /// Answering panicked.
    Failed,
}

/// Delivers one answer to its waiting client. Dropped without one, it says that answering failed.
pub(crate) struct Reply<A>(oneshot::Sender<A>);

impl<A> Reply<A> {
    pub(crate) fn send(self, answer: A) {
        let _ = self.0.send(answer);
    }

    /// Whether the answer is no longer needed: time out, the client left, or the server ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl<Q: Send + 'static, A: Send + 'static> Queue<Q, A> {
    /// With room for `room` questions that wait; `answer` replies to each question as soon as it can.
    ///
    /// Errors: no thread can be started.
    pub(crate) fn new(
        room: usize,
        answer: impl FnMut(Vec<Waiting<Q, A>>) + Send + 'static,
    ) -> Result<Queue<Q, A>, StorageError> {
        let (sender, receiver) = sync_channel(room);
        let thread = pelton_storage::spawn("pelton-answers", move || work(&receiver, answer))?;
        Ok(Queue {
            sender: Some(sender),
            thread: Some(thread),
        })
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&self, question: Q) -> Result<A, Unanswered> {
        let (reply, answer) = oneshot::channel();
        let sender = self.sender.as_ref().ok_or(Unanswered::Failed)?;
        let waiting = (question, Reply(reply));
        sender.try_send(waiting).map_err(|_| Unanswered::Full)?;
        answer.await.map_err(|_| Unanswered::Failed)
    }
}

impl<Q, A> Drop for Queue<Q, A> {
    fn drop(&mut self) {
        self.sender = None;
        let Some(thread) = self.thread.take() else {
            return;
        };
        let began = Instant::now();
        while !thread.is_finished() && began.elapsed() < LAST_PASS {
            std::thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            // Panics of answers were caught.
            let _ = thread.join();
        }
    }
}

fn work<Q, A>(receiver: &Receiver<Waiting<Q, A>>, mut answer: impl FnMut(Vec<Waiting<Q, A>>)) {
    while let Ok(first) = receiver.recv() {
        let mut waiting = vec![first];
        waiting.extend(receiver.try_iter().take(TOGETHER - 1));
        // Those that timed out need no answer.
        waiting.retain(|(_, reply)| !reply.is_closed());
        if waiting.is_empty() {
            continue;
        }
        // A panic drops the replies of its questions; the thread still answers others.
        let _ = catch_unwind(AssertUnwindSafe(|| answer(waiting)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    }

    #[test]
    fn what_waits_is_answered_together_and_each_by_its_own() {
        let (inside, onward) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (inside_too, onward_too) = (Arc::clone(&inside), Arc::clone(&onward));
        let mut calls = 0;
        let queue = Queue::new(16, move |waiting: Vec<Waiting<u32, _>>| {
            calls += 1;
            if calls == 1 {
                inside_too.wait();
                onward_too.wait();
            }
            let together = waiting.len();
            for (question, reply) in waiting {
                reply.send((2 * question, together));
            }
        })
        .unwrap();
        let answers = runtime().block_on(async {
            let first = queue.ask(1);
            let rest = async {
                // The first is being answered; the others come meanwhile.
                inside.wait();
                let others = [queue.ask(2), queue.ask(3), queue.ask(4)].map(Box::pin);
                let mut all = Vec::new();
                let mut polled = others.into_iter().map(|mut other| {
                    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
                    assert!(other.as_mut().poll(context).is_pending());
                    other
                });
                let waiting: Vec<_> = polled.by_ref().collect();
                onward.wait();
                for other in waiting {
                    all.push(other.await);
                }
                all
            };
            tokio::join!(first, rest)
        });
        assert_eq!(answers.0, Ok((2, 1)));
        assert_eq!(answers.1, [Ok((4, 3)), Ok((6, 3)), Ok((8, 3))]);
    }

    #[test]
    fn a_panic_fails_its_own_questions_only() {
        let queue = Queue::new(4, |waiting: Vec<Waiting<u32, _>>| {
            assert!(waiting[0].0 != 13, "a test of panics");
            for (question, reply) in waiting {
                reply.send(question);
            }
        })
        .unwrap();
        let runtime = runtime();
        assert_eq!(runtime.block_on(queue.ask(13)), Err(Unanswered::Failed));
        assert_eq!(runtime.block_on(queue.ask(14)), Ok(14));
    }

    #[test]
    fn the_end_does_not_wait_for_a_long_answer() {
        let (inside, held) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (inside_too, held_too) = (Arc::clone(&inside), Arc::clone(&held));
        let queue = Queue::new(4, move |waiting: Vec<Waiting<u32, u32>>| {
            inside_too.wait();
            held_too.wait();
            assert!(waiting.iter().all(|(_, reply)| reply.is_closed()));
        })
        .unwrap();
        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
        let mut asked = Box::pin(queue.ask(1));
        assert!(asked.as_mut().poll(context).is_pending());
        inside.wait();
        drop(asked);
        let began = Instant::now();
        drop(queue);
        assert!(began.elapsed() < LAST_PASS * 10, "{:?}", began.elapsed());
        held.wait();
    }
}
