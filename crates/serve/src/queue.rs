//! The queues of requests to the one thread that answers them.
//!
//! ```text
//! small bodies ──────────────────────────┐
//!                                        ├─→ answering: one thread, with the processors of a pool
//! others → reading: a few threads ───────┤
//!             └─→ large: one thread ─────┘
//! ```
//!
//! The thread that answers takes all waiting requests at once, so requests that arrive together share a pass through
//! the net, and a single request does not wait. A pass uses every processor, so a second thread would gain nothing.
//! Threads of a lower priority read requests that would delay small ones; a single one of them decodes very large
//! pictures, so that their memory is needed only once.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pelton_storage::StorageError;

use crate::fair::{Line, Places, Taken};
use crate::question::Refusal;
use crate::reader::{MOST_PIXELS, Reader, Stage};
use crate::task::{SMALL_BODY, Task};

/// Most pixels of pictures that threads decode in parallel; larger ones are decoded one by one.
const FEW_PIXELS: u64 = 2_000_000;
/// One in this many requests may have a picture of more than [`FEW_PIXELS`]: each takes up to a second.
const ONE_LARGE_IN: usize = 4;
/// Most reading threads.
const MOST_READERS: usize = 8;
/// How long a closing queue waits for its threads. A longer computation ends after its pass, since no client waits for
/// its answers.
const LAST_PASS: Duration = Duration::from_millis(100);

/// The threads, and their queues.
pub(crate) struct Queue {
    lines: Arc<Lines>,
    threads: Vec<JoinHandle<()>>,
}

/// The queues of requests.
struct Lines {
    answering: Line<Task>,
    reading: Line<Task>,
    large: Line<(Task, Taken)>,
    large_places: Arc<Places>,
}

impl Queue {
    /// A queue for `requests` at once. `answer` takes requests until its queue is closed, and may return some to be
    /// read.
    ///
    /// Errors: a thread cannot be started.
    pub(crate) fn new(
        requests: usize,
        readers: usize,
        reader: &Arc<Reader>,
        answer: impl FnOnce(&Line<Task>, &Line<Task>) + Send + 'static,
    ) -> Result<Queue, StorageError> {
        let lines = Arc::new(Lines {
            answering: Line::new(),
            reading: Line::new(),
            large: Line::new(),
            large_places: Places::new(requests.div_ceil(ONE_LARGE_IN)),
        });
        let mut queue = Queue {
            lines,
            threads: Vec::new(),
        };
        // From here on, dropping the queue ends its running threads.
        queue.start("pelton-answers", |lines| {
            answer(&lines.answering, &lines.reading)
        })?;
        for _ in 0..readers.min(MOST_READERS) {
            let reader = Arc::clone(reader);
            queue.start("pelton-reading", move |lines| lines.read(&reader))?;
        }
        let reader = Arc::clone(reader);
        queue.start("pelton-large", move |lines| lines.decode_large(&reader))?;
        Ok(queue)
    }

    fn start(
        &mut self,
        name: &str,
        work: impl FnOnce(&Lines) + Send + 'static,
    ) -> Result<(), StorageError> {
        let lines = Arc::clone(&self.lines);
        self.threads
            .push(pelton_storage::spawn(name, move || work(&lines))?);
        Ok(())
    }

    /// Adds a request.
    pub(crate) fn push(&self, task: Task) {
        let is_small = match &task.stage {
            Stage::Asked(asked) => asked.body.len() <= SMALL_BODY,
            _ => false,
        };
        let line = if is_small {
            &self.lines.answering
        } else {
            &self.lines.reading
        };
        line.push(task.client, task);
    }
}

impl Lines {
    fn read(&self, reader: &Reader) {
        yield_to_others();
        while let Some(task) = self.reading.take(1).pop() {
            let Some(task) = task.advanced(reader, FEW_PIXELS) else {
                continue;
            };
            if let Stage::Prepared(_) = task.stage {
                self.answering.push(task.client, task);
                continue;
            }
            match self.large_places.take(task.client) {
                Ok(place) => self.large.push(task.client, (task, place)),
                Err(_) => task.reply.send(Err(Refusal::new(
                    503,
                    format!(
                        "too many pictures of more than {FEW_PIXELS} pixels are waiting; try again in a second, or send smaller ones"
                    ),
                ))),
            }
        }
    }

