//! A net on a device, with its parameters and the state of its optimiser.

use std::ops::Range;

use burn_autodiff::Autodiff;
use burn_backend::{AutodiffBackend, Backend};
use burn_flex::Flex;
use pelton_comm::{Comm, Reduction};

use crate::error::NnError;
use crate::forward::{Pass, Sequences, Value};
use crate::input::{Carry, Input, arrange, images};
use crate::layer::{Flow, Layer, Role};
use crate::nets::Net;
use crate::operands::{Counts, F, LossOptions, dims, numbers, place, reshape};
use crate::ops::Ops;
use crate::optimiser::{Slot, Update};
use crate::parameters::{NamedArray, begin, collect, publish};

/// What a net is run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA device, by number.
    #[cfg(feature = "cuda")]
    Cuda(usize),
}

/// How gradients are made.
#[derive(Clone, Copy, Debug)]
pub struct StepOptions {
    /// The loss.
    pub loss: LossOptions,
    /// Decides what dropout takes.
    pub key: u64,
    /// Whether the gradients of this batch complete a step: they are summed over the ranks.
    pub last: bool,
}

/// A net that trains, evaluates and predicts. Gradients add up from [`gradients`](Trainer::gradients) to
/// [`update`](Trainer::update).
pub trait Trainer: Send {
    /// The net.
    fn net(&self) -> &Net;

    /// Forward and backward; gradients are added to those there are. A rank without a batch takes part in the sums all
    /// the same.
    fn gradients(
        &mut self,
        input: Option<Input<'_>>,
        options: &StepOptions,
    ) -> Result<Counts, NnError>;

    /// The 2-norm of all gradients; not finite where one of them is not.
    fn gradient_norm(&self) -> f64;

    /// Changes the parameters by the gradients, which are zero afterwards.
    fn update(&mut self, update: &Update);

    /// Forgets the gradients.
    fn forget(&mut self);

