//! Serves a trained net over HTTP.
//!
//! ```text
//! http.rs      connections, paths, limits            one thread, never computes
//! timely.rs    writes that end within a time
//! fair.rs      what one client may have, and turns
//! queue.rs     where requests wait (task.rs)         threads that read large bodies and decode pictures
//! reader.rs    question.rs → numbers                 what is asked
//! engine.rs    net → class index → text              one thread, with the processors of a pool
//! ```
//!
//! A head over very many classes is not loaded: the net computes features, and a
//! [`ClassIndex`](pelton_softmax::ClassIndex) over the class vectors finds the nearest. Heads without class vectors
//! rank by themselves, and nets without such a head rank by their logits.

mod engine;
mod fair;
mod http;
mod metrics;
mod question;
mod queue;
mod reader;
mod task;
mod timely;

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use pelton_comm::Comm;
use pelton_nn::{Flow, trainer};
use pelton_run::{Event, Interrupt, Observer, RunContext};
use pelton_softmax::{HeadKind, Logits};
use pelton_train::classify::HeadChoice;
use pelton_train::finished::Classifier;
use pelton_train::image::sizes;
use pelton_train::{TrainError, check_range, thread_pool};
use serde::Serialize;
use tokio::sync::Semaphore;

pub use http::Limits;

use engine::Engine;
use http::Service;
use reader::Reader;

/// Most requests at once; each has a connection and an answer in memory.
const MOST_REQUESTS: usize = 1 << 16;

/// Interval of checks for an interruption at startup.
const LOOK: Duration = Duration::from_millis(20);

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The run folder.
    pub run: PathBuf,
    /// Name or address to listen on.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Whether to compare with every class vector.
    pub exact: bool,
    /// Default number of classes in an answer.
    pub top: usize,
    /// Limits.
    pub limits: Limits,
}

/// Statistics of a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServeFigures {
    /// Vectors and images that were classified.
    pub queries: u64,
    /// Seconds it served.
    pub wall_s: f64,
}

/// The answer of `/v1/model`.
#[derive(Serialize)]
struct Model {
    run: String,
    /// Height, width and channels of images; the length of vectors.
    input: Vec<usize>,
    classes: usize,
    top: usize,
    scores: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<IndexFigures>,
}

#[derive(Serialize)]
struct IndexFigures {
    lists: usize,
    probes: usize,
    recall: f64,
    extra_bytes: u64,
    build_s: f64,
}

/// Serves until interrupted; `ready` receives the address.
///
/// Errors: a run that is not finished, damaged, or of language; an address that it cannot listen on.
pub fn run(
    config: &ServeConfig,
    ready: impl FnOnce(SocketAddr),
    context: RunContext<'_>,
) -> Result<ServeFigures, TrainError> {
    let limits = config.limits;
    if limits.concurrency == 0 || limits.body_bytes == 0 || limits.time.is_zero() {
        return Err(TrainError::config(
            "`concurrency`, `max_body` and `timeout` must be above 0".to_string(),
        ));
    }
    if !(1..=question::MOST_CLASSES).contains(&config.top) {
        let most = question::MOST_CLASSES;
        return Err(TrainError::config(format!(
            "`top` {} is not from 1 to {most}",
            config.top
        )));
    }
    check_range("concurrency", limits.concurrency, 1..=MOST_REQUESTS)?;
    let opening = config.clone();
    let (engine, model) =
        interruptible(context.interrupt, &mut *context.observer, move |context| {
            open(&opening, context)
        })?;
    let note = match &model.index {
        Some(index) if index.lists > index.probes => format!(
            "index of {} classes: searches {} of {} lists, recall {:.4} of the best class, ready in {:.1} s",
            model.classes, index.probes, index.lists, index.recall, index.build_s
        ),
        _ => format!("every query searches all {} classes", model.classes),
    };
    (context.observer)(Event::Note(&note));
    let model = serde_json::to_string(&model).expect("numbers and text");
    let service = Arc::new(Service::new(limits, model, engine)?);
    let began = Instant::now();
    let address = (config.host.as_str(), config.port);
    http::serve(&service, address, context.interrupt, ready).map_err(|error| {
        TrainError::config(format!(
            "cannot listen on {}:{} ({error}); give another `port` or `host`",
            config.host, config.port
        ))
    })?;
    Ok(ServeFigures {
        queries: service.metrics.queries(),
        wall_s: began.elapsed().as_secs_f64(),
    })
}

