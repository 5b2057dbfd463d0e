//! Layers over ranks: each rank holds a run of layers, and batches go through all ranks in pieces.
//!
//! Every rank brings its part of a batch, as if the data were divided, and all ranks receive all words, which are few.
//! Each part is cut into pieces. The first rank runs its layers on one piece after another and sends the outputs on;
//! the last runs each forward and immediately backward, unlike GPipe (Huang et al., 2019); gradients come back along
//! the same path. With m pieces on r ranks of equal cost, at most m / (m + r − 1) of the ranks' time is used.

use std::ops::Range;

use pelton_comm::{Comm, Reduction, share};
use pelton_kernels::optimizer::gradient_norm;

use crate::data_parallel::{DataParallel, carried_state, optimiser_state, take_carried};
use crate::error::NnError;
use crate::forward::{Pass, Value};
use crate::input::{Carry, Input, Words};
use crate::layer::{Flow, Layer, Role};
use crate::nets::Net;
use crate::operands::Counts;
use crate::operators::{counts, loss_gradient};
use crate::optimiser::Update;
use crate::parameters::{NamedArray, publish};
use crate::segment::{Segment, stages};
use crate::tape::Tape;
use crate::tensor::Tensor;
use crate::trainer::{StepOptions, Trainer};

/// Pieces of each rank's part of a batch.
const PIECES: usize = 2;

/// Messages between ranks: sizes of a tensor, its numbers, gradients of a weight of two ranks.
const SIZES: u16 = 1;
const NUMBERS: u16 = 2;
const TIED: u16 = 3;

pub(crate) struct Pipelined {
    here: DataParallel,
    stages: Vec<Segment>,
    /// Of each LSTM layer here, h and c of all rows.
    carried: Vec<[Vec<f32>; 2]>,
    comm: Comm,
}

/// Some rows of one rank's part of a batch.
struct Piece {
    part: usize,
    /// Counted through the whole batch.
    rows: Range<usize>,
    words: Words,
}

/// Rows of words.
fn rows_of(words: &Words, rows: Range<usize>) -> Words {
    let cells = rows.start * words.steps..rows.end * words.steps;
    Words {
        batch: rows.len(),
        steps: words.steps,
        ids: words.ids[cells.clone()].to_vec(),
        targets: words.targets[cells.clone()].to_vec(),
        segments: if words.segments.is_empty() {
            vec![]
        } else {
            words.segments[cells].to_vec()
        },
        carry: words.carry,
    }
}

/// Words as a message.
fn pack(words: Option<&Words>) -> Vec<i64> {
    let Some(words) = words else { return vec![] };
    let carry = match words.carry {
        Carry::No => 0,
        Carry::Begin => 1,
        Carry::GoOn => 2,
    };
    let mut all = vec![words.batch as i64, words.steps as i64, carry];
    all.extend(&words.ids);
    all.extend(&words.targets);
    all.extend(words.segments.iter().map(|&s| i64::from(s)));
    all
}

/// The reverse of [`pack`].
fn unpack(all: &[i64]) -> Option<Words> {
    let [batch, steps, carry, rest @ ..] = all else {
        return None;
    };
    let (batch, steps) = (*batch as usize, *steps as usize);
    let (ids, rest) = rest.split_at(batch * steps);
    let (targets, segments) = rest.split_at(batch * steps);
    Some(Words {
        batch,
        steps,
        ids: ids.to_vec(),
        targets: targets.to_vec(),
        segments: segments.iter().map(|&s| s as u32).collect(),
        carry: match carry {
            0 => Carry::No,
            1 => Carry::Begin,
            _ => Carry::GoOn,
        },
    })
}

/// A net with its layers divided over the ranks of `comm`, each with its parameters and their optimiser; every
/// batch, a part of it from each rank, goes through all of them in pieces. Begins as [`trainer`](crate::trainer())
/// does.
///
/// Errors: fewer layers than ranks; a net for images, since batch norms would see only pieces.
pub fn pipelined(net: Net, seed: u64, comm: Comm) -> Result<Box<dyn Trainer>, NnError> {
    Ok(Box::new(Pipelined::new(net, seed, comm)?))
}

