//! A head that is one softmax over chosen classes: all, neighbours, drawn ones, or those of a hashing forest.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use pelton_comm::{Comm, Reduction, share};
use pelton_key::{KeyedRng, mix};

use crate::best::{Best, best_of_all};
use crate::centre::Centre;
use crate::class_head::{ClassHead, HeadKind, HeadOptions, Observed, ReadRows, RowBlock};
use crate::draws::Draws;
use crate::error::HeadError;
use crate::forest::Forest;
use crate::graph::{Graph, Selection};
use crate::head::{Active, Head, Measured, Scored, Sums};
use crate::index::unit;
use crate::labels::Labels;
use crate::means::Means;
use crate::near::{LISTED, Lists, TOP, draw};
use crate::neighbours::Neighbours;
use crate::rows::{ClassRows, Update, Wait};

/// Examples that are evaluated at once.
pub(crate) const EVALUATED: usize = 1024;

pub(crate) struct ChosenHead {
    head: Head,
    options: HeadOptions,
    choice: Choice,
    /// Whether the weights still have their random initial values, so that neighbours mean nothing.
    is_random: bool,
    selection: Selection,
    draws: Draws,
    /// Present if features are centred.
    centre: Option<Centre>,
    /// Examples that were looked at before training: how many for their mean, and those for the means of their classes.
    observed: (u64, Option<Means>),
    /// Rows that take part in this step, and how many classes each stands for; `None` if all do.
    active: Option<(Vec<u32>, Vec<f32>)>,
    /// How many those are, of all ranks.
    taking_part: u64,
    key: u64,
    /// Nearest classes that lists did and did not find when they were made again.
    found: [u64; 2],
    /// The micro-batches that were scored since the last update.
    scored: Vec<Scored>,
    comm: Comm,
    graph_s: f64,
    waited_s: f64,
}

enum Choice {
    All,
    Graph {
        k: usize,
        graph: Option<(Neighbours, Graph)>,
    },
    /// By features, when they are scored.
    Lists(Option<Lists>),
    Drawn,
    Leaves {
        trees: usize,
        forest: Option<Forest>,
    },
}

