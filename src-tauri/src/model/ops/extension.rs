//! Our operations as extensions of burn's back-ends, with hand-written gradients.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, backend_extension};

/// Batch norm by the batch's statistics with SiLU.
#[backend_extension(Flex, Autodiff)]
pub trait NormSilu: Backend {
    /// Output, mean and biased variance.
    fn norm_silu(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// Gradients of x, weight and bias, given that of the output and what the forward pass saw and found.
    fn norm_silu_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        epsilon: f64,
        gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

/// x * scale + shift by channel with SiLU, for inference.
#[backend_extension(Flex)]
pub trait NormSiluEval: Backend {
    fn scale_shift_silu(x: FloatTensor<Self>, scale: FloatTensor<Self>, shift: FloatTensor<Self>) -> FloatTensor<Self>;
}

#[derive(Debug)]
struct NormSiluBackward;

impl<B: NormSilu> Backward<B, 3> for NormSiluBackward {
    /// Nodes of x, weight and bias; mean and variance; epsilon.
    type State = ([NodeId; 3], (B::FloatTensorPrimitive, B::FloatTensorPrimitive), f64);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let (nodes, (mean, variance), epsilon) = ops.state;
        let [x, weight, bias] = nodes.map(|node| checkpointer.retrieve_node_output::<B::FloatTensorPrimitive>(node));
        let (dx, dweight, dbias) = B::norm_silu_backward(x, weight, bias, mean, variance, epsilon, gradient);
        for (parent, gradient) in ops.parents.into_iter().zip([dx, dweight, dbias]) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

impl<B: NormSilu, C: CheckpointStrategy> NormSilu for Autodiff<B, C> {
    fn norm_silu(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        match NormSiluBackward.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let nodes = [prep.checkpoint(&x), prep.checkpoint(&weight), prep.checkpoint(&bias)];
                let (output, mean, variance) =
                    B::norm_silu(x.into_primitive(), weight.into_primitive(), bias.into_primitive(), epsilon);
                let output = prep.finish((nodes, (mean.clone(), variance.clone()), epsilon), output);
                (output, Self::from_inner(mean), Self::from_inner(variance))
            }
            OpsKind::UnTracked(prep) => {
                let (output, mean, variance) =
                    B::norm_silu(x.into_primitive(), weight.into_primitive(), bias.into_primitive(), epsilon);
                (prep.finish(output), Self::from_inner(mean), Self::from_inner(variance))
            }
        }
    }

    fn norm_silu_backward(
        _x: FloatTensor<Self>,
        _weight: FloatTensor<Self>,
        _bias: FloatTensor<Self>,
        _mean: FloatTensor<Self>,
        _variance: FloatTensor<Self>,
        _epsilon: f64,
        _gradient: FloatTensor<Self>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        unreachable!("burn's autodiff is of first order: a gradient is never differentiated")
    }
}