impl Pipelined {
    fn new(net: Net, seed: u64, comm: Comm) -> Result<Pipelined, NnError> {
        let statistics = net
            .summary
            .parameters
            .iter()
            .any(|p| p.role == Role::Statistic);
        if net.input != Flow::Ids || statistics {
            return Err(NnError::Net(
                "only language models can divide their layers among ranks; divide the data for other nets"
                    .to_string(),
            ));
        }
        let stages = stages(&net, comm.size()).ok_or_else(|| {
            NnError::Net(format!(
                "the net cannot be divided among {} ranks; give fewer",
                comm.size()
            ))
        })?;
        let own = &stages[comm.rank()];
        let held = (0..net.summary.parameters.len())
            .map(|at| own.parameters.contains(&at) || own.tied == Some(at))
            .collect();
        Ok(Pipelined {
            here: DataParallel::holding(net, seed, Comm::alone(), held),
            stages,
            carried: Vec::new(),
            comm,
        })
    }

    fn own(&self) -> &Segment {
        &self.stages[self.comm.rank()]
    }

    fn is_last(&self) -> bool {
        self.comm.rank() + 1 == self.comm.size()
    }

    /// The rank that has a parameter.
    fn owner(&self, parameter: usize) -> usize {
        let mut stages = self.stages.iter();
        let found = stages.position(|s| s.parameters.contains(&parameter));
        found.expect("stages have all parameters")
    }

    /// All pieces of the ranks' parts of a batch, in the same order on all ranks.
    fn pieces(&self, input: Option<Input<'_>>) -> Result<Vec<Piece>, NnError> {
        let words = match input {
            Some(Input::Words(words)) => Some(words),
            Some(Input::Images { .. } | Input::Vectors { .. } | Input::Bags(_)) => {
                return Err(NnError::Net("the net takes words".to_string()));
            }
            None => None,
        };
        let mut pieces = Vec::new();
        let mut before = 0;
        let parts = self.comm.all_gather_ragged(&pack(words))?;
        for (part, all) in parts.iter().enumerate() {
            let Some(words) = unpack(all) else { continue };
            for piece in 0..PIECES {
                let rows = share(words.batch, piece, PIECES);
                if !rows.is_empty() {
                    pieces.push(Piece {
                        part,
                        words: rows_of(&words, rows.clone()),
                        rows: before + rows.start..before + rows.end,
                    });
                }
            }
            before += words.batch;
        }
        Ok(pieces)
    }

    fn send(&self, to: usize, x: &Tensor) -> Result<(), NnError> {
        let sizes: Vec<u64> = x.shape().iter().map(|&n| n as u64).collect();
        self.comm.send(to, SIZES, &sizes)?;
        Ok(self.comm.send(to, NUMBERS, x)?)
    }

    fn receive(&self, from: usize) -> Result<Tensor, NnError> {
        let sizes = self.comm.receive_vec::<u64>(from, SIZES)?;
        let values = self.comm.receive_vec::<f32>(from, NUMBERS)?;
        let sizes: Vec<usize> = sizes.iter().map(|&n| n as usize).collect();
        Ok(Tensor::from_slice(&values, &sizes))
    }

    /// The initial state of the LSTM layers here for a piece; empty if it is zeros.
    fn begin(&self, piece: &Piece) -> Vec<[Tensor; 2]> {
        if piece.words.carry != Carry::GoOn {
            return vec![];
        }
        let total = self.carried.iter().map(|state| state[0].len());
        let layers = self.hidden().into_iter().zip(total).enumerate();
        layers
            .filter(|(_, (hidden, total))| piece.rows.end * hidden <= *total)
            .map(|(layer, (hidden, _))| {
                let cells = piece.rows.start * hidden..piece.rows.end * hidden;
                [0, 1].map(|part| {
                    let values = &self.carried[layer][part][cells.clone()];
                    Tensor::from_slice(values, &[piece.rows.len(), hidden])
                })
            })
            .collect()
    }

    /// Widths of the LSTM layers here.
    fn hidden(&self) -> Vec<usize> {
        let layers = &self.here.net.layers[self.own().layers.clone()];
        let hidden = layers.iter().filter_map(|layer| match layer {
            Layer::Lstm { hidden, .. } => Some(*hidden),
            _ => None,
        });
        hidden.collect()
    }

    /// Keeps the state of the LSTM layers after a piece; pieces come in the order of their rows.
    fn keep(&self, piece: &Piece, states: Vec<[Tensor; 2]>, kept: &mut Vec<[Vec<f32>; 2]>) {
        if piece.words.carry == Carry::No {
            return;
        }
        kept.resize(states.len(), [vec![], vec![]]);
        for (kept, state) in kept.iter_mut().zip(states) {
            for (kept, x) in kept.iter_mut().zip(state) {
                kept.extend_from_slice(&x);
            }
        }
    }

