//! A net, its parameters and the state of its optimiser on every rank. Ranks divide each batch.

use std::collections::VecDeque;

use pelton_comm::{Comm, Pending, Reduction};
use pelton_kernels::optimizer::{Lars, gradient_norm};
use pelton_softmax::{ReadRows, RowBlock};

use crate::error::NnError;
use crate::forward::{Pass, Sequences, Value};
use crate::input::{Carry, Input, Words, arrange, images};
use crate::layer::{Flow, Layer, Role};
use crate::nets::Net;
use crate::operands::{Counts, LossOptions};
use crate::operators::{counts, loss_gradient};
use crate::optimiser::{Rule, Slot, Update};
use crate::parameters::{NamedArray, begin, collect, publish};
use crate::segment::{Segment, segments};
use crate::sparse::{Correction, Sparsifier};
use crate::tape::{Tape, Taped, accumulate};
use crate::tensor::Tensor;
use crate::trainer::{StepOptions, Trainer};

/// Segments of a net on several ranks: the gradients of one are summed over the ranks while those of the one before it
/// are made.
const SEGMENTS: usize = 4;

/// The state of a forward pass for the backward pass: the tape of each segment, and the index of its output.
pub(crate) type Segments = Vec<(Tape, Option<usize>)>;

/// A forward pass.
pub(crate) struct Passed {
    /// The output of the net.
    pub(crate) end: Tensor,
    targets: Vec<i64>,
    /// Of a loss that was taken with the last layer, whose gradients are known then.
    counts: Option<Counts>,
    pub(crate) segments: Segments,
}

/// Outputs of a last layer from which on its logits are not held all at once.
const WIDE: usize = 1024;

pub(crate) struct DataParallel {
    pub(crate) net: Net,
    /// Parts of the layers, each with its parameters.
    segments: Vec<Segment>,
    /// Which parameters there are; the others are empty.
    held: Vec<bool>,
    pub(crate) parameters: Vec<Tensor>,
    pub(crate) gradients: Vec<Option<Tensor>>,
    /// Of each parameter.
    pub(crate) states: Vec<Vec<Tensor>>,
    carried: Vec<[Tensor; 2]>,
    /// Of forward passes before their backward pass.
    pub(crate) pending: VecDeque<Segments>,
    rank: usize,
    comm: Comm,
    /// With sparse gradients, in [`update`](Trainer::update); otherwise as soon as gradients are computed.
    sparse: Option<Sparsifier>,
}

/// A net that trains on the CPU; all ranks of `comm` start from the same parameters, and each takes a part of every
/// batch.
pub fn trainer(net: Net, seed: u64, comm: Comm) -> Box<dyn Trainer> {
    Box::new(DataParallel::new(net, seed, comm))
}

impl DataParallel {
    pub(crate) fn new(net: Net, seed: u64, comm: Comm) -> DataParallel {
        let held = vec![true; net.summary.parameters.len()];
        DataParallel::holding(net, seed, comm, held)
    }

    pub(crate) fn holding(net: Net, seed: u64, comm: Comm, held: Vec<bool>) -> DataParallel {
        let parameters: Vec<_> = net
            .summary
            .parameters
            .iter()
            .zip(&held)
            .map(|(p, &held)| {
                if held {
                    Tensor::from_slice(&begin(p, seed), &p.shape)
                } else {
                    Tensor::empty()
                }
            })
            .collect();
        let most = if comm.size() > 1 { SEGMENTS } else { 1 };
        DataParallel {
            segments: segments(&net, most),
            gradients: parameters.iter().map(|_| None).collect(),
            states: parameters.iter().map(|_| Vec::new()).collect(),
            carried: Vec::new(),
            held,
            parameters,
            net,
            pending: VecDeque::new(),
            rank: comm.rank(),
            comm,
            sparse: None,
        }
    }

    /// Sends only this part of the gradients of large parameters.
    pub(crate) fn with_density(mut self, density: f64) -> DataParallel {
        let parameters = self.net.summary.parameters.iter();
        self.sparse = (density < 1.0).then(|| Sparsifier::new(parameters, density, &self.comm));
        self
    }

