//! Sizes, weights and input of a layer.

/// Sizes of a layer's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lstm {
    /// T.
    pub steps: usize,
    /// B.
    pub batch: usize,
    /// I.
    pub input: usize,
    /// H.
    pub hidden: usize,
}

/// Weights in PyTorch's layout; `b_ih` and `b_hh` are summed.
#[derive(Clone, Copy, Debug)]
pub struct LstmWeights<'a> {
    /// \[4H, I\].
    pub w_ih: &'a [f32],
    /// \[4H, H\].
    pub w_hh: &'a [f32],
    /// \[4H\].
    pub b_ih: &'a [f32],
    /// \[4H\].
    pub b_hh: &'a [f32],
}

/// The effect of a step on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Continues from the state before.
    Next,
    /// Begins from a state of zeros: the first word of a sentence in a row of several.
    Reset,
    /// Padding: output and cell do not change.
    Hold,
}

/// Positions \[steps, batch\] of rows of these lengths: padding is held.
pub fn positions_of_lengths(steps: usize, lengths: &[usize]) -> Vec<Position> {
    let at = |t: usize| {
        lengths.iter().map(move |&length| {
            if t < length {
                Position::Next
            } else {
                Position::Hold
            }
        })
    };
    (0..steps).flat_map(at).collect()
}

/// The inputs of a forward pass, without the weights.
#[derive(Clone, Copy, Debug)]
pub struct LstmInput<'a> {
    /// \[T, B, I\].
    pub x: &'a [f32],
    /// \[B, H\].
    pub h0: &'a [f32],
    /// \[B, H\].
    pub c0: &'a [f32],
    /// \[T, B\]; by default all `Next`.
    pub positions: Option<&'a [Position]>,
}

impl Lstm {
    /// Panics if sizes do not fit.
    pub(super) fn check(
        &self,
        input: &LstmInput<'_>,
        weights: &LstmWeights<'_>,
        y: &[f32],
        cells: &[f32],
        gates: &[f32],
    ) {
        let Lstm {
            steps,
            batch,
            input: inputs,
            hidden,
        } = *self;
        let rows = steps * batch;
        for (what, got, expected) in [
            ("x", input.x.len(), rows * inputs),
            ("h0", input.h0.len(), batch * hidden),
            ("c0", input.c0.len(), batch * hidden),
            ("positions", input.positions.map_or(rows, <[_]>::len), rows),
            ("w_ih", weights.w_ih.len(), 4 * hidden * inputs),
            ("w_hh", weights.w_hh.len(), 4 * hidden * hidden),
            ("b_ih", weights.b_ih.len(), 4 * hidden),
            ("b_hh", weights.b_hh.len(), 4 * hidden),
            ("y", y.len(), rows * hidden),
            ("cells", cells.len(), rows * hidden),
            ("gates", gates.len(), rows * 4 * hidden),
        ] {
            assert_eq!(got, expected, "numbers of {what}");
        }
    }
}

impl LstmInput<'_> {
    /// The effect of step `t` on a row.
    #[inline(always)]
    pub(super) fn position(&self, sizes: &Lstm, t: usize, row: usize) -> Position {
        self.positions
            .map_or(Position::Next, |p| p[t * sizes.batch + row])
    }
}
