//! One training: a loader on a slow source, a net, and when it reached the target.
//!
//! **Paced**, as in the published setting, everything happens in real time. The source is the file behind a
//! modelled device that takes R·t_down for the pictures of a batch, and a step of the consumer takes t_down: the
//! net's own step and, for what is left, waiting. So R is what it is said to be on any machine that makes a step
//! in less. Held-out pictures are looked at by another thread, which gets a copy of the net with the time at which
//! it was made: looking costs no time of the training, and the source cannot read ahead meanwhile.
//!
//! **Not paced**, the same batches come as fast as they can: with a fixed echo their sequence, and so the net,
//! depends on the plan alone. Learning rates are chosen this way.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use pelton_feed::{AugmentImages, AutoEcho, EchoPoint, Loader, LoaderOptions, Stages};
use pelton_fetch::Access;
use pelton_format::Dataset;
use pelton_image::Pipeline;
use pelton_plan::{Catalog, Echo, Order, Plan, PlanSpec};
use pelton_run::Interrupt;
use pelton_storage::{DeviceModel, ModelledDevice, ThrottleMode, Throttled};
use pelton_train::TrainError;

use super::perceptron::{Perceptron, Quality, Sizes};
use super::pictures::{Pictures, pixels_and_classes};

/// Memory of a loader.
const LOADER_BYTES: u64 = 64 << 20;
/// Hidden units of the net.
const HIDDEN: usize = 64;
/// What of the last steps' gradients goes on.
const MOMENTUM: f32 = 0.9;
/// Looks whose mean accuracy says how good a net is.
const SMOOTHED: usize = 3;
/// The end of a step is waited for by looking at the clock for so long, since a sleeping thread wakes late.
const AWAKE: Duration = Duration::from_micros(200);

/// Where repeats come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Before,
    After,
    Batches,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Condition {
    /// Every example so often.
    Fixed { factor: f64, point: Point },
    /// As often as the consumer would wait.
    Auto,
}

impl Condition {
    pub fn name(self) -> String {
        match self {
            Condition::Fixed { factor, point } if factor > 1.0 => match point {
                Point::Before => format!("e = {factor}, before augmentation"),
                Point::After => format!("e = {factor}, after augmentation"),
                Point::Batches => format!("e = {factor}, batches"),
            },
            Condition::Fixed { .. } => "e = 1".to_string(),
            Condition::Auto => "auto, before augmentation".to_string(),
        }
    }

    /// The factor where it is fixed before augmentation.
    pub fn factor_before(self) -> Option<f64> {
        match self {
            Condition::Fixed {
                factor,
                point: Point::Before,
            } => Some(factor),
            _ => None,
        }
    }
}

/// What holds for every training.
pub(super) struct Setting {
    pub pictures: Pictures,
    pub batch: u64,
    /// Fresh examples from which repeats are drawn.
    pub window: u32,
    /// Fresh examples from one look at the held-out pictures to the next.
    pub look_every: u64,
    /// Seconds of a step, and t_up/t_down.
    pub step_s: f64,
    pub ratio: f64,
    pub interrupt: Interrupt,
}

/// When a training ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    /// Accuracy that is to be reached.
    pub target: f64,
    /// Fresh examples after which it ends without.
    pub fresh: u64,
}

/// Which training it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub condition: Condition,
    /// The learning rate.
    pub rate: f32,
    pub seed: u64,
    /// Whether source and steps take their time.
    pub paced: bool,
    pub until: Until,
}

/// A look at the held-out pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Look {
    pub fresh: u64,
    pub used: u64,
    pub wall_s: f64,
    pub quality: Quality,
}

/// Where the target was met, between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reached {
    pub fresh: f64,
    pub used: f64,
    pub wall_s: f64,
}

/// What a training left.
#[derive(Clone, Debug, Default)]
pub(super) struct Trial {
    pub looks: Vec<Look>,
    pub reached: Option<Reached>,
    /// Over all of the training.
    pub fresh: u64,
    pub echoed: u64,
    pub steps: u64,
    pub wall_s: f64,
    /// Steps that took longer than they should.
    pub late_steps: u64,
    /// Mean step, as measured.
    pub mean_step_s: f64,
}

/// Accuracy by the last few looks at each of them, from the first that has so many.
pub(super) fn smoothed(looks: &[Look]) -> Vec<f64> {
    let accuracy = |look: &Look| look.quality.accuracy;
    looks
        .windows(SMOOTHED)
        .map(|few| few.iter().map(accuracy).sum::<f64>() / SMOOTHED as f64)
        .collect()
}