    fn is_sparse(&self, parameter: usize) -> bool {
        self.sparse
            .as_ref()
            .is_some_and(|sparse| sparse.takes(parameter))
    }

    /// Replaces sparse gradients by the sum of the parts that all ranks sent. With LARS each rank multiplies its
    /// gradients by λ before they accumulate; the norm of the ranks' sum is taken as if their parts were orthogonal, as
    /// in [`gradient_norm`](Trainer::gradient_norm).
    fn exchange(&mut self, update: &Update) -> Result<(), NnError> {
        let Some(sparse) = &mut self.sparse else {
            return Ok(());
        };
        let (how, lars) = match update.rule {
            Rule::Sgd { momentum, nesterov } => (Correction { momentum, nesterov }, None),
            Rule::Lars { momentum, trust } => {
                let lars = Lars {
                    lr: update.rate,
                    momentum,
                    weight_decay: update.weight_decay,
                    trust,
                };
                let nesterov = false;
                (Correction { momentum, nesterov }, Some(lars))
            }
            Rule::AdamW { .. } => {
                return Err(NnError::Net(
                    "sparse gradients need the optimizer sgd or lars; choose one of them, or a density of 1"
                        .to_string(),
                ));
            }
        };
        let decay = update.weight_decay / self.comm.size() as f32;
        let taken = sparse.taken();
        let mut gradients = Vec::new();
        for &at in &taken {
            let parameter = &self.net.summary.parameters[at];
            gradients.push(match self.gradients[at].take() {
                Some(gradient) => gradient.to_vec(),
                None => vec![0.0; parameter.len()],
            });
        }
        let mut factors = vec![1.0; taken.len()];
        if let Some(lars) = lars {
            let square = |x: &[f32]| gradient_norm(&[x], 1.0).powi(2);
            let mut squares: Vec<f64> = gradients.iter().map(|g| square(g)).collect();
            self.comm.all_reduce(&mut squares, Reduction::Sum)?;
            for ((factor, &at), of_ranks) in factors.iter_mut().zip(&taken).zip(squares) {
                let weights = square(&self.parameters[at]).sqrt();
                *factor = lars.local_rate(weights, of_ranks.sqrt() * f64::from(update.scale));
            }
        }
        for ((gradient, &at), factor) in gradients.iter_mut().zip(&taken).zip(factors) {
            for (g, w) in gradient.iter_mut().zip(&self.parameters[at][..]) {
                *g = factor * (*g * update.scale + decay * w);
            }
        }
        let steps = sparse.exchange(gradients, how, &self.comm)?;
        for (at, step) in taken.into_iter().zip(steps) {
            let shape = &self.net.summary.parameters[at].shape;
            self.gradients[at] = Some(Tensor::from_slice(&step, shape));
        }
        Ok(())
    }

    /// A batch as layers take it, and the targets in the order of the logits.
    fn prepare(&self, input: Input<'_>) -> Result<(Value, Sequences, Vec<i64>), NnError> {
        match (input, self.net.input) {
            (Input::Images { pixels, labels }, Flow::Image(height, width, channels)) => {
                let sizes = &pixels.shape().dims;
                if sizes[1..] != [height, width, channels] {
                    return Err(NnError::Net(format!(
                        "the net takes images of {height}×{width}×{channels}, these are {sizes:?}"
                    )));
                }
                let x = Value::Numbers(images(pixels)?.into());
                Ok((x, Sequences::default(), labels.to_vec()))
            }
            (Input::Vectors { values, labels }, Flow::Row(width)) => {
                let sizes = &values.shape().dims;
                if sizes[1..] != [width] {
                    return Err(NnError::Net(format!(
                        "the net takes {width} features, these are {sizes:?}"
                    )));
                }
                let x = Value::Numbers(images(values)?.into());
                Ok((x, Sequences::default(), labels.to_vec()))
            }
            (Input::Bags(bags), Flow::Bag(width)) => {
                if let Some(id) = bags.ids.iter().find(|&&id| id as usize >= width) {
                    return Err(NnError::Net(format!(
                        "the net takes {width} features, and a row has feature {id}, counted from 0"
                    )));
                }
                let sequences = Sequences {
                    bags: bags.clone(),
                    ..Sequences::default()
                };
                Ok((Value::Words, sequences, bags.labels.clone()))
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
                    remedy: "resume with the same net, or start again",
                });
            }
            let found = found.into_iter().filter(|_| self.held[at]);
            self.states[at] = found
                .map(|a| Tensor::from_slice(&a.values, &a.shape))
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

