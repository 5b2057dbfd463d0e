//! Parts of a net: runs of its layers with their parameters.

use std::ops::Range;

use crate::layer::{Layer, Summary};
use crate::nets::Net;

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) layers: Range<usize>,
    pub(crate) parameters: Range<usize>,
    /// A parameter of another segment that it uses too.
    pub(crate) tied: Option<usize>,
    /// LSTM layers, counted through the net.
    pub(crate) lstms: Range<usize>,
}

/// The total cost of the first layers.
struct Mark {
    layers: usize,
    parameters: usize,
    numbers: u64,
    cost: u64,
    lstms: usize,
}

/// The points at which the layers may be cut, both ends included.
fn marks(net: &Net) -> Vec<Mark> {
    let (mut summary, mut flow) = (Summary::default(), net.input);
    let mut lstms = 0;
    let mut marks = vec![Mark {
        layers: 0,
        parameters: 0,
        numbers: 0,
        cost: 0,
        lstms: 0,
    }];
    for (at, layer) in net.layers.iter().enumerate() {
        flow = layer
            .follow(flow, &mut summary)
            .expect("nets are checked when they are made");
        lstms += usize::from(matches!(layer, Layer::Lstm { .. }));
        // A ReLU belongs to the convolution before it.
        if !matches!(net.layers.get(at + 1), Some(Layer::Relu)) {
            marks.push(Mark {
                layers: at + 1,
                parameters: summary.parameters.len(),
                numbers: summary.parameters.iter().map(|p| p.len() as u64).sum(),
                cost: summary.multiplications + summary.activations,
                lstms,
            });
        }
    }
    marks
}

fn between(net: &Net, from: &Mark, to: &Mark) -> Segment {
    let layers = from.layers..to.layers;
    let parameters = from.parameters..to.parameters;
    let tied = net.layers[layers.clone()].iter().find_map(|layer| {
        let Layer::Linear { tied, .. } = layer else {
            return None;
        };
        let name = format!("{}.weight", tied.as_ref()?);
        let all = &net.summary.parameters;
        all.iter().position(|p| p.name == name)
    });
    Segment {
        tied: tied.filter(|at| !parameters.contains(at)),
        layers,
        parameters,
        lstms: from.lstms..to.lstms,
    }
}

/// At most `most` segments of about equally many parameters.
pub(crate) fn segments(net: &Net, most: usize) -> Vec<Segment> {
    let marks = marks(net);
    let (Some(mut from), Some(end)) = (marks.first(), marks.last()) else {
        return vec![];
    };
    let mut segments = Vec::new();
    for mark in &marks[1..] {
        let enough = (mark.numbers - from.numbers) * most as u64 >= end.numbers;
        if enough || mark.layers == end.layers {
            segments.push(between(net, from, mark));
            from = mark;
        }
    }
    segments
}

/// `count` segments with the smallest possible maximum cost; `None` if there are too few layers.
pub(crate) fn stages(net: &Net, count: usize) -> Option<Vec<Segment>> {
    let marks = marks(net);
    // best[i]: the least cost of the dearest segment up to mark i, and the marks it is cut at.
    let mut best: Vec<Option<(u64, Vec<usize>)>> =
        marks.iter().map(|m| Some((m.cost, vec![]))).collect();
    best[0] = None;
    for _ in 1..count {
        let next = (0..marks.len()).map(|to| {
            let cut = |from: usize| {
                let (dearest, cuts) = best[from].as_ref()?;
                let cost = (marks[to].cost - marks[from].cost).max(*dearest);
                let cuts = cuts.iter().copied().chain([from]).collect();
                Some((cost, cuts))
            };
            (0..to).filter_map(cut).min()
        });
        best = next.collect();
    }
    let (_, cuts) = best.pop().flatten()?;
    let ends: Vec<usize> = [0]
        .into_iter()
        .chain(cuts)
        .chain([marks.len() - 1])
        .collect();
    let pairs = ends.windows(2);
    Some(
        pairs
            .map(|ends| between(net, &marks[ends[0]], &marks[ends[1]]))
            .collect(),
    )
}
