//! Distribution focal loss: the predicted distribution should put its mass on the two bins around the true distance.

use burn::prelude::*;
use burn::tensor::activation::log_softmax;

use crate::model::REG_MAX;

/// Distance targets end just below the last bin, so that a bin above them exists.
pub(super) const MAX_DISTANCE: f32 = REG_MAX as f32 - 1.0 - 0.01;

/// Cross entropy with the two neighbouring bins, weighted by nearness; mean over the four sides.
///
/// X. Li et al., "Generalized Focal Loss" (2020), equation 6. The weights are written as a triangle around the target,
/// max(0, 1 - |bin - target|), which is the same and needs no gather.
///
/// # Shapes
/// Logits `[batch, 4 * REG_MAX, n_points]`, targets `[batch, 4, n_points]` in grid units, cut to 0..=14.99; gives `[batch, 1, n_points]`.
pub fn distribution_focal_loss(logits: Tensor<3>, target_distances: Tensor<3>) -> Tensor<3> {
    let device = target_distances.device();
    let [batch, _, n_points] = logits.dims();
    let bins: Vec<f32> = (0..REG_MAX).map(|bin| bin as f32).collect();
    let bins = Tensor::<4>::from_data(TensorData::new(bins, [1, 1, REG_MAX, 1]), &device);
    let target = target_distances.clamp(0.0, MAX_DISTANCE).reshape([batch, 4, 1, n_points]);
    let weights = (bins - target).abs().neg().add_scalar(1.0).clamp_min(0.0); // [batch, 4, REG_MAX, n_points]
    let log_probabilities = log_softmax(logits.reshape([batch, 4, REG_MAX, n_points]), 2);
    let per_side = (log_probabilities * weights).sum_dim(2).neg().reshape([batch, 4, n_points]);
    per_side.mean_dim(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_logits_cost_the_log_of_the_number_of_bins() {
        let logits = Tensor::<3>::zeros([1, 4 * REG_MAX, 1], &Device::flex());
        let targets = Tensor::<3>::from_data([[[0.0], [3.25], [7.5], [14.99]]], &Device::flex());
        let loss: f32 = distribution_focal_loss(logits, targets).into_scalar();
        assert!((loss - 16f32.ln()).abs() < 1e-5, "the two weights of each side add up to one");
    }

    #[test]
    fn a_sure_and_right_distribution_costs_nothing() {
        let mut logits = vec![0.0f32; 4 * REG_MAX];
        (0..4).for_each(|side| logits[side * REG_MAX + 5] = 50.0);
        let logits = Tensor::<3>::from_data(TensorData::new(logits, [1, 4 * REG_MAX, 1]), &Device::flex());
        let targets = Tensor::<3>::full([1, 4, 1], 5.0, &Device::flex());
        let loss: f32 = distribution_focal_loss(logits, targets).into_scalar();
        assert!(loss.abs() < 1e-6);
    }
}
