//! A net on a device, with its parameters and the state of its optimiser. Ranks divide each batch.

use std::collections::VecDeque;

use burn_backend::{AutodiffBackend, Backend};
use pelton_comm::{Comm, Reduction};
use pelton_softmax::{ReadRows, RowBlock};

use crate::error::NnError;
use crate::forward::{Pass, Sequences, Value};
use crate::input::{Carry, Input, Words, arrange, images};
use crate::layer::{Flow, Layer, Role};
use crate::nets::Net;
use crate::operands::{Counts, F, LossOptions, dims, numbers, place, reshape};
use crate::ops::Ops;
use crate::optimiser::{Rule, Slot, Update};
use crate::parameters::{NamedArray, begin, collect, publish};
use crate::segment::{Segment, segments};
use crate::sparse::{Correction, Sparsifier};
use crate::trainer::{StepOptions, Trainer};

/// Segments of a net on several ranks: the gradients of one are summed over the ranks while those of the one before it
/// are made.
const SEGMENTS: usize = 4;

pub(crate) type Inner<B> = <B as AutodiffBackend>::InnerBackend;

/// What a forward pass leaves for the way back.
pub(crate) struct Tape<B: AutodiffBackend> {
    /// The parameters.
    leaves: Vec<F<B>>,
    /// What each segment begins and ends with.
    ends: Vec<(Option<F<B>>, F<B>)>,
}

impl<B: AutodiffBackend> Tape<B> {
    /// What the net put out.
    pub(crate) fn end(&self) -> F<B> {
        self.ends.last().expect("a net has layers").1.clone()
    }
}

pub(crate) struct OnDevice<B: AutodiffBackend> {
    pub(crate) net: Net,
    /// Parts of the layers, each with its parameters.
    segments: Vec<Segment>,
    /// Which parameters there are; the others are empty.
    held: Vec<bool>,
    pub(crate) parameters: Vec<F<Inner<B>>>,
    pub(crate) gradients: Vec<Option<F<Inner<B>>>>,
    /// Of each parameter.
    pub(crate) states: Vec<Vec<F<Inner<B>>>>,
    carried: Vec<[F<Inner<B>>; 2]>,
    pub(crate) device: B::Device,
    /// Of forward passes whose way back is still to come.
    pub(crate) tapes: VecDeque<Tape<B>>,
    rank: usize,
    comm: Comm,
    /// Where only the largest gradients travel: in [`update`](Trainer::update), the others as soon as they are there.
    sparse: Option<Sparsifier>,
}