    /// A tape with the parameters and, last, the input of a segment as leaves.
    pub(crate) fn tape(&self) -> Tape {
        Tape::new(self.parameters.len() + 1, self.net.precision)
    }

    /// The input of a segment, on its [`tape`](DataParallel::tape).
    pub(crate) fn beginning(&self, tape: &Tape, value: Tensor) -> Taped {
        tape.leaf(self.parameters.len(), value)
    }

    /// Runs a [`tape`](DataParallel::tape) backward, advances the sums over `comm`, and accumulates the gradients of the
    /// parameters. Returns that of the segment's input.
    pub(crate) fn take_gradients(
        &mut self,
        tape: Tape,
        end: Option<usize>,
        gradient: Tensor,
        comm: Option<&Comm>,
    ) -> Option<Tensor> {
        // A sum has several rounds of messages; the next one begins when somebody looks.
        let advance = || comm.into_iter().for_each(Comm::advance);
        let mut gradients = tape.backward(end, gradient, &advance);
        let beginning = gradients.pop().flatten();
        for (sum, gradient) in self.gradients.iter_mut().zip(gradients) {
            if let Some(gradient) = gradient {
                accumulate(sum, gradient);
            }
        }
        beginning
    }

    /// The gradients of a segment after one another, and the running statistics as a part of their mean over the ranks:
    /// all ranks hold the same parameters after a step.
    fn flat(&self, segment: &Segment, ranks: usize) -> Vec<f32> {
        let mut all = Vec::new();
        for at in segment.parameters.clone().filter(|&at| !self.is_sparse(at)) {
            let parameter = &self.net.summary.parameters[at];
            match (parameter.role, &self.gradients[at]) {
                (Role::Statistic, _) => {
                    all.extend(self.parameters[at].iter().map(|x| x / ranks as f32));
                }
                (_, Some(gradient)) => all.extend_from_slice(gradient),
                (_, None) => all.resize(all.len() + parameter.len(), 0.0),
            }
        }
        all
    }