/// Does `work` on a thread and abandons it if `interrupt` is set: building an index takes long.
fn interruptible<T: Send + 'static>(
    interrupt: &Interrupt,
    observer: Observer<'_>,
    work: impl FnOnce(&mut RunContext<'_>) -> Result<T, TrainError> + Send + 'static,
) -> Result<T, TrainError> {
    let (sender, receiver) = channel();
    let stop = Interrupt::default();
    let stopped = Arc::clone(&stop);
    let thread = pelton_storage::spawn("pelton-opening", move || {
        let comm = Comm::alone();
        let note = &mut |event: Event<'_>| {
            if let Event::Note(note) = event {
                let _ = sender.send(note.to_string());
            }
        };
        work(&mut RunContext::new(&comm, &stopped, note))
    })?;
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(note) => observer(Event::Note(&note)),
            Err(RecvTimeoutError::Timeout) if interrupt.load(Ordering::Relaxed) => {
                stop.store(true, Ordering::Relaxed);
                return Err(TrainError::stopped("opening the run"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        }
    }
}

fn open(config: &ServeConfig, context: &mut RunContext<'_>) -> Result<(Engine, Model), TrainError> {
    let run = Classifier::open(&config.run)?;
    let (image, input, count) = (&run.config, run.input, run.labels.len());
    if matches!(input, Flow::Bag(_)) {
        return Err(TrainError::config(format!(
            "{}: takes sparse rows, which a server does not; predict files of them with `pelton predict`",
            config.run.display()
        )));
    }
    let net = image.net(input, count)?;
    let pool = thread_pool(image.fit.threads, &Comm::alone())?;
    let seed = image.fit.seed;
    let mut index = None;
    let mut net = trainer(net, seed, Comm::alone());
    let (mut scores, mut figures) = ("probability", None);
    if let Some(head) = &image.head {
        scores = match (head.kind, head.logits) {
            (HeadChoice::Kind(HeadKind::Mach { .. }), _) => "score",
            (_, Logits::Cosine { .. }) => "cosine",
            (_, Logits::Product) => "product",
        };
        let began = Instant::now();
        index = run.index(config.exact, &pool, context)?;
        match &index {
            Some(index) => {
                figures = Some(IndexFigures {
                    lists: index.lists(),
                    probes: index.probes(),
                    recall: index.recall(),
                    extra_bytes: index.extra_bytes(),
                    build_s: began.elapsed().as_secs_f64(),
                });
            }
            None => {
                let features = image.net(input, count)?;
                net = image.trainer(features, count, Comm::alone())?;
            }
        }
    }
    run.load(net.as_mut())?;
    let model = Model {
        run: config.run.display().to_string(),
        input: sizes(input),
        classes: count,
        top: config.top,
        scores,
        index: figures,
    };
    let mean = run.feature_mean()?;
    let engine = Engine {
        reader: Arc::new(Reader {
            input,
            pictures: run.pictures()?,
            exif: image.pipeline.exif,
            top: config.top,
            features: index.is_some().then(|| net.net().classes),
        }),
        trainer: net,
        index,
        mean,
        pool,
        run,
        room: Arc::new(Semaphore::new(engine::ROOM)),
        open: Default::default(),
        pace: Default::default(),
    };
    Ok((engine, model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_start_ends_when_it_is_interrupted() {
        let (mut notes, interrupt) = (Vec::new(), Interrupt::default());
        let observer = &mut |event: Event<'_>| {
            if let Event::Note(note) = event {
                notes.push(note.to_string());
            }
        };
        let opened = interruptible(&interrupt, observer, |context| {
            (context.observer)(Event::Note("begun"));
            Ok(5)
        });
        assert_eq!(opened.ok(), Some(5));
        interrupt.store(true, Ordering::Relaxed);
        let (began, (_open, never)) = (Instant::now(), channel::<()>());
        let opened = interruptible(&interrupt, observer, move |_| {
            let _ = never.recv();
            Ok(())
        });
        assert_eq!(opened.map_err(|error| error.exit_code()), Err(130));
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(notes, ["begun"]);
    }
}