/// The first place at which the smoothed accuracy meets `target`, by a line between two looks.
pub(super) fn reached(looks: &[Look], target: f64) -> Option<Reached> {
    let smoothed = smoothed(looks);
    let at = smoothed.iter().position(|&accuracy| accuracy >= target)?;
    let look = &looks[at + SMOOTHED - 1];
    let (before, part) = match at.checked_sub(1) {
        Some(last) => {
            let part = (target - smoothed[last]) / (smoothed[at] - smoothed[last]);
            (looks[last + SMOOTHED - 1], part)
        }
        None => (*look, 1.0),
    };
    let between = |from: f64, to: f64| from + part * (to - from);
    Some(Reached {
        fresh: between(before.fresh as f64, look.fresh as f64),
        used: between(before.used as f64, look.used as f64),
        wall_s: between(before.wall_s, look.wall_s),
    })
}

impl Setting {
    fn stages(&self) -> Result<Stages, TrainError> {
        let side = self.pictures.side;
        let pipeline = format!("randomcrop:{side}:2,flip").parse::<Pipeline>();
        let pipeline = pipeline.and_then(|pipeline| pipeline.with_channels(1));
        let pipeline = pipeline.map_err(|error| TrainError::config(error.to_string()))?;
        Ok(Stages::default().then(AugmentImages::by(pipeline)))
    }

    /// The training pictures on a device that takes `ratio` steps' time for a batch of them.
    fn slow(&self) -> Result<Dataset, TrainError> {
        let reads_per_s = self.batch as f64 / (self.ratio * self.step_s);
        // A read costs its first page alone, so that all pictures cost the same wherever they lie.
        let free = 1e12;
        let model = DeviceModel {
            name: format!("{reads_per_s:.0} pictures a second"),
            sequential_read_iops: free,
            random_read_iops: reads_per_s,
            sequential_write_iops: free,
            random_write_iops: free,
            bandwidth_bytes_per_s: None,
            latency_s: 0.0,
        };
        let device = ModelledDevice::new(model, ThrottleMode::RealTime);
        let dataset = Dataset::clone(&self.pictures.train);
        Ok(dataset.with_storage(|storage| Arc::new(Throttled::on(&device, storage))))
    }

    fn loader(&self, run: &Run) -> Result<Loader, TrainError> {
        let mut spec = PlanSpec::new(Order::Full, self.batch, run.seed);
        let mut options = LoaderOptions {
            threads: 1,
            // One is asked while the other's pictures come, so that the device is never idle.
            read_threads: 2,
            access: Access::Direct,
            // A batch at a time, as a stream from afar comes.
            look_ahead: Some(2 * self.batch),
            interrupt: Arc::clone(&self.interrupt),
            ..LoaderOptions::with_memory(LOADER_BYTES)
        };
        match run.condition {
            Condition::Fixed { factor, point } => {
                let batches = (self.window / self.batch as u32).max(1);
                match point {
                    Point::Batches => spec.batch_echo = Echo::new(factor, batches)?,
                    _ => spec.echo = Echo::new(factor, self.window)?,
                }
                if point == Point::After {
                    options.echo_point = EchoPoint::AfterAugment;
                }
            }
            Condition::Auto => options.auto_echo = Some(AutoEcho::default()),
        }
        let dataset = match run.paced {
            true => Arc::new(self.slow()?),
            false => Arc::clone(&self.pictures.train),
        };
        let used = Some(self.pictures.used.clone());
        let stream = Plan::new(&spec, Catalog::of(dataset.records()).with_selection(used))?;
        let stages = self.stages()?;
        Ok(Loader::new(dataset, Arc::new(stream), stages, &options)?)
    }

    fn net(&self, seed: u64) -> Perceptron {
        let sizes = Sizes {
            inputs: (self.pictures.side * self.pictures.side) as usize,
            hidden: HIDDEN,
            classes: self.pictures.classes,
        };
        Perceptron::new(sizes, seed)
    }

