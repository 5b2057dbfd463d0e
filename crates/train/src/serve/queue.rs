//! Requests on their way to the one thread that answers them.
//!
//! It takes all that wait at once, so that requests that come together share a pass through the net, and one that comes
//! alone waits for nobody. A pass uses every processor, so a second thread would gain nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// Requests that are answered together at most.
const TOGETHER: usize = 64;

/// The thread, and the way to it.
pub(super) struct Queue<Q, A> {
    /// None once the queue ends.
    sender: Option<SyncSender<Waiting<Q, A>>>,
    thread: Option<JoinHandle<()>>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// There was no room: questions that nobody waits for any more fill it too.
    Full,
    /// Answering panicked.
    Failed,
}

struct Waiting<Q, A> {
    question: Q,
    reply: oneshot::Sender<A>,
}

impl<Q: Send + 'static, A: Send + 'static> Queue<Q, A> {
    /// With room for so many questions that wait; `answer` gives one answer a question.
    pub(super) fn new(
        room: usize,
        answer: impl FnMut(Vec<Q>) -> Vec<A> + Send + 'static,
    ) -> Queue<Q, A> {
        let (sender, receiver) = sync_channel(room);
        let thread = std::thread::spawn(move || work(&receiver, answer));
        Queue {
            sender: Some(sender),
            thread: Some(thread),
        }
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, question: Q) -> Result<A, Unanswered> {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting { question, reply };
        let sender = self.sender.as_ref().ok_or(Unanswered::Failed)?;
        sender.try_send(waiting).map_err(|_| Unanswered::Full)?;
        answer.await.map_err(|_| Unanswered::Failed)
    }
}

impl<Q, A> Drop for Queue<Q, A> {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // Panics of answers were caught.
            let _ = thread.join();
        }
    }
}

fn work<Q, A>(receiver: &Receiver<Waiting<Q, A>>, mut answer: impl FnMut(Vec<Q>) -> Vec<A>) {
    while let Ok(first) = receiver.recv() {
        let mut waiting = vec![first];
        waiting.extend(receiver.try_iter().take(TOGETHER - 1));
        // Nobody waits for those whose time was up.
        waiting.retain(|waiting| !waiting.reply.is_closed());
        let (questions, replies): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .map(|waiting| (waiting.question, waiting.reply))
            .unzip();
        if questions.is_empty() {
            continue;
        }
        // Those who asked are told; others are to be answered still.
        let Ok(answers) = catch_unwind(AssertUnwindSafe(|| answer(questions))) else {
            continue;
        };
        for (reply, answer) in replies.into_iter().zip(answers) {
            let _ = reply.send(answer);
        }
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
        let queue = Queue::new(16, move |questions: Vec<u32>| {
            calls += 1;
            if calls == 1 {
                inside_too.wait();
                onward_too.wait();
            }
            let together = questions.len();
            questions.iter().map(|q| (2 * q, together)).collect()
        });
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
        let queue = Queue::new(4, |questions: Vec<u32>| {
            assert!(questions[0] != 13, "a test of panics");
            questions
        });
        let runtime = runtime();
        assert_eq!(runtime.block_on(queue.ask(13)), Err(Unanswered::Failed));
        assert_eq!(runtime.block_on(queue.ask(14)), Ok(14));
    }
}