/// The initial weights of classes, on any rank: normal, of mean length 1.
fn beginning(seed: u64, classes: std::ops::Range<u64>, d: usize) -> Vec<f32> {
    let mut weights = Vec::with_capacity((classes.end - classes.start) as usize * d);
    let deviation = 1.0 / (d as f64).sqrt();
    for class in classes {
        let mut rng = KeyedRng::new(mix(mix(seed ^ 0x636c_6173) ^ class));
        // Box and Muller's.
        weights.extend((0..d).map(|_| {
            let (u, v) = (1.0 - rng.next_f64(), rng.next_f64());
            let normal = (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos();
            (deviation * normal) as f32
        }));
    }
    weights
}

fn new_head(rows: ClassRows, options: &HeadOptions) -> Head {
    let HeadOptions {
        logits,
        precision,
        classes,
        scratch_bytes,
        ..
    } = *options;
    Head::new(rows, logits, precision, classes, scratch_bytes)
}

impl ChosenHead {
    pub(crate) fn new(options: &HeadOptions, comm: Comm) -> ChosenHead {
        let own = share(options.classes as usize, comm.rank(), comm.size());
        let own = own.start as u64..own.end as u64;
        let weights = beginning(options.seed, own.clone(), options.d);
        let rows = ClassRows::new(own.start, options.d, weights);
        ChosenHead {
            head: new_head(rows, options),
            options: *options,
            choice: match options.kind {
                HeadKind::Full | HeadKind::Mach { .. } => Choice::All,
                HeadKind::Knn { neighbours, .. } => Choice::Graph {
                    k: neighbours.min(options.classes as usize),
                    graph: None,
                },
                HeadKind::Near { .. } => Choice::Lists(None),
                HeadKind::Sampled { .. } => Choice::Drawn,
                HeadKind::Selective { trees, .. } => Choice::Leaves {
                    trees,
                    forest: None,
                },
            },
            is_random: true,
            selection: Selection::default(),
            draws: Draws::new(options.seed),
            centre: options.centre.then(|| Centre::new(options.d)),
            observed: (0, None),
            active: None,
            taking_part: 0,
            key: 0,
            found: [0; 2],
            scored: Vec::new(),
            comm,
            graph_s: 0.0,
            waited_s: 0.0,
        }
    }

    fn reduced(
        &mut self,
        mut scored: Scored,
        weight: f32,
        factors: Option<&[f32]>,
    ) -> Result<(Sums, Scored), HeadError> {
        let began = Instant::now();
        // Between ranks this is waiting time: the sums are small.
        let sums = self.head.reduce(&mut scored, weight, factors, &self.comm)?;
        if self.comm.size() > 1 {
            self.waited_s += began.elapsed().as_secs_f64();
        }
        Ok((sums, scored))
    }

    /// Takes other weights.
    fn replace(&mut self, rows: ClassRows) {
        self.head = new_head(rows, &self.options);
        self.is_random = false;
        self.active = None;
        self.scored.clear();
    }

    /// Chooses the classes of a batch by its features.
    fn choose_nearest(&mut self, features: &[f32], labels: &[u64]) -> Result<(), HeadError> {
        let (classes, d) = (self.options.classes, self.options.d);
        let Choice::Lists(lists) = &mut self.choice else {
            return Ok(());
        };
        let share = self.options.kind.share();
        let unit = unit(features, d, self.options.logits);
        let is_old = lists.as_ref().is_none_or(|lists| lists.are_old(share));
        if is_old {
            let began = Instant::now();
            *lists = Some(if classes < LISTED {
                Lists::single(d, self.head.rows().len())
            } else {
                let nearest = best_in(&self.head, features, TOP, &self.comm)?;
                if let Some(lists) = lists {
                    let (found, all) = lists.recall(&self.head, &unit, &nearest, &self.comm)?;
                    self.found[0] += found;
                    self.found[1] += all - found;
                }
                let key = mix(self.options.seed ^ self.key);
                Lists::learn(&self.head, classes, key, &unit, &nearest, &self.comm)?
            });
            self.graph_s += began.elapsed().as_secs_f64();
        }
        let lists = lists.as_mut().expect("made above");
        let shares = lists.shares(&self.head, classes, &unit, &self.comm)?;
        let all = self.options.kind.budget(classes, true).all;
        let (own, key, comm) = (self.head.rows().classes(), self.key, &self.comm);
        let (rows, mut counts) = draw(&shares, labels, (classes, all), own, key, comm)?;
        if !self.options.correct {
            counts.fill(1.0);
        }
        let mut active = [rows.len() as u64];
        comm.all_reduce(&mut active, Reduction::Sum)?;
        self.taking_part = active[0];
        self.head.wake(Active::Rows(&rows, &counts));
        self.active = Some((rows, counts));
        Ok(())
    }

    /// Values that are equal on all ranks, a row a rank: any number of ranks can read them, from the files of all or
    /// each from its own.
    fn of_rank(&self, name: &str, values: Vec<f32>) -> RowBlock<'static> {
        let own = (self.comm.rank() as u64, self.comm.size() as u64);
        RowBlock::new(name, own, values.len(), values)
    }

    /// The same; `None` for heads saved without them.
    fn read_of_rank(&self, name: &str, read: &mut ReadRows<'_>) -> Option<Vec<f32>> {
        let rank = self.comm.rank() as u64;
        read(name, rank..rank + 1).or_else(|| read(name, 0..1))
    }

    /// Features in the form compared with classes, outside of training.
    fn centred<'a>(&self, features: &'a [f32]) -> Cow<'a, [f32]> {
        match &self.centre {
            Some(centre) => Cow::Owned(centre.apply(features)),
            None => Cow::Borrowed(features),
        }
    }

    /// Of each row the products with all classes of this rank, chunk by chunk; see [`Head::products`].
    pub(crate) fn products(
        &self,
        features: &[f32],
        visit: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), HeadError> {
        self.head.products(&self.centred(features), visit)
    }
}

impl ClassHead for ChosenHead {
    fn classes(&self) -> u64 {
        self.options.classes
    }

    fn d(&self) -> usize {
        self.options.d
    }