    fn decode_large(&self, reader: &Reader) {
        yield_to_others();
        while let Some((task, _place)) = self.large.take(1).pop() {
            if let Some(task) = task.advanced(reader, MOST_PIXELS) {
                self.answering.push(task.client, task);
            }
        }
    }
}

/// Lets threads of normal priority run first.
fn yield_to_others() {
    // On other systems this would be the priority of the whole process.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.lines.answering.close();
        self.lines.reading.close();
        self.lines.large.close();
        let began = Instant::now();
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && began.elapsed() < LAST_PASS {
                std::thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                // Panics of answers were caught.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::mpsc::channel;

    use pelton_feed::Exif;
    use pelton_image::Pipeline;
    use pelton_nn::Flow;

    use super::*;
    use crate::question::{Asked, Kind};
    use crate::task::Answered;

    fn reader() -> Arc<Reader> {
        Arc::new(Reader {
            input: Flow::Image(4, 4, 1),
            pictures: Pipeline::new(vec![]).unwrap().with_channels(1).unwrap(),
            exif: Exif::Ignore,
            top: 5,
            features: None,
        })
    }

    /// A request with a grey picture as JSON numbers, which are slow to parse.
    fn picture(side: usize) -> (Task, tokio::sync::oneshot::Receiver<Answered>) {
        let pixels = "7 ".repeat(side * side);
        asked(format!("P2 {side} {side} 255\n{pixels}").into_bytes())
    }

    fn asked(body: Vec<u8>) -> (Task, tokio::sync::oneshot::Receiver<Answered>) {
        let client = SocketAddr::from(([127, 0, 0, 1], 1)).into();
        let asked = Asked {
            kind: Kind::Image,
            features: false,
            k: None,
            body,
        };
        let place = Places::new(99).take(client).ok().unwrap();
        Task::new(client, place, asked, None)
    }

    /// One picture of 7000 × 7000 once blocked all other requests for a second.
    #[test]
    fn a_large_picture_is_decoded_off_the_answering_thread() {
        let (sender, answered) = channel();
        let reader = reader();
        let queue = Queue::new(8, 2, &reader, move |answering, _| {
            while let Some(task) = answering.take(1).pop() {
                let is_small = matches!(task.stage, Stage::Asked(_));
                sender.send((is_small, task)).unwrap();
            }
        })
        .unwrap();
        // Two may wait, others are refused.
        let mut large: Vec<_> = (0..6).map(|_| picture(2000)).collect();
        let small: Vec<_> = (0..20).map(|_| picture(4)).collect();
        let answers: Vec<_> = large
            .drain(..)
            .map(|(task, answer)| {
                queue.push(task);
                answer
            })
            .collect();
        let _waiting: Vec<_> = small
            .into_iter()
            .map(|(task, answer)| {
                queue.push(task);
                answer
            })
            .collect();
        let order: Vec<bool> = answered.iter().take(22).map(|(small, _)| small).collect();
        assert!(order[..20].iter().all(|small| *small), "{order:?}");
        let refusals = answers.into_iter().filter_map(|mut answer| {
            let reported = answer.try_recv().ok()?;
            Some(reported.err().unwrap().status)
        });
        let refusals: Vec<u16> = refusals.collect();
        assert!(!refusals.is_empty() && refusals.iter().all(|status| *status == 503));
    }

    #[test]
    fn too_many_pixels_are_refused_before_they_are_decoded() {
        let (task, mut answer) = asked(b"P5 10000 10000 255\n".to_vec());
        assert!(task.advanced(&reader(), MOST_PIXELS).is_none());
        let refusal = answer.try_recv().unwrap().err().unwrap();
        assert_eq!(refusal.status, 413);
        assert!(
            refusal
                .sentence
                .contains("10000 x 10000 pixels, more than the 50000000"),
            "{}",
            refusal.sentence
        );
    }

    #[test]
    fn the_end_does_not_wait_for_a_long_answer() {
        let (hold, held) = channel::<()>();
        let queue = Queue::new(4, 1, &reader(), move |_, _| {
            let _ = held.recv();
        })
        .unwrap();
        let began = Instant::now();
        drop(queue);
        assert!(began.elapsed() < LAST_PASS * 10, "{:?}", began.elapsed());
        drop(hold);
    }
}
