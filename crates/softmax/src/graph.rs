//! The graph of neighbours as one rank needs it: only its own classes, found by any label (Song et al., KDD 2020,
//! section 3.2.3).

use std::ops::Range;

use pelton_comm::{Comm, CommError, Reduction};
use pelton_key::mix;

use crate::draws::Draws;
use crate::neighbours::Neighbours;

const TAG: u16 = 8;

/// For every class of all ranks, its neighbours on this rank. Between ranks the whole graph is divided without overlap.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    classes: Range<u64>,
    /// Start of the neighbours of each class, then the end of the last.
    starts: Vec<u64>,
    near: Vec<Near>,
}

/// A neighbour on this rank.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Near {
    row: u32,
    /// 0 is the class itself.
    place: u16,
}

/// How many classes may take part in a step, over all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Those of the batch and their neighbours.
    pub near: u64,
    /// All; the remainder is drawn.
    pub all: u64,
    /// Whether drawn classes stand for all classes outside the batch and its neighbours.
    pub corrected: bool,
}

/// Classes of this rank that take part in a step; keeps its memory between steps.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Classes of this rank.
    own: Range<u64>,
    /// Rows, ascending.
    rows: Vec<u32>,
    /// The least position of a row among the neighbours of any label in this step; `u16::MAX` if it was not found.
    places: Vec<u16>,
    /// How many classes each row stands for.
    counts: Vec<f32>,
}

/// The selected classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen<'a> {
    /// Rows of this rank, ascending.
    pub rows: &'a [u32],
    /// How many classes each stands for: the drawn ones together for all classes outside the batch and its neighbours,
    /// if the budget is corrected; 1 otherwise.
    pub counts: &'a [f32],
    /// Classes of all ranks that take part.
    pub active: u64,
}

impl Graph {
    /// Divides the neighbours among the ranks that own them.
    pub fn divide(neighbours: &Neighbours, comm: &Comm) -> Result<Graph, CommError> {
        let classes = neighbours.classes();
        let ends: Vec<u64> = comm.all_gather_ragged(&[classes.end])?.concat();
        let mut counts: Vec<Vec<u32>> = vec![Vec::new(); comm.size()];
        let mut parts: Vec<Vec<u64>> = vec![Vec::new(); comm.size()];
        for place in 0..(classes.end - classes.start) as usize {
            let before: Vec<usize> = parts.iter().map(Vec::len).collect();
            for (order, &id) in neighbours.of(place).iter().enumerate() {
                let owner = ends.partition_point(|&end| end <= u64::from(id));
                let first = owner.checked_sub(1).map_or(0, |before| ends[before]);
                parts[owner].push((u64::from(id) - first) << 16 | order as u64);
            }
            for ((counts, part), before) in counts.iter_mut().zip(&parts).zip(before) {
                counts.push((part.len() - before) as u32);
            }
        }
        for (to, (counts, part)) in counts.iter().zip(&parts).enumerate() {
            comm.send(to, TAG, counts)?;
            comm.send(to, TAG, part)?;
        }
        let (mut starts, mut near) = (vec![0], Vec::new());
        for from in 0..comm.size() {
            let counts = comm.receive_vec::<u32>(from, TAG)?;
            let mut end = near.len() as u64;
            starts.extend(counts.iter().map(|&count| {
                end += u64::from(count);
                end
            }));
            let part = comm.receive_vec::<u64>(from, TAG)?;
            near.extend(part.iter().map(|&packed| Near {
                row: (packed >> 16) as u32,
                place: packed as u16,
            }));
        }
        Ok(Graph {
            classes,
            starts,
            near,
        })
    }

    /// Bytes that this rank holds.
    pub fn bytes(&self) -> usize {
        self.starts.len() * size_of::<u64>() + self.near.len() * size_of::<Near>()
    }

    /// Classes of all ranks.
    pub fn classes(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// The active classes of a batch (Algorithm 1): the neighbours of its labels, nearest first, as many as fit into
    /// the budget, with ties at the end broken by `key`; the rest of the budget is drawn from the others, in turn. The
    /// selection does not depend on the number of ranks.
    ///
    /// The classes of the labels themselves are always active, also beyond the budget.
    pub fn select<'a>(
        &self,
        labels: &[u64],
        budget: Budget,
        key: u64,
        draws: &mut Draws,
        selection: &'a mut Selection,
        comm: &Comm,
    ) -> Result<Chosen<'a>, CommError> {
        selection.begin(self.classes.clone(), &[]);
        for &label in labels {
            let at = self.starts[label as usize] as usize..self.starts[label as usize + 1] as usize;
            for near in &self.near[at] {
                selection.add_row(near.row, near.place);
            }
        }
        selection.choose(budget, self.classes(), key, draws, comm)
    }
}