    fn observe(
        &mut self,
        what: Observed,
        features: &[f32],
        labels: &[u64],
    ) -> Result<(), HeadError> {
        self.head.check(features, labels.into())?;
        match (what, &mut self.centre) {
            (Observed::Mean, None) => (),
            (Observed::Mean, Some(centre)) => {
                self.observed.0 += labels.len() as u64;
                centre.average(features, self.observed.0);
            }
            (Observed::Classes, _) => {
                let centred = self.centred(features);
                let (own, d) = (self.head.rows().classes(), self.options.d);
                let means = self.observed.1.get_or_insert_with(|| Means::new(own, d));
                means.add(&centred, labels);
            }
        }
        Ok(())
    }

    fn begin_at_means(&mut self) -> Result<u64, HeadError> {
        let rows = self.head.rows();
        let (own, d) = (rows.classes(), rows.d());
        let (_, means) = std::mem::take(&mut self.observed);
        let means = means.unwrap_or_else(|| Means::new(own.clone(), d));
        let mut weights = self.head.take_rows().weights;
        let missing = means.write(&mut weights, &self.comm);
        self.replace(ClassRows::new(own.start, d, weights));
        match &mut self.choice {
            Choice::All | Choice::Drawn => (),
            Choice::Graph { graph, .. } => *graph = None,
            Choice::Lists(lists) => *lists = None,
            Choice::Leaves { forest, .. } => *forest = None,
        }
        missing
    }

    fn mean(&self) -> Option<Vec<f32>> {
        self.centre.as_ref().map(Centre::mean)
    }

    fn renew(&mut self, epoch: u64, stop: &(dyn Fn() -> bool + Sync)) -> Result<(), HeadError> {
        let began = Instant::now();
        self.settle();
        let rows = self.head.rows();
        match &mut self.choice {
            Choice::All | Choice::Lists(_) | Choice::Drawn => (),
            Choice::Graph { k, graph } => {
                let neighbours = match (epoch, self.is_random) {
                    (0, true) => Neighbours::themselves(rows.classes(), *k),
                    _ => {
                        Neighbours::find_until(rows, *k, self.options.precision, &self.comm, stop)?
                    }
                };
                let divided = Graph::divide(&neighbours, &self.comm)?;
                *graph = Some((neighbours, divided));
            }
            Choice::Leaves { trees, forest } => {
                rows.check(&self.comm)?;
                let (seed, classes) = (mix(self.options.seed ^ epoch), self.options.classes);
                *forest = Some(Forest::new(rows, *trees, classes, seed, &self.comm)?);
            }
        }
        self.graph_s += began.elapsed().as_secs_f64();
        Ok(())
    }

    fn select(&mut self, labels: &[u64], key: u64) -> Result<(), HeadError> {
        let classes = self.options.classes;
        if let Some(example) = labels.iter().position(|&label| label >= classes) {
            return Err(HeadError::Label {
                example,
                label: labels[example],
                classes,
            });
        }
        self.key = key;
        let budget = self.options.kind.budget(classes, self.options.correct);
        let (selection, draws) = (&mut self.selection, &mut self.draws);
        let own = self.head.rows().classes();
        let chosen = match &self.choice {
            Choice::All => {
                self.taking_part = classes;
                return Ok(());
            }
            Choice::Lists(_) => return Ok(()),
            Choice::Graph { graph: None, .. } | Choice::Leaves { forest: None, .. } => {
                return Err(HeadError::NotRenewed);
            }
            Choice::Graph {
                graph: Some((_, graph)),
                ..
            } => graph.select(labels, budget, key, draws, selection, &self.comm)?,
            Choice::Drawn => {
                selection.begin(own, labels);
                selection.choose(budget, classes, key, draws, &self.comm)?
            }
            Choice::Leaves {
                forest: Some(forest),
                ..
            } => {
                selection.begin(own, &[]);
                forest.select(labels, self.head.rows(), selection, &self.comm)?;
                selection.choose(budget, classes, key, draws, &self.comm)?
            }
        };
        self.head.wake(Active::Rows(chosen.rows, chosen.counts));
        self.active = Some((chosen.rows.to_vec(), chosen.counts.to_vec()));
        self.taking_part = chosen.active;
        Ok(())
    }

    fn active(&self) -> u64 {
        self.taking_part
    }

    fn recall(&self) -> [u64; 2] {
        self.found
    }

