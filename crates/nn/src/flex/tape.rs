//! One node of Burn's tape for every operator of ours: the backward pass is a closure.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_flex::{Flex, FlexTensor};

/// A tensor on the tape.
pub(crate) type Taped = burn_backend::tensor::FloatTensor<burn_autodiff::Autodiff<Flex>>;

/// Gradients of the parents, where they are wanted.
type Parents<const N: usize> = [Option<FlexTensor>; N];
type Run<const N: usize> = Box<dyn FnOnce(FlexTensor, [bool; N]) -> Parents<N> + Send>;

/// A backward pass that waits for its gradient.
#[derive(Clone)]
struct Waiting<const N: usize>(Arc<Mutex<Option<Run<N>>>>);

impl<const N: usize> fmt::Debug for Waiting<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

#[derive(Debug)]
struct Node<const N: usize>;

impl<const N: usize> Backward<Flex, N> for Node<N> {
    type State = Waiting<N>;

    fn backward(self, ops: Ops<Waiting<N>, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<Flex>(&ops.node);
        let run = ops
            .state
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let run = run.expect("a tape runs backward once");
        let wanted = std::array::from_fn(|i| ops.parents[i].is_some());
        for (parent, gradient) in ops.parents.iter().zip(run(gradient, wanted)) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}

/// Puts `output`, made from `parents`, on the tape. `backward` gets its gradient and which parents want theirs.
pub(super) fn record<const N: usize>(
    parents: [&Taped; N],
    output: FlexTensor,
    backward: impl FnOnce(FlexTensor, [bool; N]) -> Parents<N> + Send + 'static,
) -> Taped {
    let nodes = parents.map(|parent| parent.node.clone());
    match Node
        .prepare::<NoCheckpointing>(nodes)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prep) => {
            let run: Run<N> = Box::new(backward);
            prep.finish(Waiting(Arc::new(Mutex::new(Some(run)))), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