    /// Trains until the target, or the end.
    pub fn train(&self, run: &Run) -> Result<Trial, TrainError> {
        let test = (&self.pictures.test_pictures, &self.pictures.test_labels);
        let looks = Mutex::new(Vec::new());
        let done = AtomicBool::new(false);
        let look_at = |mut net: Perceptron, mut look: Look| {
            look.quality = net.quality(test.0, test.1);
            let mut looks = looks.lock().unwrap_or_else(PoisonError::into_inner);
            looks.push(look);
            done.store(reached(&looks, run.until.target).is_some(), Relaxed);
        };
        let began = Instant::now();
        let trial = std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel::<(Perceptron, Look)>();
            let mut send = None;
            if run.paced {
                send = Some(sender);
                scope.spawn(move || {
                    receiver
                        .into_iter()
                        .for_each(|(net, look)| look_at(net, look))
                });
            }
            let mut look = |net: Perceptron, look: Look| match &send {
                // The receiver ends after the sender alone.
                Some(sender) => drop(sender.send((net, look))),
                None => look_at(net, look),
            };
            let loader = self.loader(run)?;
            let clock = Clock::new(began, run.paced.then_some(self.step_s));
            self.steps(run, loader, clock, &done, &mut look)
        });
        let mut trial: Trial = trial?;
        trial.looks = looks.into_inner().unwrap_or_else(PoisonError::into_inner);
        trial.reached = reached(&trial.looks, run.until.target);
        Ok(trial)
    }

    fn steps(
        &self,
        run: &Run,
        mut loader: Loader,
        mut clock: Clock,
        done: &AtomicBool,
        look: &mut dyn FnMut(Perceptron, Look),
    ) -> Result<Trial, TrainError> {
        let mut net = self.net(run.seed);
        let (mut fresh, mut used, mut next_look) = (0, 0, self.look_every);
        while fresh < run.until.fresh && !done.load(Relaxed) {
            let Some(batch) = loader.next().transpose()? else {
                break;
            };
            clock.begin();
            let (pixels, labels) = pixels_and_classes(&batch);
            net.step(pixels, &labels, run.rate, MOMENTUM);
            fresh += batch.fresh();
            used += batch.len() as u64;
            drop(batch);
            clock.end();
            if fresh >= next_look {
                next_look += self.look_every;
                let at = Look {
                    fresh,
                    used,
                    wall_s: clock.wall_s(),
                    ..Look::default()
                };
                look(net.take_mean(), at);
            }
        }
        let meters = loader.meters();
        Ok(Trial {
            fresh: meters.fresh_examples,
            echoed: meters.echoed_examples,
            steps: clock.steps,
            wall_s: clock.wall_s(),
            late_steps: clock.late,
            mean_step_s: clock.sum_s / clock.steps.max(1) as f64,
            ..Trial::default()
        })
    }
}

/// Makes steps take their time.
struct Clock {
    began: Instant,
    step_s: Option<f64>,
    step_began: Instant,
    steps: u64,
    late: u64,
    sum_s: f64,
}

impl Clock {
    fn new(began: Instant, step_s: Option<f64>) -> Clock {
        Clock {
            began,
            step_s,
            step_began: began,
            steps: 0,
            late: 0,
            sum_s: 0.0,
        }
    }

    fn begin(&mut self) {
        self.step_began = Instant::now();
    }

    fn end(&mut self) {
        self.steps += 1;
        if let Some(step_s) = self.step_s {
            let end = self.step_began + Duration::from_secs_f64(step_s);
            let left = end.saturating_duration_since(Instant::now());
            self.late += u64::from(left.is_zero());
            std::thread::sleep(left.saturating_sub(AWAKE));
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        self.sum_s += self.step_began.elapsed().as_secs_f64();
    }

    fn wall_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(accuracies: &[f64]) -> Vec<Look> {
        let look = |(i, &accuracy): (u64, &f64)| Look {
            fresh: 100 * i,
            used: 300 * i,
            wall_s: 0.5 * i as f64,
            quality: Quality {
                accuracy,
                loss: 0.0,
            },
        };
        (1..).zip(accuracies).map(look).collect()
    }

    #[test]
    fn the_target_is_met_between_two_looks() {
        let looks = looks(&[0.3, 0.3, 0.3, 0.6, 0.6, 0.0]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        // Means of three: 0.3, 0.4, 0.5, 0.4, at looks 3 to 6.
        let found = reached(&looks, 0.45).unwrap();
        assert!(near(found.fresh, 450.0) && near(found.used, 1350.0));
        assert!(near(found.wall_s, 2.25));
        assert!(near(reached(&looks, 0.2).unwrap().fresh, 300.0));
        assert_eq!(reached(&looks, 0.51), None);
        assert_eq!(reached(&looks[..2], 0.0), None);
    }

    #[test]
    fn a_step_takes_its_time() {
        let mut clock = Clock::new(Instant::now(), Some(0.003));
        for _ in 0..5 {
            clock.begin();
            clock.end();
        }
        assert_eq!(clock.steps, 5);
        assert!(clock.wall_s() >= 0.015 && clock.sum_s >= 0.015);
    }
}