    fn score(
        &mut self,
        features: &[f32],
        labels: Labels<'_>,
        weight: f32,
        factors: Option<&[f32]>,
    ) -> Result<(Sums, Vec<f32>), HeadError> {
        self.head.check(features, labels)?;
        let mut centred = Cow::Borrowed(features);
        if let Some(centre) = &mut self.centre {
            centred = Cow::Owned(centre.train(features));
        }
        if matches!(self.choice, Choice::Lists(_)) {
            self.choose_nearest(&centred, labels.classes)?;
        }
        let active = match &self.active {
            Some((rows, counts)) => Active::Rows(rows, counts),
            None => Active::All,
        };
        let scored = self.head.score(&centred, labels, active)?;
        let (sums, mut scored) = self.reduced(scored, weight, factors)?;
        let mut gradient = scored.take_gradient();
        if let Some(centre) = &self.centre {
            centre.gradient(&centred, &mut gradient);
        }
        self.scored.push(scored);
        if self.scored.len() > 1 {
            self.scored.iter_mut().for_each(Scored::forget_products);
        }
        Ok((sums, gradient))
    }

    fn weigh(&mut self, micro_batch: usize, factor: f32) {
        self.scored[micro_batch].weigh(factor);
    }

    fn gradient_square(&mut self) -> Result<f64, HeadError> {
        let mut square = [self.head.gradient_square(&self.scored)];
        self.comm.all_reduce(&mut square, Reduction::Sum)?;
        Ok(square[0])
    }

    fn update(&mut self, update: &Update) -> Result<(), HeadError> {
        if self.scored.is_empty() {
            return Ok(());
        }
        self.is_random = false;
        let mut scored = std::mem::take(&mut self.scored);
        scored
            .iter_mut()
            .for_each(|scored| scored.weigh(update.scale));
        self.head.update(&scored, update, &self.comm)
    }

    fn forget(&mut self) {
        self.scored.clear();
    }

    fn settle(&mut self) {
        self.head.wake(Active::All);
    }

    fn evaluate(
        &mut self,
        features: &[f32],
        labels: Labels<'_>,
        factors: Option<&[f32]>,
    ) -> Result<Measured, HeadError> {
        self.settle();
        let mut all = Measured::default();
        let parts = features.chunks(EVALUATED * self.options.d);
        for (features, (own, labels)) in parts.zip(labels.parts(EVALUATED)) {
            let features = self.centred(features);
            let mut scored = self.head.measure(&features, labels)?;
            let factors = factors.map(|all| &all[own]);
            let sums = self.head.reduce(&mut scored, 1.0, factors, &self.comm)?;
            all.loss += sums.loss;
            all.right.append(&mut scored.hits);
        }
        Ok(all)
    }

    fn top(&mut self, features: &[f32], k: usize) -> Result<Vec<Vec<(u64, f32)>>, HeadError> {
        self.settle();
        best_in(&self.head, &self.centred(features), k, &self.comm)
    }

