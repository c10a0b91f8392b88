//! Convolution as an extension of burn's back-ends, with hand-written gradients.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Flex, backend_extension};
use burn::tensor::Shape;

use super::conv::{self, ConvShape};
use super::flex::{Planes, contiguous, tensor_of};

/// Convolution with a square kernel of odd size, padded so that stride 1 keeps height and width.
#[backend_extension(Flex, Autodiff)]
pub trait SquareConv: Backend {
    /// x `[batch, c_in, height, width]`, weight `[c_out, c_in, kernel, kernel]`, bias `[c_out]`.
    fn square_conv(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        stride: usize,
    ) -> FloatTensor<Self>;

    /// Gradient of x, whose shape `like_x` has, given that of the output.
    fn square_conv_input_gradient(
        weight: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        like_x: FloatTensor<Self>,
        stride: usize,
    ) -> FloatTensor<Self>;

    /// Gradient of the weight, whose shape `like_weight` has, given that of the output.
    fn square_conv_weight_gradient(
        x: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        like_weight: FloatTensor<Self>,
        stride: usize,
    ) -> FloatTensor<Self>;

    /// Gradient of the bias, given that of the output.
    fn square_conv_bias_gradient(gradient: FloatTensor<Self>) -> FloatTensor<Self>;
}

#[derive(Debug)]
struct SquareConvBackward;

impl<B: SquareConv> Backward<B, 3> for SquareConvBackward {
    /// Nodes of x and weight, and the stride.
    type State = ([NodeId; 2], usize);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let (nodes, stride) = ops.state;
        let [x, weight] = nodes.map(|node| checkpointer.retrieve_node_output::<B::FloatTensorPrimitive>(node));
        let [x_parent, weight_parent, bias_parent] = ops.parents;
        // The images themselves want no gradient: the largest of all is left out.
        if let Some(parent) = x_parent {
            let dx = B::square_conv_input_gradient(weight.clone(), gradient.clone(), x.clone(), stride);
            grads.register::<B>(parent.id, dx);
        }
        if let Some(parent) = weight_parent {
            let dweight = B::square_conv_weight_gradient(x, gradient.clone(), weight, stride);
            grads.register::<B>(parent.id, dweight);
        }
        if let Some(parent) = bias_parent {
            grads.register::<B>(parent.id, B::square_conv_bias_gradient(gradient));
        }
    }
}

impl<B: SquareConv, C: CheckpointStrategy> SquareConv for Autodiff<B, C> {
    fn square_conv(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        stride: usize,
    ) -> FloatTensor<Self> {
        match SquareConvBackward.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let nodes = [prep.checkpoint(&x), prep.checkpoint(&weight)];
                let (x, weight, bias) = (x.into_primitive(), weight.into_primitive(), bias.into_primitive());
                prep.finish((nodes, stride), B::square_conv(x, weight, bias, stride))
            }
            OpsKind::UnTracked(prep) => {
                let (x, weight, bias) = (x.into_primitive(), weight.into_primitive(), bias.into_primitive());
                prep.finish(B::square_conv(x, weight, bias, stride))
            }
        }
    }

    fn square_conv_input_gradient(
        _weight: FloatTensor<Self>,
        _gradient: FloatTensor<Self>,
        _like_x: FloatTensor<Self>,
        _stride: usize,
    ) -> FloatTensor<Self> {
        unreachable!("burn's autodiff is of first order: a gradient is never differentiated")
    }

    fn square_conv_weight_gradient(
        _x: FloatTensor<Self>,
        _gradient: FloatTensor<Self>,
        _like_weight: FloatTensor<Self>,
        _stride: usize,
    ) -> FloatTensor<Self> {
        unreachable!("burn's autodiff is of first order: a gradient is never differentiated")
    }

    fn square_conv_bias_gradient(_gradient: FloatTensor<Self>) -> FloatTensor<Self> {
        unreachable!("burn's autodiff is of first order: a gradient is never differentiated")
    }
}

impl SquareConv for Flex {
    fn square_conv(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, stride: usize) -> FlexTensor {
        let shape = shape_of(&x, &weight, stride);
        let (x, weight, bias) = (x.to_contiguous(), weight.to_contiguous(), bias.to_contiguous());
        let output = conv::forward(&shape, contiguous(&x), contiguous(&weight), contiguous(&bias));
        tensor_of(output, Shape::new([shape.batch, shape.c_out, shape.out_height(), shape.out_width()]))
    }

    fn square_conv_input_gradient(
        weight: FlexTensor,
        gradient: FlexTensor,
        like_x: FlexTensor,
        stride: usize,
    ) -> FlexTensor {
        let shape = shape_of(&like_x, &weight, stride);
        let (weight, gradient) = (weight.to_contiguous(), gradient.to_contiguous());
        let dx = conv::input_gradient(&shape, contiguous(&weight), contiguous(&gradient));
        tensor_of(dx, like_x.layout().shape().clone())
    }

    fn square_conv_weight_gradient(
        x: FlexTensor,
        gradient: FlexTensor,
        like_weight: FlexTensor,
        stride: usize,
    ) -> FlexTensor {
        let shape = shape_of(&x, &like_weight, stride);
        let (x, gradient) = (x.to_contiguous(), gradient.to_contiguous());
        let dweight = conv::weight_gradient(&shape, contiguous(&x), contiguous(&gradient));
        tensor_of(dweight, like_weight.layout().shape().clone())
    }

    fn square_conv_bias_gradient(gradient: FlexTensor) -> FlexTensor {
        let gradient = gradient.to_contiguous();
        let sums = Planes::of(&gradient).channel_sums();
        let shape = Shape::new([sums.len()]);
        tensor_of(sums, shape)
    }
}

fn shape_of(x: &FlexTensor, weight: &FlexTensor, stride: usize) -> ConvShape {
    let (x, weight) = (x.layout().shape(), weight.layout().shape());
    ConvShape { batch: x[0], c_in: x[1], height: x[2], width: x[3], c_out: weight[0], kernel: weight[2], stride }
}
