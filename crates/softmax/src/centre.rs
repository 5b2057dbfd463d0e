//! Features less their mean.
//!
//! With random class vectors the features of all classes turn to one direction within a hundred steps, and then differ
//! by little: the softmax first has to spread them. Subtracting the mean removes this direction. In training this is
//! the mean of the batch, with its gradient, as in batch normalisation; afterwards a running mean.

/// Part of a step's mean in the running mean.
const NEW: f64 = 0.01;

/// The running mean of features.
#[derive(Clone, Debug)]
pub(crate) struct Centre {
    d: usize,
    /// Empty before the first batch.
    mean: Vec<f32>,
}

impl Centre {
    pub(crate) fn new(d: usize) -> Centre {
        let mean = Vec::new();
        Centre { d, mean }
    }

    /// The running mean; zeros before the first batch.
    pub(crate) fn mean(&self) -> Vec<f32> {
        if self.mean.is_empty() {
            vec![0.0; self.d]
        } else {
            self.mean.clone()
        }
    }

    /// Moves the mean by more features, so that it is that of `examples`.
    pub(crate) fn average(&mut self, features: &[f32], examples: u64) {
        let part = features.len() as f64 / self.d as f64 / examples.max(1) as f64;
        self.move_by(part, &mean(features, self.d));
    }

    pub(crate) fn set(&mut self, mean: Vec<f32>) {
        self.mean = mean;
    }

    fn move_by(&mut self, part: f64, mean: &[f64]) {
        self.mean.resize(self.d, 0.0);
        for (running, x) in self.mean.iter_mut().zip(mean) {
            *running = ((1.0 - part) * f64::from(*running) + part * x) as f32;
        }
    }

    /// The features of a batch without their own mean; moves the running mean by it.
    pub(crate) fn train(&mut self, features: &[f32]) -> Vec<f32> {
        let mean = mean(features, self.d);
        let part = if self.mean.is_empty() { 1.0 } else { NEW };
        self.move_by(part, &mean);
        let mut centred = features.to_vec();
        take_off(&mut centred, &mean);
        centred
    }

    /// Features without the running mean.
    pub(crate) fn apply(&self, features: &[f32]) -> Vec<f32> {
        let mut centred = features.to_vec();
        let mean: Vec<f64> = self.mean.iter().map(|&x| x.into()).collect();
        take_off(&mut centred, &mean);
        centred
    }

    /// The gradient by features from that by `centred` ones: without its mean. Features that were all equal have
    /// gradient 0, since no direction is left of them.
    pub(crate) fn gradient(&self, centred: &[f32], gradient: &mut [f32]) {
        let rows = gradient.chunks_exact_mut(self.d);
        for (gradient, centred) in rows.zip(centred.chunks_exact(self.d)) {
            if centred.iter().all(|&x| x == 0.0) {
                gradient.fill(0.0);
            }
        }
        let mean = mean(gradient, self.d);
        take_off(gradient, &mean);
    }
}

/// The mean of rows of `d`.
fn mean(rows: &[f32], d: usize) -> Vec<f64> {
    let mut mean = vec![0.0; d];
    let part = d as f64 / rows.len().max(1) as f64;
    for row in rows.chunks_exact(d) {
        mean.iter_mut()
            .zip(row)
            .for_each(|(m, &x)| *m += f64::from(x));
    }
    mean.iter_mut().for_each(|m| *m *= part);
    mean
}

/// Subtracts a mean from each row; does nothing if the mean is empty.
fn take_off(rows: &mut [f32], mean: &[f64]) {
    for row in rows.chunks_exact_mut(mean.len().max(1)) {
        row.iter_mut()
            .zip(mean)
            .for_each(|(x, m)| *x = (f64::from(*x) - m) as f32);
    }
}