    /// Runs the layers here on a piece and returns the output, its index on the tape, and the targets.
    fn forward(
        &self,
        tape: &mut Tape,
        piece: &Piece,
        key: Option<u64>,
        kept: &mut Vec<[Vec<f32>; 2]>,
    ) -> Result<(Tensor, Option<usize>, Vec<i64>), NnError> {
        let value = match self.comm.rank() {
            0 => Value::Words,
            rank => Value::Numbers(self.here.beginning(tape, self.receive(rank - 1)?)),
        };
        let (sequences, targets) = self.here.sequences(&piece.words)?;
        let mut states = self.begin(piece);
        let own = self.own();
        let mut pass = Pass {
            tape,
            // These nets have no statistics, which a pass would change.
            parameters: &mut self.here.parameters.clone(),
            summary: &self.here.net.summary,
            next: own.parameters.start,
            states: &mut states,
            next_state: 0,
            sequences: &sequences,
            training: key.is_some(),
            key: pelton_key::mix(
                key.unwrap_or(0) ^ (own.layers.start | piece.rows.start << 32) as u64,
            ),
        };
        let end = pass
            .run(&self.here.net.layers[own.layers.clone()], value)
            .numbers();
        self.keep(piece, states, kept);
        Ok((end.value, end.node, targets))
    }

    /// The last rank's counts for this rank's part.
    fn own_counts(&self, counted: &[Counts]) -> Result<Counts, NnError> {
        let all = counted.iter();
        let mut all: Vec<f64> = all
            .flat_map(|c| [c.loss, c.rows as f64, c.correct as f64])
            .collect();
        self.comm.broadcast(&mut all, self.comm.size() - 1)?;
        let own = &all[3 * self.comm.rank()..];
        Ok(Counts {
            loss: own[0],
            rows: own[1] as u64,
            correct: own[2] as u64,
        })
    }

    /// Sums the gradients of weights that two ranks use.
    fn sum_tied(&mut self) -> Result<(), NnError> {
        let tied: Vec<(usize, usize)> = (self.stages.iter().enumerate())
            .filter_map(|(rank, stage)| Some((rank, stage.tied?)))
            .collect();
        for (user, at) in tied {
            let owner = self.owner(at);
            let rank = self.comm.rank();
            if ![user, owner].contains(&rank) {
                continue;
            }
            let other = user + owner - rank;
            let parameter = &self.here.net.summary.parameters[at];
            let mut sum = match &self.here.gradients[at] {
                Some(gradient) => gradient.to_vec(),
                None => vec![0.0; parameter.len()],
            };
            self.comm.send(other, TIED, &sum)?;
            let theirs = self.comm.receive_vec::<f32>(other, TIED)?;
            for (sum, x) in sum.iter_mut().zip(theirs) {
                *sum += x;
            }
            self.here.gradients[at] = Some(Tensor::from_slice(&sum, &parameter.shape));
        }
        Ok(())
    }

    /// Runs the layers here backward and sends the gradient of their input to the rank before.
    fn backward(
        &mut self,
        tape: Tape,
        end: Option<usize>,
        gradient: Tensor,
    ) -> Result<(), NnError> {
        let beginning = self.here.take_gradients(tape, end, gradient, None);
        match self.comm.rank() {
            0 => Ok(()),
            rank => self.send(rank - 1, &beginning.expect("a stage uses what it is given")),
        }
    }

    /// The gradients of one part of a step.
    fn part(
        &mut self,
        input: Option<Input<'_>>,
        options: &StepOptions<'_>,
        key: u64,
    ) -> Result<Counts, NnError> {
        let pieces = self.pieces(input)?;
        let rank = self.comm.rank();
        let mut counts = vec![Counts::default(); self.comm.size()];
        let mut kept = Vec::new();
        let mut ends = Vec::new();
        for piece in &pieces {
            // A tape is used up by going back along it, so each piece has its own.
            let mut tape = self.here.tape();
            let (value, end, targets) = self.forward(&mut tape, piece, Some(key), &mut kept)?;
            if !self.is_last() {
                self.send(rank + 1, &value)?;
                ends.push((tape, end));
                continue;
            }
            let (gradient, counted) = loss_gradient(value, &targets, options.loss);
            counts[piece.part] += counted;
            self.backward(tape, end, gradient)?;
        }
        for (tape, end) in ends {
            let gradient = self.receive(rank + 1)?;
            self.backward(tape, end, gradient)?;
        }
        if pieces.iter().any(|piece| piece.words.carry != Carry::No) {
            self.carried = kept;
        }
        self.own_counts(&counts)
    }
}