    /// Takes the summed form of [`flat`](DataParallel::flat).
    fn unflatten(&mut self, segment: &Segment, all: &[f32]) {
        let mut rest = all;
        for at in segment.parameters.clone() {
            if self.is_sparse(at) {
                continue;
            }
            let parameter = &self.net.summary.parameters[at];
            let (values, after) = rest.split_at(parameter.len());
            rest = after;
            let x = Tensor::from_slice(values, &parameter.shape);
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

    /// Forward along new tapes, segment by segment; with a `loss` to that, if the last layer makes many numbers of each row.
    pub(crate) fn go_forward(
        &mut self,
        input: Input<'_>,
        key: u64,
        loss: Option<LossOptions<'_>>,
    ) -> Result<Passed, NnError> {
        let last = self.net.layers.last();
        let is_wide = matches!(last, Some(Layer::Linear { out, .. }) if *out >= WIDE);
        let loss = loss.filter(|_| is_wide);
        let mut counts = None;
        let (mut value, sequences, targets) = self.prepare(input)?;
        let (carried, mut states) = self.begin(input);
        let mut segments = Segments::new();
        for at in 0..self.segments.len() {
            let mut tape = self.tape();
            if let (Value::Numbers(x), false) = (&mut value, segments.is_empty()) {
                *x = self.beginning(&tape, x.value.clone());
            }
            let segment = &self.segments[at];
            let mut pass = Pass {
                tape: &mut tape,
                parameters: &mut self.parameters,
                summary: &self.net.summary,
                next: segment.parameters.start,
                states: &mut states,
                next_state: segment.lstms.start,
                sequences: &sequences,
                training: true,
                key: pelton_key::mix(key ^ (segment.layers.start | self.rank << 32) as u64),
            };
            let layers = &self.net.layers[segment.layers.clone()];
            let end = match loss {
                Some(options) if segment.layers.end == self.net.layers.len() => {
                    let (end, counted) = pass.run_to_loss(layers, value, &targets, options);
                    counts = Some(counted);
                    end
                }
                _ => pass.run(layers, value).numbers(),
            };
            segments.push((tape, end.node));
            value = Value::Numbers(end);
        }
        if carried {
            self.carried = states;
        }
        Ok(Passed {
            end: value.numbers().value,
            targets,
            counts,
            segments,
        })
    }

    /// Backward from the gradient of a pass's output: the last segment first. With `sums` the accumulated gradients,
    /// these included, are summed over the ranks.
    pub(crate) fn go_backward(
        &mut self,
        segments: Segments,
        gradient: Tensor,
        sums: Option<&Comm>,
    ) -> Result<(), NnError> {
        let mut pending: Vec<(usize, Pending<'_, f32>)> = Vec::new();
        let mut gradient = Some(gradient);
        for (at, (tape, end)) in segments.into_iter().enumerate().rev() {
            let upstream = gradient.take();
            let upstream = upstream.expect("what a segment begins with has a gradient");
            gradient = self.take_gradients(tape, end, upstream, sums);
            if let Some(comm) = sums.filter(|comm| comm.size() > 1) {
                let flat = self.flat(&self.segments[at], comm.size());
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
        options: &StepOptions<'_>,
    ) -> Result<Counts, NnError> {
        let mut counts = Counts::default();
        for (part, input) in parts.iter().enumerate() {
            let sums = (part + 1 == parts.len()).then_some(comm);
            let Some(input) = input else {
                self.take_part(sums)?;
                continue;
            };
            let passed = self.go_forward(*input, options.key_of(part), Some(options.loss))?;
            let (gradient, counted) = match passed.counts {
                Some(counted) => (passed.end, counted),
                None => loss_gradient(passed.end, &passed.targets, options.loss),
            };
            counts += counted;
            self.go_backward(passed.segments, gradient, sums)?;
        }
        Ok(counts)
    }

    /// Works with the ranks while the net changes.
    pub(crate) fn with_comm<R>(&mut self, work: impl FnOnce(&mut DataParallel, &Comm) -> R) -> R {
        let comm = std::mem::replace(&mut self.comm, Comm::alone());
        let result = work(self, &comm);
        self.comm = comm;
        result
    }

    /// Whether the state of LSTM layers is kept after a batch, and their initial state.
    fn begin(&mut self, input: Input<'_>) -> (bool, Vec<[Tensor; 2]>) {
        match input {
            Input::Words(words) if words.carry == Carry::GoOn => {
                (true, std::mem::take(&mut self.carried))
            }
            Input::Words(words) => (words.carry == Carry::Begin, vec![]),
            Input::Images { .. } | Input::Vectors { .. } | Input::Bags(_) => (false, vec![]),
        }
    }

    /// Runs the net without a tape.
    fn infer(&mut self, input: Input<'_>) -> Result<(Tensor, Vec<i64>), NnError> {
        let (value, sequences, targets) = self.prepare(input)?;
        let (carried, mut states) = self.begin(input);
        let mut pass = Pass {
            tape: &mut Tape::off(),
            parameters: &mut self.parameters,
            summary: &self.net.summary,
            next: 0,
            states: &mut states,
            next_state: 0,
            sequences: &sequences,
            training: false,
            key: 0,
        };
        let logits = pass.run(&self.net.layers, value).numbers().value;
        if carried {
            self.carried = states;
        }
        Ok((logits, targets))
    }
}

impl Trainer for DataParallel {
    fn net(&self) -> &Net {
        &self.net
    }

    fn gradients(
        &mut self,
        parts: &[Option<Input<'_>>],
        options: &StepOptions<'_>,
    ) -> Result<Counts, NnError> {
        self.with_comm(|net, comm| net.gradients_with(comm, parts, options))
    }

    fn gradient_norm(&mut self) -> Result<f64, NnError> {
        let of = |sparse: bool| -> f64 {
            let which = (0..self.gradients.len()).filter(|&at| self.is_sparse(at) == sparse);
            let all: Vec<&[f32]> = which
                .filter_map(|at| self.gradients[at].as_deref())
                .collect();
            gradient_norm(&all, 1.0)
        };
        let summed = of(false);
        if self.sparse.is_none() {
            return Ok(summed);
        }
        // Gradients not summed yet count as if the ranks' parts were orthogonal (local clipping of the paper).
        let mut squares = [of(true).powi(2)];
        self.comm.all_reduce(&mut squares, Reduction::Sum)?;
        Ok((summed.powi(2) + squares[0]).sqrt())
    }

    fn update(&mut self, update: &Update) -> Result<(), NnError> {
        self.exchange(update)?;
        // The sent values include momentum and decay.
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
        let parameters = self.net.summary.parameters.iter().enumerate();
        let of_net = self.parameters.iter_mut().zip(&mut self.gradients);
        for ((at, parameter), ((weight, gradient), state)) in
            parameters.zip(of_net.zip(&mut self.states))
        {
            let Some(gradient) = gradient.take() else {
                continue;
            };
            let is_sparse = self.sparse.as_ref().is_some_and(|sparse| sparse.takes(at));
            let of = usize::from(is_sparse);
            while state.len() < [update, &sent][of].rule.states() {
                state.push(Tensor::zeros(&parameter.shape));
            }
            slots[of].push(Slot {
                weight,
                gradient,
                state,
                decay: parameter.role == Role::Weight,
            });
        }
        for (update, slots) in [update, &sent].into_iter().zip(slots) {
            update.step(slots);
        }
        Ok(())
    }

    fn begin_epoch(&mut self, epoch: u64, _: &(dyn Fn() -> bool + Sync)) -> Result<(), NnError> {
        if let Some(sparse) = &mut self.sparse {
            sparse.begin_epoch(epoch);
        }
        Ok(())
    }

    fn row_blocks(&self, state: bool) -> Vec<RowBlock<'_>> {
        let sparse = self.sparse.as_ref().filter(|_| state);
        sparse.map_or(vec![], Sparsifier::save)
    }

    fn set_row_blocks(&mut self, read: &mut ReadRows<'_>) -> Result<(), NnError> {
        if let Some(sparse) = &mut self.sparse {
            sparse.load(read);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.pending.clear();
        self.gradients.fill_with(|| None);
    }

    fn evaluate(&mut self, input: Option<Input<'_>>) -> Result<Counts, NnError> {
        let Some(input) = input else {
            return Ok(Counts::default());
        };
        let (logits, targets) = self.infer(input)?;
        Ok(counts(&logits, &targets))
    }

    fn logits(&mut self, input: Input<'_>) -> Result<Vec<f32>, NnError> {
        Ok(self.infer(input)?.0.to_vec())
    }

    fn parameters(&self) -> Result<Vec<NamedArray>, NnError> {
        let all = self.net.summary.parameters.iter().zip(&self.parameters);
        Ok(all.map(|(p, x)| publish(p, x.to_vec())).collect())
    }

    fn set_parameters(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        let all = collect(&self.net.summary.parameters, saved)?;
        for ((at, parameter), values) in self.net.summary.parameters.iter().enumerate().zip(all) {
            if !self.held[at] {
                continue;
            }
            self.parameters[at] = Tensor::from_slice(&values, &parameter.shape);
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
                    values: state.to_vec(),
                });
            }
        }
        for (layer, state) in self.carried.iter().enumerate() {
            for (part, x) in state.iter().enumerate() {
                let parts = self.comm.all_gather_ragged(x)?;
                all.push(carried_state(layer, part, x.width(), parts.concat()));
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
                let values = &x.values[own.start * hidden..own.end * hidden];
                Tensor::from_slice(values, &[own.len(), hidden])
            }));
        }
        self.carried = all;
        Ok(())
    }
}

/// The name of an optimiser's `k`th state tensor of a parameter.
pub(crate) fn optimiser_state(k: usize, parameter: &str) -> String {
    format!("optimiser.{k}.{parameter}")
}

fn carried_name(layer: usize, part: usize) -> String {
    format!("carried.{layer}.{}", ["h", "c"][part])
}

/// A part of the last state of an LSTM layer, of all rows.
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