    /// Losses without training.
    fn evaluate(&mut self, input: Input<'_>) -> Result<Counts, NnError>;

    /// Logits [rows, classes] without training; of words step by step.
    fn logits(&mut self, input: Input<'_>) -> Result<Vec<f32>, NnError>;

    /// The parameters, by PyTorch's names and in its layouts.
    fn parameters(&self) -> Vec<NamedArray>;

    /// Replaces the parameters.
    fn set_parameters(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError>;

    /// What else the next step depends on: the optimiser's state and that of LSTM layers.
    fn state(&self) -> Vec<NamedArray>;

    /// Replaces that; `saved` may be empty.
    fn set_state(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError>;
}

/// A net on a device; all ranks of `comm` begin with the same parameters.
pub fn trainer(net: Net, device: Device, seed: u64, comm: Comm) -> Box<dyn Trainer> {
    match device {
        Device::Cpu => Box::new(OnDevice::<Autodiff<Flex>>::new(
            net,
            Default::default(),
            seed,
            comm,
        )),
        #[cfg(feature = "cuda")]
        Device::Cuda(number) => Box::new(OnDevice::<Autodiff<burn_cuda::Cuda>>::new(
            net,
            burn_cuda::CudaDevice::new(number),
            seed,
            comm,
        )),
    }
}

#[cfg(feature = "cuda")]
impl Ops for burn_cuda::Cuda {}
#[cfg(feature = "cuda")]
impl Ops for Autodiff<burn_cuda::Cuda> {}

/// Segments of a net on several ranks: the gradients of one are summed over the ranks while those of the one before it
/// are made.
const SEGMENTS: usize = 4;

type Inner<B> = <B as AutodiffBackend>::InnerBackend;

struct OnDevice<B: AutodiffBackend> {
    net: Net,
    /// Parts of the layers, each with its parameters.
    segments: Vec<Segment>,
    parameters: Vec<F<Inner<B>>>,
    gradients: Vec<Option<F<Inner<B>>>>,
    /// Of each parameter.
    states: Vec<Vec<F<Inner<B>>>>,
    carried: Vec<[F<Inner<B>>; 2]>,
    device: B::Device,
    comm: Comm,
}

#[derive(Clone, Debug)]
struct Segment {
    layers: Range<usize>,
    parameters: Range<usize>,
    /// A parameter of another segment that it uses too.
    tied: Option<usize>,
    /// LSTM layers before it.
    lstms: usize,
}

/// Cuts the layers where about equally many parameters lie between.
fn segments(net: &Net, most: usize) -> Vec<Segment> {
    let total = net.trained();
    let mut segments = Vec::new();
    let mut from = Segment {
        layers: 0..0,
        parameters: 0..0,
        tied: None,
        lstms: 0,
    };
    let (mut summary, mut flow) = (crate::layer::Summary::default(), net.input);
    let (mut done, mut lstms) = (0, 0);
    for (at, layer) in net.layers.iter().enumerate() {
        flow = layer
            .follow(flow, &mut summary)
            .expect("nets are checked when they are made");
        from.layers.end = at + 1;
        from.parameters.end = summary.parameters.len();
        lstms += usize::from(matches!(layer, Layer::Lstm { .. }));
        if let Layer::Linear {
            tied: Some(name), ..
        } = layer
        {
            let name = format!("{name}.weight");
            from.tied = summary.parameters.iter().position(|p| p.name == name);
        }
        let so_far: usize = summary.parameters.iter().map(|p| p.len()).sum();
        // A ReLU belongs to the convolution before it.
        let cut = !matches!(net.layers.get(at + 1), Some(Layer::Relu) | None);
        if cut && (so_far - done) * most >= total {
            done = so_far;
            segments.push(from.clone());
            from.layers.start = from.layers.end;
            from.parameters.start = from.parameters.end;
            from.lstms = lstms;
        }
    }
    if !from.layers.is_empty() {
        segments.push(from);
    }
    segments
}

impl<B> OnDevice<B>
where
    B: AutodiffBackend + Ops,
    Inner<B>: Ops,
{
    fn new(net: Net, device: B::Device, seed: u64, comm: Comm) -> OnDevice<B> {
        let place = |values, shape: &[usize]| {
            let len = shape.iter().product();
            reshape::<Inner<B>>(place::<Inner<B>, 1>(values, [len], &device), shape)
        };
        let parameters: Vec<_> = net
            .summary
            .parameters
            .iter()
            .map(|p| place(begin(p, seed), &p.shape))
            .collect();
        let most = if comm.size() > 1 { SEGMENTS } else { 1 };
        OnDevice {
            segments: segments(&net, most),
            gradients: parameters.iter().map(|_| None).collect(),
            states: parameters.iter().map(|_| Vec::new()).collect(),
            carried: Vec::new(),
            parameters,
            net,
            device,
            comm,
        }
    }

    /// A batch as layers take it, and the targets in the order of the logits.
    fn prepare<T: Backend<Device = B::Device>>(
        &self,
        input: Input<'_>,
    ) -> Result<(Value<T>, Sequences, Vec<i64>), NnError> {
        match (input, self.net.input) {
            (Input::Images { pixels, labels }, Flow::Image(height, width, channels)) => {
                let sizes = &pixels.shape().dims;
                if sizes[1..] != [height, width, channels] {
                    return Err(NnError::Net(format!(
                        "the net is made for images of {height}×{width}×{channels}, these are {sizes:?}"
                    )));
                }
                let x = Value::Numbers(images::<T>(pixels, &self.device)?);
                Ok((x, Sequences::default(), labels.to_vec()))
            }
            (Input::Words(words), Flow::Ids) => {
                let most = self.net.layers.iter().find_map(|layer| match layer {
                    Layer::Embedding { positions, .. } if *positions > 0 => Some(*positions),
                    _ => None,
                });
                if let Some(most) = most.filter(|&most| words.steps > most) {
                    return Err(NnError::Net(format!(
                        "a sequence of {} words is longer than the {most} positions of the net; give more positions, or keep shorter sequences",
                        words.steps
                    )));
                }
                let lstm = self
                    .net
                    .layers
                    .iter()
                    .any(|l| matches!(l, Layer::Lstm { .. }));
                let (sequences, targets) = arrange(words, lstm);
                Ok((Value::Words, sequences, targets))
            }
            (_, flow) => Err(NnError::Net(format!("the net takes {flow:?}"))),
        }
    }

    /// The gradients of a segment after one another, and the running statistics as a part of their mean over the ranks:
    /// all ranks hold the same parameters after a step.
    fn flat(&self, segment: &Segment, ranks: usize) -> Vec<f32> {
        let mut all = Vec::new();
        for at in segment.parameters.clone() {
            let parameter = &self.net.summary.parameters[at];
            match (parameter.role, &self.gradients[at]) {
                (Role::Statistic, _) => {
                    let values = numbers::<Inner<B>>(self.parameters[at].clone());
                    all.extend(values.into_iter().map(|x| x / ranks as f32));
                }
                (_, Some(gradient)) => all.extend(numbers::<Inner<B>>(gradient.clone())),
                (_, None) => all.resize(all.len() + parameter.len(), 0.0),
            }
        }
        all
    }

    /// Takes what [`flat`](OnDevice::flat) became.
    fn unflatten(&mut self, segment: &Segment, all: &[f32]) {
        let mut rest = all;
        for at in segment.parameters.clone() {
            let parameter = &self.net.summary.parameters[at];
            let (values, after) = rest.split_at(parameter.len());
            rest = after;
            let x = place::<Inner<B>, 1>(values.to_vec(), [values.len()], &self.device);
            let x = reshape::<Inner<B>>(x, &parameter.shape);
            match parameter.role {
                Role::Statistic => self.parameters[at] = x,
                _ => self.gradients[at] = Some(x),
            }
        }
    }

    /// The part of a rank without a batch in the sums over the ranks.
    fn take_part(&mut self, comm: &Comm, last: bool) -> Result<(), NnError> {
        if last && comm.size() > 1 {
            for segment in self.segments.clone().iter().rev() {
                let flat = self.flat(segment, comm.size());
                let sums = comm.start_all_reduce(flat, Reduction::Sum)?.wait()?;
                self.unflatten(segment, &sums);
            }
        }
        Ok(())
    }

    fn gradients_with(
        &mut self,
        comm: &Comm,
        input: Input<'_>,
        options: &StepOptions,
    ) -> Result<Counts, NnError> {
        let (value, sequences, targets) = self.prepare::<B>(input)?;
        let roles: Vec<Role> = self.net.summary.parameters.iter().map(|p| p.role).collect();
        let mut leaves: Vec<F<B>> = self
            .parameters
            .iter()
            .zip(&roles)
            .map(|(parameter, &role)| {
                let leaf = B::from_inner(parameter.clone());
                match role {
                    Role::Statistic => leaf,
                    _ => B::float_set_require_grad(leaf, true),
                }
            })
            .collect();
        // Statistics change in place: nothing else may hold their memory.
        for (parameter, _) in self
            .parameters
            .iter_mut()
            .zip(&roles)
            .filter(|(_, r)| **r == Role::Statistic)
        {
            *parameter = place::<Inner<B>, 1>(vec![], [0], &self.device);
        }
        let (carried, old) = self.begin(input);
        let mut states: Vec<[F<B>; 2]> = old.into_iter().map(|s| s.map(B::from_inner)).collect();

        // Forward, segment by segment; each begins with a leaf of its own.
        let mut ends: Vec<(Option<F<B>>, F<B>)> = Vec::new();
        let mut value = value;
        for segment in &self.segments {
            let mut begins = None;
            if let (Value::Numbers(x), Some((_, end))) = (&mut value, ends.last()) {
                *x = B::float_set_require_grad(B::from_inner(B::inner(end.clone())), true);
                begins = Some(x.clone());
            }
            let mut pass = Pass {
                parameters: &mut leaves,
                summary: &self.net.summary,
                next: segment.parameters.start,
                states: &mut states,
                next_state: segment.lstms,
                sequences: &sequences,
                training: true,
                key: pelton_key::mix(options.key ^ segment.layers.start as u64),
                device: &self.device,
            };
            let Value::Numbers(end) = pass.run(&self.net.layers[segment.layers.clone()], value)
            else {
                unreachable!("segments end in numbers")
            };
            value = Value::Numbers(end.clone());
            ends.push((begins, end));
        }
        drop(value);
        if carried {
            self.carried = states.into_iter().map(|s| s.map(B::inner)).collect();
        }
        let (begins, logits) = ends.pop().expect("a net has layers");
        let rows = dims::<B>(&logits).iter().product::<usize>() / self.net.classes;
        let logits = reshape::<B>(logits, &[rows, self.net.classes]);
        let (loss, counts) = B::nn_cross_entropy(logits, &targets, options.loss);

        // Backward, the last segment first.
        let mut pending = Vec::new();
        let mut next = Some((begins, loss));
        for at in (0..self.segments.len()).rev() {
            let (begins, end) = next.take().expect("one for each segment");
            let mut gradients = B::backward(end);
            let segment = &self.segments[at];
            for index in segment.parameters.clone().chain(segment.tied) {
                if let Some(gradient) = B::grad_remove(&leaves[index], &mut gradients) {
                    let sum = &mut self.gradients[index];
                    *sum = Some(match sum.take() {
                        Some(old) => Inner::<B>::nn_add(old, gradient),
                        None => gradient,
                    });
                }
            }
            if let (Some(begins), Some((earlier, end))) = (begins, ends.pop()) {
                let upstream = B::grad_remove(&begins, &mut gradients)
                    .expect("what a segment begins with has a gradient");
                let upstream = B::from_inner(upstream);
                next = Some((earlier, B::seed_gradient(end, upstream)));
            }
            drop(gradients);
            if options.last && comm.size() > 1 {
                for index in self.segments[at].parameters.clone() {
                    if roles[index] == Role::Statistic {
                        self.parameters[index] = B::inner(leaves[index].clone());
                    }
                }
                let flat = self.flat(&self.segments[at], comm.size());
                pending.push((at, comm.start_all_reduce(flat, Reduction::Sum)?));
            }
        }
        for (index, leaf) in leaves.into_iter().enumerate() {
            if roles[index] == Role::Statistic {
                self.parameters[index] = B::inner(leaf);
            }
        }
        for (at, sums) in pending {
            let segment = self.segments[at].clone();
            self.unflatten(&segment, &sums.wait()?);
        }
        Ok(counts)
    }

    /// Whether the state of LSTM layers is kept behind a batch, and what they begin with.
    fn begin(&mut self, input: Input<'_>) -> (bool, Vec<[F<Inner<B>>; 2]>) {
        match input {
            Input::Words(words) if words.carry == Carry::GoOn => {
                (true, std::mem::take(&mut self.carried))
            }
            Input::Words(words) => (words.carry == Carry::Begin, vec![]),
            Input::Images { .. } => (false, vec![]),
        }
    }

    /// Runs the net without a tape.
    fn infer(&mut self, input: Input<'_>) -> Result<(F<Inner<B>>, Vec<i64>), NnError> {
        let (value, sequences, targets) = self.prepare::<Inner<B>>(input)?;
        let (carried, mut states) = self.begin(input);
        let mut pass = Pass {
            parameters: &mut self.parameters,
            summary: &self.net.summary,
            next: 0,
            states: &mut states,
            next_state: 0,
            sequences: &sequences,
            training: false,
            key: 0,
            device: &self.device,
        };
        let Value::Numbers(logits) = pass.run(&self.net.layers, value) else {
            unreachable!("nets end in numbers")
        };
        if carried {
            self.carried = states;
        }
        let rows = dims::<Inner<B>>(&logits).iter().product::<usize>() / self.net.classes;
        Ok((
            reshape::<Inner<B>>(logits, &[rows, self.net.classes]),
            targets,
        ))
    }
}

impl<B> Trainer for OnDevice<B>
where
    B: AutodiffBackend + Ops,
    Inner<B>: Ops,
{
    fn net(&self) -> &Net {
        &self.net
    }

    fn gradients(
        &mut self,
        input: Option<Input<'_>>,
        options: &StepOptions,
    ) -> Result<Counts, NnError> {
        let comm = std::mem::replace(&mut self.comm, Comm::alone());
        let counts = match input {
            Some(input) => self.gradients_with(&comm, input, options),
            None => self
                .take_part(&comm, options.last)
                .map(|()| Counts::default()),
        };
        self.comm = comm;
        counts
    }

    fn gradient_norm(&self) -> f64 {
        let all: Vec<_> = self.gradients.iter().flatten().cloned().collect();
        Inner::<B>::norm(&all)
    }

    fn update(&mut self, update: &Update) {
        let mut slots = Vec::new();
        let mut places = Vec::new();
        for (at, parameter) in self.net.summary.parameters.iter().enumerate() {
            let Some(gradient) = self.gradients[at].take() else {
                continue;
            };
            let states = &mut self.states[at];
            while states.len() < update.rule.states() {
                let len = parameter.len();
                let zeros = place::<Inner<B>, 1>(vec![0.0; len], [len], &self.device);
                states.push(reshape::<Inner<B>>(zeros, &parameter.shape));
            }
            let nothing = place::<Inner<B>, 1>(vec![], [0], &self.device);
            slots.push(Slot {
                weight: std::mem::replace(&mut self.parameters[at], nothing),
                gradient,
                state: std::mem::take(states),
                decay: parameter.role == Role::Weight,
            });
            places.push(at);
        }
        Inner::<B>::update(update, &mut slots);
        for (at, slot) in places.into_iter().zip(slots) {
            self.parameters[at] = slot.weight;
            self.states[at] = slot.state;
        }
    }

    fn forget(&mut self) {
        self.gradients.fill_with(|| None);
    }

    fn evaluate(&mut self, input: Input<'_>) -> Result<Counts, NnError> {
        let (logits, targets) = self.infer(input)?;
        let options = LossOptions {
            scale: 1.0,
            smoothing: 0.0,
        };
        Ok(Inner::<B>::nn_cross_entropy(logits, &targets, options).1)
    }

    fn logits(&mut self, input: Input<'_>) -> Result<Vec<f32>, NnError> {
        Ok(numbers::<Inner<B>>(self.infer(input)?.0))
    }

    fn parameters(&self) -> Vec<NamedArray> {
        let all = self.net.summary.parameters.iter().zip(&self.parameters);
        all.map(|(p, x)| publish(p, numbers::<Inner<B>>(x.clone())))
            .collect()
    }

    fn set_parameters(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        let all = collect(&self.net.summary.parameters, saved)?;
        for ((at, parameter), values) in self.net.summary.parameters.iter().enumerate().zip(all) {
            let x = place::<Inner<B>, 1>(values, [parameter.len()], &self.device);
            self.parameters[at] = reshape::<Inner<B>>(x, &parameter.shape);
        }
        Ok(())
    }

    fn state(&self) -> Vec<NamedArray> {
        let mut all = Vec::new();
        for (parameter, states) in self.net.summary.parameters.iter().zip(&self.states) {
            for (k, state) in states.iter().enumerate() {
                all.push(NamedArray {
                    name: format!("optimiser.{k}.{}", parameter.name),
                    shape: parameter.shape.clone(),
                    values: numbers::<Inner<B>>(state.clone()),
                });
            }
        }
        for (layer, state) in self.carried.iter().enumerate() {
            for (name, x) in ["h", "c"].iter().zip(state) {
                all.push(NamedArray {
                    name: format!("carried.{layer}.{name}"),
                    shape: dims::<Inner<B>>(x),
                    values: numbers::<Inner<B>>(x.clone()),
                });
            }
        }
        all
    }

    fn set_state(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        let mut saved: std::collections::HashMap<String, NamedArray> =
            saved.into_iter().map(|a| (a.name.clone(), a)).collect();
        let mut take = |name: String| {
            saved.remove(&name).map(|a| {
                let x = place::<Inner<B>, 1>(a.values, [a.shape.iter().product()], &self.device);
                reshape::<Inner<B>>(x, &a.shape)
            })
        };
        for (at, parameter) in self.net.summary.parameters.iter().enumerate() {
            let state = |k: usize| format!("optimiser.{k}.{}", parameter.name);
            let found: Vec<_> = (0..2).map_while(|k| take(state(k))).collect();
            if found.iter().any(|x| dims::<Inner<B>>(x) != parameter.shape) {
                return Err(NnError::Parameters {
                    what: format!("the saved state of {} has other sizes", parameter.name),
                    remedy: "go on with the same net, or start anew",
                });
            }
            self.states[at] = found;
        }
        self.carried = (0..)
            .map_while(|layer| {
                let mut part = |name: &str| take(format!("carried.{layer}.{name}"));
                Some([part("h")?, part("c")?])
            })
            .collect();
        Ok(())
    }
}