impl Selection {
    /// Begins again, with rows of these classes, and among them those of a batch's labels.
    pub(crate) fn begin(&mut self, own: Range<u64>, labels: &[u64]) {
        self.places.resize((own.end - own.start) as usize, u16::MAX);
        self.own = own;
        self.rows.clear();
        labels.iter().for_each(|&label| self.add(label, 0));
    }

    /// Adds a row at a position among neighbours, 0 for a class of the batch itself.
    pub(crate) fn add_row(&mut self, row: u32, place: u16) {
        let old = &mut self.places[row as usize];
        if *old == u16::MAX {
            self.rows.push(row);
        }
        *old = place.min(*old);
    }

    /// Adds a class if it is this rank's.
    pub(crate) fn add(&mut self, class: u64, place: u16) {
        if self.own.contains(&class) {
            self.add_row((class - self.own.start) as u32, place);
        }
    }

    /// The added rows, position by position as long as there is room, and more classes drawn in turn; see
    /// [`Graph::select`]. All ranks call it.
    pub(crate) fn choose(
        &mut self,
        budget: Budget,
        classes: u64,
        key: u64,
        draws: &mut Draws,
        comm: &Comm,
    ) -> Result<Chosen<'_>, CommError> {
        let Selection {
            own,
            rows,
            places,
            counts: stand_for,
        } = self;
        let most = rows.iter().map(|&row| places[row as usize]).max();
        let mut most = [most.map_or(0, u64::from)];
        comm.all_reduce(&mut most, Reduction::Max)?;
        let mut counts = vec![0u64; most[0] as usize + 1];
        for &row in rows.iter() {
            counts[usize::from(places[row as usize])] += 1;
        }
        comm.all_reduce(&mut counts, Reduction::Sum)?;
        let mut taken = counts[0];
        let whole = counts[1..].iter().take_while(|&&count| {
            let fits = taken + count <= budget.near;
            taken += if fits { count } else { 0 };
            fits
        });
        let last = whole.count() as u16;
        let name = |row: u32| mix(key ^ (own.start + u64::from(row)));
        // Of the next position those with the lowest names, as far as there is room.
        let mut next: Vec<u64> = rows
            .iter()
            .filter(|&&row| places[row as usize] == last + 1)
            .map(|&row| name(row))
            .collect();
        let room = budget.near.saturating_sub(taken) as usize;
        let mut below = 0;
        if usize::from(last) + 1 < counts.len() && room > 0 {
            next = comm.all_gather_ragged(&next)?.concat();
            below = *next.select_nth_unstable(room).1;
            taken = budget.near;
        }
        rows.retain(|&row| {
            let place = &mut places[row as usize];
            let is_taken = *place <= last || (*place == last + 1 && name(row) < below);
            *place = if is_taken { 0 } else { u16::MAX };
            is_taken
        });
        // Of the others each is drawn with the same chance, such that the budget is seldom passed, and then by few.
        let rest = budget.all.saturating_sub(taken) as f64;
        let others = classes - taken;
        let is_all = budget.all >= classes;
        let chance = (rest - 2.0 * rest.sqrt()).max(0.0) / others.max(1) as f64;
        let window = draws.next(if is_all { 1.0 } else { chance });
        let mut drawn = [0u64];
        if is_all || chance > 0.0 {
            for row in 0..places.len() as u32 {
                let place = &mut places[row as usize];
                if *place == u16::MAX && (is_all || window.holds(own.start + u64::from(row))) {
                    *place = 1;
                    rows.push(row);
                    drawn[0] += 1;
                }
            }
        }
        comm.all_reduce(&mut drawn, Reduction::Sum)?;
        rows.sort_unstable();
        let of_drawn = match drawn[0] {
            drawn if drawn > 0 && budget.corrected => others as f32 / drawn as f32,
            _ => 1.0,
        };
        stand_for.clear();
        stand_for.extend(rows.iter().map(|&row| {
            match std::mem::replace(&mut places[row as usize], u16::MAX) {
                0 => 1.0,
                _ => of_drawn,
            }
        }));
        Ok(Chosen {
            rows,
            counts: stand_for,
            active: taken + drawn[0],
        })
    }
}