impl Trainer for Pipelined {
    fn net(&self) -> &Net {
        &self.here.net
    }

    fn gradients(
        &mut self,
        parts: &[Option<Input<'_>>],
        options: &StepOptions<'_>,
    ) -> Result<Counts, NnError> {
        let mut counts = Counts::default();
        for (part, input) in parts.iter().enumerate() {
            counts += self.part(*input, options, options.key_of(part))?;
        }
        self.sum_tied()?;
        Ok(counts)
    }
    fn gradient_norm(&mut self) -> Result<f64, NnError> {
        let own = &self.here.gradients[self.own().parameters.clone()];
        let own: Vec<&[f32]> = own.iter().flatten().map(|gradient| &gradient[..]).collect();
        let mut squares = [gradient_norm(&own, 1.0).powi(2)];
        self.comm.all_reduce(&mut squares, Reduction::Sum)?;
        Ok(squares[0].sqrt())
    }

    fn update(&mut self, update: &Update) -> Result<(), NnError> {
        self.here.update(update)
    }

    fn forget(&mut self) {
        self.here.forget();
    }

    fn evaluate(&mut self, input: Option<Input<'_>>) -> Result<Counts, NnError> {
        let pieces = self.pieces(input)?;
        let rank = self.comm.rank();
        let mut all = vec![Counts::default(); self.comm.size()];
        let mut kept = Vec::new();
        for piece in &pieces {
            let (end, _, targets) = self.forward(&mut Tape::off(), piece, None, &mut kept)?;
            if self.is_last() {
                all[piece.part] += counts(&end, &targets);
            } else {
                self.send(rank + 1, &end)?;
            }
        }
        if pieces.iter().any(|piece| piece.words.carry != Carry::No) {
            self.carried = kept;
        }
        self.own_counts(&all)
    }

    fn logits(&mut self, _: Input<'_>) -> Result<Vec<f32>, NnError> {
        Err(NnError::Net(
            "a net with layers on several ranks cannot return logits; load it on one rank"
                .to_string(),
        ))
    }

    fn parameters(&self) -> Result<Vec<NamedArray>, NnError> {
        let mut all = Vec::new();
        for (at, parameter) in self.here.net.summary.parameters.iter().enumerate() {
            let owner = self.owner(at);
            let mut values = if self.comm.rank() == owner {
                self.here.parameters[at].to_vec()
            } else {
                vec![0.0; parameter.len()]
            };
            self.comm.broadcast(&mut values, owner)?;
            all.push(publish(parameter, values));
        }
        Ok(all)
    }

    fn set_parameters(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        self.here.set_parameters(saved)
    }

    fn state(&self) -> Result<Vec<NamedArray>, NnError> {
        let mut all = Vec::new();
        for (at, parameter) in self.here.net.summary.parameters.iter().enumerate() {
            let owner = self.owner(at);
            let states = &self.here.states[at];
            let mut count = [states.len() as u64];
            self.comm.broadcast(&mut count, owner)?;
            for k in 0..count[0] as usize {
                let mut values = match states.get(k) {
                    Some(state) => state.to_vec(),
                    None => vec![0.0; parameter.len()],
                };
                self.comm.broadcast(&mut values, owner)?;
                all.push(NamedArray {
                    name: optimiser_state(k, &parameter.name),
                    shape: parameter.shape.clone(),
                    values,
                });
            }
        }
        let hidden = self.hidden();
        for (rank, stage) in self.stages.iter().enumerate() {
            for (at, layer) in stage.lstms.clone().enumerate() {
                for part in 0..2 {
                    let own = rank == self.comm.rank();
                    let state = self.carried.get(at).filter(|_| own);
                    let values = state.map_or(&[][..], |state| &state[part]);
                    let width = [hidden.get(at).filter(|_| own).map_or(0, |&n| n as u64)];
                    let width = self.comm.all_gather_ragged(&width)?[rank][0] as usize;
                    let values = self.comm.all_gather_ragged(values)?.swap_remove(rank);
                    if !values.is_empty() {
                        all.push(carried_state(layer, part, width, values));
                    }
                }
            }
        }
        Ok(all)
    }

    fn set_state(&mut self, saved: Vec<NamedArray>) -> Result<(), NnError> {
        let saved = self.here.set_optimiser(saved)?;
        let layers = self.own().lstms.clone();
        let found = layers.map_while(|layer| take_carried(&saved, layer));
        self.carried = found.map(|state| state.map(|x| x.values.clone())).collect();
        Ok(())
    }
}