impl<B> OnDevice<B>
where
    B: AutodiffBackend + Ops,
    Inner<B>: Ops,
{
    pub(crate) fn new(net: Net, device: B::Device, seed: u64, comm: Comm) -> OnDevice<B> {
        let held = vec![true; net.summary.parameters.len()];
        OnDevice::holding(net, device, seed, comm, held)
    }

    pub(crate) fn holding(
        net: Net,
        device: B::Device,
        seed: u64,
        comm: Comm,
        held: Vec<bool>,
    ) -> OnDevice<B> {
        let place = |values, shape: &[usize]| {
            let len = shape.iter().product();
            reshape::<Inner<B>>(place::<Inner<B>, 1>(values, [len], &device), shape)
        };
        let parameters: Vec<_> = net
            .summary
            .parameters
            .iter()
            .zip(&held)
            .map(|(p, &held)| match held {
                true => place(begin(p, seed), &p.shape),
                false => place(vec![], &[0]),
            })
            .collect();
        let most = if comm.size() > 1 { SEGMENTS } else { 1 };
        OnDevice {
            segments: segments(&net, most),
            gradients: parameters.iter().map(|_| None).collect(),
            states: parameters.iter().map(|_| Vec::new()).collect(),
            carried: Vec::new(),
            held,
            parameters,
            net,
            device,
            tapes: VecDeque::new(),
            rank: comm.rank(),
            comm,
            sparse: None,
        }
    }

    /// Has only this part of the gradients of large parameters travel.
    pub(crate) fn with_density(mut self, density: f64) -> OnDevice<B> {
        let parameters = self.net.summary.parameters.iter();
        self.sparse = (density < 1.0).then(|| Sparsifier::new(parameters, density, &self.comm));
        self
    }

    fn is_sparse(&self, parameter: usize) -> bool {
        self.sparse
            .as_ref()
            .is_some_and(|sparse| sparse.takes(parameter))
    }

    /// Puts the steps of all ranks in the place of the gradients of which only the largest travel.
    fn exchange(&mut self, update: &Update) -> Result<(), NnError> {
        let Some(sparse) = &mut self.sparse else {
            return Ok(());
        };
        let Rule::Sgd { momentum, nesterov } = update.rule else {
            return Err(NnError::Net(
                "sparse gradients take sgd; choose it, or a density of 1".to_string(),
            ));
        };
        let decay = update.weight_decay / self.comm.size() as f32;
        let mut gradients = Vec::new();
        for at in sparse.taken() {
            let parameter = &self.net.summary.parameters[at];
            let mut gradient = match self.gradients[at].take() {
                Some(gradient) => numbers::<Inner<B>>(gradient),
                None => vec![0.0; parameter.len()],
            };
            let weights = numbers::<Inner<B>>(self.parameters[at].clone());
            for (g, w) in gradient.iter_mut().zip(weights) {
                *g = *g * update.scale + decay * w;
            }
            gradients.push(gradient);
        }
        let how = Correction { momentum, nesterov };
        let steps = sparse.exchange(gradients, how, &self.comm)?;
        for (at, step) in sparse.taken().into_iter().zip(steps) {
            let len = step.len();
            let step = place::<Inner<B>, 1>(step, [len], &self.device);
            let shape = &self.net.summary.parameters[at].shape;
            self.gradients[at] = Some(reshape::<Inner<B>>(step, shape));
        }
        Ok(())
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
            (Input::Vectors { values, labels }, Flow::Row(width)) => {
                let sizes = &values.shape().dims;
                if sizes[1..] != [width] {
                    return Err(NnError::Net(format!(
                        "the net is made for {width} features, these are {sizes:?}"
                    )));
                }
                let x = Value::Numbers(images::<T>(values, &self.device)?);
                Ok((x, Sequences::default(), labels.to_vec()))
            }
            (Input::Words(words), Flow::Ids) => {
                let (sequences, targets) = self.sequences(words)?;
                Ok((Value::Words, sequences, targets))
            }
            (_, flow) => Err(NnError::Net(format!("the net takes {flow:?}"))),
        }
    }

    /// Takes the saved state of the optimiser; returns the rest.
    pub(crate) fn set_optimiser(
        &mut self,
        saved: Vec<NamedArray>,
    ) -> Result<Vec<NamedArray>, NnError> {
        let mut named: std::collections::HashMap<String, NamedArray> =
            saved.into_iter().map(|a| (a.name.clone(), a)).collect();
        for (at, parameter) in self.net.summary.parameters.iter().enumerate() {
            let take = |k: usize| named.remove(&optimiser_state(k, &parameter.name));
            let found: Vec<NamedArray> = (0..2).map_while(take).collect();
            if found.iter().any(|a| a.shape != parameter.shape) {
                return Err(NnError::Parameters {
                    what: format!("the saved state of {} has other sizes", parameter.name),
                    remedy: "go on with the same net, or start anew",
                });
            }
            let found = found.into_iter().filter(|_| self.held[at]);
            self.states[at] = found
                .map(|a| {
                    let x = place::<Inner<B>, 1>(a.values, [parameter.len()], &self.device);
                    reshape::<Inner<B>>(x, &a.shape)
                })
                .collect();
        }
        Ok(named.into_values().collect())
    }

    /// Words as layers take them, and the targets in the order of the logits.
    pub(crate) fn sequences(&self, words: &Words) -> Result<(Sequences, Vec<i64>), NnError> {
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
        let mut layers = self.net.layers.iter();
        let lstm = layers.any(|l| matches!(l, Layer::Lstm { .. }));
        Ok(arrange(words, lstm))
    }

    /// The parameters on a tape, from which gradients are asked for.
    pub(crate) fn leaves(&self) -> Vec<F<B>> {
        let roles = self.net.summary.parameters.iter().map(|p| p.role);
        let all = self.parameters.iter().zip(roles);
        all.map(|(parameter, role)| {
            let leaf = B::from_inner(parameter.clone());
            match role {
                Role::Statistic => leaf,
                _ => B::float_set_require_grad(leaf, true),
            }
        })
        .collect()
    }

    /// Adds the gradients of parameters to those there are.
    pub(crate) fn take_gradients(
        &mut self,
        leaves: &[F<B>],
        mut from: B::Gradients,
        which: impl Iterator<Item = usize>,
    ) -> B::Gradients {
        for index in which {
            if let Some(gradient) = B::grad_remove(&leaves[index], &mut from) {
                let sum = &mut self.gradients[index];
                *sum = Some(match sum.take() {
                    Some(old) => Inner::<B>::nn_add(old, gradient),
                    None => gradient,
                });
            }
        }
        from
    }

    /// The gradients of a segment after one another, and the running statistics as a part of their mean over the ranks:
    /// all ranks hold the same parameters after a step.
    fn flat(&self, segment: &Segment, ranks: usize) -> Vec<f32> {
        let mut all = Vec::new();
        for at in segment.parameters.clone().filter(|&at| !self.is_sparse(at)) {
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
            if self.is_sparse(at) {
                continue;
            }
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
    pub(crate) fn take_part(&mut self, sums: Option<&Comm>) -> Result<(), NnError> {
        if let Some(comm) = sums.filter(|comm| comm.size() > 1) {
            for segment in self.segments.clone().iter().rev() {
                let flat = self.flat(segment, comm.size());
                let sums = comm.start_all_reduce(flat, Reduction::Sum)?.wait()?;
                self.unflatten(segment, &sums);
            }
        }
        Ok(())
    }

    /// Forward along a new tape, segment by segment; the end of the last is what the net puts out. Returns the targets
    /// too.
    pub(crate) fn go_forward(
        &mut self,
        input: Input<'_>,
        key: u64,
    ) -> Result<(Tape<B>, Vec<i64>), NnError> {
        let (value, sequences, targets) = self.prepare::<B>(input)?;
        let mut leaves = self.leaves();
        // Statistics change in place: nothing else may hold their memory.
        let all = self.net.summary.parameters.iter().zip(&mut self.parameters);
        for (_, parameter) in all.filter(|(p, _)| p.role == Role::Statistic) {
            *parameter = place::<Inner<B>, 1>(vec![], [0], &self.device);
        }
        let (carried, old) = self.begin(input);
        let mut states: Vec<[F<B>; 2]> = old.into_iter().map(|s| s.map(B::from_inner)).collect();

        // Each segment begins with a leaf of its own.
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
                next_state: segment.lstms.start,
                sequences: &sequences,
                training: true,
                key: pelton_key::mix(key ^ (segment.layers.start | self.rank << 32) as u64),
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
        let all = self.net.summary.parameters.iter().enumerate();
        for (at, _) in all.filter(|(_, p)| p.role == Role::Statistic) {
            self.parameters[at] = B::inner(leaves[at].clone());
        }
        let tape = Tape { leaves, ends };
        Ok((tape, targets))
    }

    /// Backward along a tape from `from`, which follows its end: the last segment first. With `sums` the gradients there
    /// are, these included, are summed over the ranks.
    pub(crate) fn go_backward(
        &mut self,
        tape: Tape<B>,
        from: F<B>,
        sums: Option<&Comm>,
    ) -> Result<(), NnError> {
        let Tape { leaves, mut ends } = tape;
        let (begins, _) = ends.pop().expect("a net has layers");
        let mut pending = Vec::new();
        let mut next = Some((begins, from));
        for at in (0..self.segments.len()).rev() {
            let (begins, end) = next.take().expect("one for each segment");
            let segment = self.segments[at].clone();
            let which = segment.parameters.clone().chain(segment.tied);
            let mut gradients = self.take_gradients(&leaves, B::backward(end), which);
            if let (Some(begins), Some((earlier, end))) = (begins, ends.pop()) {
                let upstream = B::grad_remove(&begins, &mut gradients)
                    .expect("what a segment begins with has a gradient");
                let upstream = B::from_inner(upstream);
                next = Some((earlier, B::seed_gradient(end, upstream)));
            }
            drop(gradients);
            if let Some(comm) = sums.filter(|comm| comm.size() > 1) {
                let flat = self.flat(&segment, comm.size());
                pending.push((at, comm.start_all_reduce(flat, Reduction::Sum)?));
            }
        }
        for (at, sums) in pending {
            let segment = self.segments[at].clone();
            self.unflatten(&segment, &sums.wait()?);
        }
        Ok(())
    }

    fn gradients_with(
        &mut self,
        comm: &Comm,
        parts: &[Option<Input<'_>>],
        options: &StepOptions,
    ) -> Result<Counts, NnError> {
        let mut counts = Counts::default();
        for (part, input) in parts.iter().enumerate() {
            let sums = (part + 1 == parts.len()).then_some(comm);
            let Some(input) = input else {
                self.take_part(sums)?;
                continue;
            };
            let (tape, targets) = self.go_forward(*input, options.key_of(part))?;
            let logits = tape.end();
            let rows = dims::<B>(&logits).iter().product::<usize>() / self.net.classes;
            let logits = reshape::<B>(logits, &[rows, self.net.classes]);
            let (loss, counted) = B::nn_cross_entropy(logits, &targets, options.loss);
            counts += counted;
            self.go_backward(tape, loss, sums)?;
        }
        Ok(counts)
    }

    /// Works with the ranks while the net changes.
    pub(crate) fn with_comm<R>(&mut self, work: impl FnOnce(&mut OnDevice<B>, &Comm) -> R) -> R {
        let comm = std::mem::replace(&mut self.comm, Comm::alone());
        let result = work(self, &comm);
        self.comm = comm;
        result
    }

    /// Whether the state of LSTM layers is kept behind a batch, and what they begin with.
    fn begin(&mut self, input: Input<'_>) -> (bool, Vec<[F<Inner<B>>; 2]>) {
        match input {
            Input::Words(words) if words.carry == Carry::GoOn => {
                (true, std::mem::take(&mut self.carried))
            }
            Input::Words(words) => (words.carry == Carry::Begin, vec![]),
            Input::Images { .. } | Input::Vectors { .. } => (false, vec![]),
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
        parts: &[Option<Input<'_>>],
        options: &StepOptions,
    ) -> Result<Counts, NnError> {
        self.with_comm(|net, comm| net.gradients_with(comm, parts, options))
    }

    fn gradient_norm(&mut self) -> Result<f64, NnError> {
        let of = |sparse: bool| -> f64 {
            let which = (0..self.gradients.len()).filter(|&at| self.is_sparse(at) == sparse);
            let all: Vec<_> = which.filter_map(|at| self.gradients[at].clone()).collect();
            Inner::<B>::norm(&all)
        };
        let summed = of(false);
        if self.sparse.is_none() {
            return Ok(summed);
        }
        // What is not summed yet counts as if the ranks' parts were at right angles (local clipping of the paper).
        let mut squares = [of(true).powi(2)];
        self.comm.all_reduce(&mut squares, Reduction::Sum)?;
        Ok((summed.powi(2) + squares[0]).sqrt())
    }

    fn update(&mut self, update: &Update) -> Result<(), NnError> {
        self.exchange(update)?;
        // Momentum and decay are in what was sent.
        let sent = Update {
            rule: Rule::Sgd {
                momentum: 0.0,
                nesterov: false,
            },
            weight_decay: 0.0,
            scale: 1.0,
            ..*update
        };
        let mut slots = [Vec::new(), Vec::new()];
        let mut places = [Vec::new(), Vec::new()];
        for (at, parameter) in self.net.summary.parameters.iter().enumerate() {
            let Some(gradient) = self.gradients[at].take() else {
                continue;
            };
            let sparse = usize::from(self.is_sparse(at));
            let states = &mut self.states[at];
            while states.len() < [update, &sent][sparse].rule.states() {
                let len = parameter.len();
                let zeros = place::<Inner<B>, 1>(vec![0.0; len], [len], &self.device);
                states.push(reshape::<Inner<B>>(zeros, &parameter.shape));
            }
            let nothing = place::<Inner<B>, 1>(vec![], [0], &self.device);
            slots[sparse].push(Slot {
                weight: std::mem::replace(&mut self.parameters[at], nothing),
                gradient,
                state: std::mem::take(states),
                decay: parameter.role == Role::Weight,
            });
            places[sparse].push(at);
        }
        for (update, slots) in [update, &sent].into_iter().zip(&mut slots) {
            Inner::<B>::update(update, slots);
        }
        for (at, slot) in places.concat().into_iter().zip(slots.into_iter().flatten()) {
            self.parameters[at] = slot.weight;
            self.states[at] = slot.state;
        }
        Ok(())
    }

    fn begin_epoch(&mut self, epoch: u64, _: &(dyn Fn() -> bool + Sync)) -> Result<(), NnError> {
        if let Some(sparse) = &mut self.sparse {
            sparse.begin_epoch(epoch);
        }
        Ok(())
    }

    fn row_blocks(&self) -> Vec<RowBlock> {
        self.sparse.as_ref().map_or(vec![], Sparsifier::save)
    }

    fn set_row_blocks(&mut self, read: &mut ReadRows<'_>) -> Result<(), NnError> {
        if let Some(sparse) = &mut self.sparse {
            sparse.load(read);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.tapes.clear();
        self.gradients.fill_with(|| None);
    }

    fn evaluate(&mut self, input: Option<Input<'_>>) -> Result<Counts, NnError> {
        let Some(input) = input else {
            return Ok(Counts::default());
        };
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

    fn parameters(&self) -> Result<Vec<NamedArray>, NnError> {
        let all = self.net.summary.parameters.iter().zip(&self.parameters);
        Ok(all
            .map(|(p, x)| publish(p, numbers::<Inner<B>>(x.clone())))
            .collect())
    }

    fn set_parameters(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        let all = collect(&self.net.summary.parameters, saved)?;
        for ((at, parameter), values) in self.net.summary.parameters.iter().enumerate().zip(all) {
            if !self.held[at] {
                continue;
            }
            let x = place::<Inner<B>, 1>(values, [parameter.len()], &self.device);
            self.parameters[at] = reshape::<Inner<B>>(x, &parameter.shape);
        }
        Ok(())
    }

    fn state(&self) -> Result<Vec<NamedArray>, NnError> {
        let mut all = Vec::new();
        for (parameter, states) in self.net.summary.parameters.iter().zip(&self.states) {
            for (k, state) in states.iter().enumerate() {
                all.push(NamedArray {
                    name: optimiser_state(k, &parameter.name),
                    shape: parameter.shape.clone(),
                    values: numbers::<Inner<B>>(state.clone()),
                });
            }
        }
        for (layer, state) in self.carried.iter().enumerate() {
            for (part, x) in state.iter().enumerate() {
                let parts = self
                    .comm
                    .all_gather_ragged(&numbers::<Inner<B>>(x.clone()))?;
                let hidden = dims::<Inner<B>>(x)[1];
                all.push(carried_state(layer, part, hidden, parts.concat()));
            }
        }
        all.extend(self.sparse.as_ref().map(Sparsifier::state));
        Ok(all)
    }

    fn set_state(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        let saved = self.set_optimiser(saved)?;
        if let Some(sparse) = &mut self.sparse {
            sparse.set_state(&saved);
        }
        let mut all = Vec::new();
        while let Some(state) = take_carried(&saved, all.len()) {
            all.push(state.map(|x| {
                let (rows, hidden) = (x.shape[0], x.shape[1]);
                let own = pelton_comm::share(rows, self.comm.rank(), self.comm.size());
                let values = x.values[own.start * hidden..own.end * hidden].to_vec();
                place::<Inner<B>, 2>(values, [own.len(), hidden], &self.device)
            }));
        }
        self.carried = all;
        Ok(())
    }
}

/// The name of the `k`th number that an optimiser keeps beside each of a parameter.
pub(crate) fn optimiser_state(k: usize, parameter: &str) -> String {
    format!("optimiser.{k}.{parameter}")
}

fn carried_name(layer: usize, part: usize) -> String {
    format!("carried.{layer}.{}", ["h", "c"][part])
}

/// A part of the state in which an LSTM layer left all rows.
pub(crate) fn carried_state(
    layer: usize,
    part: usize,
    hidden: usize,
    values: Vec<f32>,
) -> NamedArray {
    NamedArray {
        name: carried_name(layer, part),
        shape: vec![values.len() / hidden, hidden],
        values,
    }
}

/// The saved state of an LSTM layer.
pub(crate) fn take_carried(saved: &[NamedArray], layer: usize) -> Option<[&NamedArray; 2]> {
    let part = |part: usize| {
        let name = carried_name(layer, part);
        saved.iter().find(|a| a.name == name && a.shape.len() == 2)
    };
    Some([part(0)?, part(1)?])
}