    fn save(&self, state: bool) -> Vec<RowBlock<'_>> {
        let rows = self.head.rows();
        let own = (rows.classes().start, self.options.classes);
        let mut all = vec![RowBlock::new(WEIGHTS, own, rows.d(), rows.weights())];
        all.extend(self.mean().map(|mean| self.of_rank(MEAN, mean)));
        if !state {
            return all;
        }
        if !rows.velocity.is_empty() {
            all.push(RowBlock::new(VELOCITY, own, rows.d(), &rows.velocity[..]));
            let waited = (0..rows.len()).map(|row| rows.waited(row));
            let waited = waited.flat_map(|(steps, wait)| [steps as f32, wait.moved, wait.kept]);
            all.push(RowBlock::new(WAITED, own, 3, waited.collect::<Vec<_>>()));
        }
        if !rows.squares.is_empty() {
            all.push(RowBlock::new(SQUARES, own, rows.d(), &rows.squares[..]));
            let steps = rows.steps.iter().map(|&steps| steps as f32);
            all.push(RowBlock::new(STEPS, own, 1, steps.collect::<Vec<_>>()));
        }
        match &self.choice {
            Choice::Graph {
                graph: Some((neighbours, _)),
                ..
            } => {
                // Class ids in two parts that are exact in single precision.
                let ids = (0..rows.len()).flat_map(|row| neighbours.of(row));
                let parts = ids.flat_map(|id| [(id >> 16) as f32, (id & 0xffff) as f32]);
                let parts: Vec<f32> = parts.collect();
                all.push(RowBlock::new(NEIGHBOURS, own, 2 * neighbours.k(), parts));
            }
            Choice::Lists(Some(lists)) if lists.len() > 1 => {
                let list_of = lists.list_of.iter().map(|&list| list as f32);
                all.push(RowBlock::new(LISTS, own, 1, list_of.collect::<Vec<_>>()));
                all.push(self.of_rank(CENTRES, lists.centres.clone()));
                all.push(self.of_rank(PROBES, lists.numbers()));
            }
            Choice::Leaves {
                trees,
                forest: Some(forest),
            } => {
                let leaves = forest.leaves().iter().map(|&leaf| leaf as f32);
                all.push(RowBlock::new(
                    LEAVES,
                    own,
                    *trees,
                    leaves.collect::<Vec<_>>(),
                ));
            }
            _ => (),
        }
        if !matches!(self.choice, Choice::All | Choice::Lists(_)) {
            all.push(self.of_rank(DRAWS, self.draws.numbers()));
        }
        all
    }

    fn load(&mut self, read: &mut ReadRows<'_>) -> Result<(), HeadError> {
        let (d, own) = (self.options.d, self.head.rows().classes());
        let missing = |name| HeadError::Missing { name };
        let of_width = |values: Vec<f32>, width: usize, name| {
            if values.len() as u64 == (own.end - own.start) * width as u64 {
                Ok(values)
            } else {
                Err(missing(name))
            }
        };
        let weights = read(WEIGHTS, own.clone()).ok_or_else(|| missing(WEIGHTS))?;
        let rows = ClassRows::new(own.start, d, of_width(weights, d, WEIGHTS)?);
        // The old rows are freed first, so that this takes no more memory than a step.
        self.replace(rows);
        if let Some(velocity) = read(VELOCITY, own.clone()) {
            let waited = read(WAITED, own.clone()).ok_or_else(|| missing(WAITED))?;
            let waited = of_width(waited, 3, WAITED)?;
            let waited = waited.chunks_exact(3).map(|wait| {
                let (moved, kept) = (wait[1], wait[2]);
                (wait[0] as u32, Wait { moved, kept })
            });
            let waited: Vec<(u32, Wait)> = waited.collect();
            let velocity = of_width(velocity, d, VELOCITY)?;
            let mut rows = self.head.take_rows().waiting(velocity, &waited);
            if let Some(squares) = read(SQUARES, own.clone()) {
                let steps = read(STEPS, own.clone()).ok_or_else(|| missing(STEPS))?;
                let steps = of_width(steps, 1, STEPS)?;
                let steps = steps.iter().map(|&steps| steps as u32).collect();
                rows = rows.with_squares(of_width(squares, d, SQUARES)?, steps);
            }
            self.replace(rows);
        }
        if let Some(numbers) = self.read_of_rank(DRAWS, read) {
            let draws = self.draws.at_numbers(&numbers);
            self.draws = draws.ok_or_else(|| missing(DRAWS))?;
        }
        if self.centre.is_some()
            && let Some(mean) = self.read_of_rank(MEAN, read)
        {
            if mean.len() != d {
                return Err(missing(MEAN));
            }
            self.centre
                .iter_mut()
                .for_each(|centre| centre.set(mean.clone()));
        }
        match &mut self.choice {
            Choice::All | Choice::Drawn => (),
            Choice::Graph { k, graph } => {
                *graph = None;
                if let Some(parts) = read(NEIGHBOURS, own.clone()) {
                    let parts = of_width(parts, 2 * *k, NEIGHBOURS)?;
                    let pairs = parts.chunks_exact(2);
                    let ids = pairs.map(|part| (part[0] as u32) << 16 | part[1] as u32 & 0xffff);
                    let ids: Vec<u32> = ids.collect();
                    if ids.iter().any(|&id| u64::from(id) >= self.options.classes) {
                        return Err(missing(NEIGHBOURS));
                    }
                    let neighbours = Neighbours::of_ids(own.clone(), ids);
                    let divided = Graph::divide(&neighbours, &self.comm)?;
                    *graph = Some((neighbours, divided));
                }
            }
            Choice::Lists(_) => {
                let mut lists = None;
                if let Some(list_of) = read(LISTS, own.clone()) {
                    let list_of = of_width(list_of, 1, LISTS)?;
                    let mut of_rank =
                        |name| (self.read_of_rank(name, read)).ok_or_else(|| missing(name));
                    let (centres, numbers) = (of_rank(CENTRES)?, of_rank(PROBES)?);
                    let saved = Lists::of_numbers(d, centres, &list_of, &numbers);
                    lists = Some(saved.ok_or_else(|| missing(LISTS))?);
                }
                self.choice = Choice::Lists(lists);
            }
            Choice::Leaves { trees, forest } => {
                *forest = None;
                if let Some(leaves) = read(LEAVES, own.clone()) {
                    let leaves = of_width(leaves, *trees, LEAVES)?;
                    let leaves = leaves.iter().map(|&leaf| leaf as u32).collect();
                    *forest = Some(Forest::of_leaves(*trees, leaves));
                }
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let rows = self.head.rows();
        let graph = match &self.choice {
            Choice::Graph {
                graph: Some((neighbours, graph)),
                ..
            } => graph.bytes() + 4 * rows.len() * neighbours.k(),
            Choice::Lists(Some(lists)) => lists.bytes(),
            Choice::Leaves {
                forest: Some(forest),
                ..
            } => forest.bytes(),
            _ => 0,
        };
        (rows.bytes() + graph) as u64
    }

    fn graph_seconds(&self) -> f64 {
        self.graph_s
    }

    fn communication_seconds(&self) -> f64 {
        self.waited_s
    }
}

/// The `k` best classes of all ranks of each example.
fn best_in(
    head: &Head,
    features: &[f32],
    k: usize,
    comm: &Comm,
) -> Result<Vec<Vec<(u64, f32)>>, HeadError> {
    let first = head.rows().classes().start;
    let batch = features.len() / head.rows().d();
    if batch == 0 {
        return Ok(vec![]);
    }
    let mut best = vec![Best::new(k); batch];
    head.products(features, &mut |places, products| {
        for (row, products) in places.zip(products.chunks_exact(batch)) {
            for (best, &product) in best.iter_mut().zip(products) {
                best.push(first + row as u64, product);
            }
        }
    })?;
    best_of_all(best, k, comm)
}

/// The vectors of `classes` from the blocks that a head saved, moved by their pending momentum; `None` for MACH, which
/// has no class vectors.
pub fn class_vectors(read: &mut ReadRows<'_>, classes: Range<u64>) -> Option<Vec<f32>> {
    let mut weights = read(WEIGHTS, classes.clone())?;
    let waited = read(WAITED, classes.clone()).unwrap_or_default();
    if waited.chunks_exact(3).all(|wait| wait[1] == 0.0) {
        return Some(weights);
    }
    let velocity = read(VELOCITY, classes.clone())?;
    let d = weights.len() / (classes.end - classes.start).max(1) as usize;
    let rows = weights.chunks_exact_mut(d).zip(velocity.chunks_exact(d));
    for ((weights, velocity), wait) in rows.zip(waited.chunks_exact(3)) {
        for (w, v) in weights.iter_mut().zip(velocity) {
            *w -= wait[1] * v;
        }
    }
    Some(weights)
}

/// The mean that a head subtracts from its features, from the blocks that it saved; `None` without one. The heads of
/// MACH have the same.
pub fn feature_mean(read: &mut ReadRows<'_>) -> Option<Vec<f32>> {
    read(MEAN, 0..1).or_else(|| read(&format!("0.{MEAN}"), 0..1))
}

const WEIGHTS: &str = "weights";
const VELOCITY: &str = "velocity";
const WAITED: &str = "waited";
const SQUARES: &str = "squares";
const STEPS: &str = "steps";
const NEIGHBOURS: &str = "neighbours";
const LEAVES: &str = "leaves";
const LISTS: &str = "lists";
const CENTRES: &str = "centres";
const PROBES: &str = "probes";
const DRAWS: &str = "draws";
const MEAN: &str = "mean";
