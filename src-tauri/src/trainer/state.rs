//! Everything that changes from batch to batch: weights, average, optimizer, gradients still open.

use burn::prelude::*;

use serde::{Deserialize, Serialize};

use super::early_stop::EarlyStop;
use super::ema::Ema;
use super::event::{self, Position};
use super::gradients::NamedGradients;
use super::optimizer::Optimizer;
use super::schedule::Rates;
use crate::checkpoint::WeightsInfo;
use crate::dataset::batch::Batch;
use crate::geometry::GroundTruth;
use crate::loss::{DetectionLoss, LossItems};
use crate::model::Detector;

/// The norm of all gradients together is cut to this before a step, as in the reference.
const MAX_GRADIENT_NORM: f64 = 10.0;

/// A training between two batches.
pub struct TrainState {
    /// Always there between calls; taken out while a step rebuilds it.
    model: Option<Detector>,
    pub(super) ema: Ema,
    pub(super) optimizer: Optimizer,
    /// Sum of the gradients since the last step.
    pub(super) open: Option<NamedGradients>,
    /// Batches in that sum.
    pub(super) n_open: usize,
    /// Last batch trained.
    pub(super) epoch: u32,
    pub(super) batch: usize,
    pub(super) is_epoch_done: bool,
    pub(super) n_batches: u64,
    /// Losses of the epoch in progress, and the rates of its last batch.
    pub(super) means: MeanLosses,
    pub(super) lr: event::LearningRates,
    pub(super) early_stop: EarlyStop,
    pub(super) info: WeightsInfo,
}

/// What an epoch's row says of its training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochMeans {
    pub losses: event::Losses,
    pub lr: event::LearningRates,
}

impl TrainState {
    /// A training before its first batch.
    pub fn new(model: Detector, info: WeightsInfo, optimizer: Optimizer) -> Self {
        Self {
            ema: Ema::new(&model),
            model: Some(model),
            optimizer,
            open: None,
            n_open: 0,
            epoch: 0,
            batch: 0,
            is_epoch_done: false,
            n_batches: 0,
            means: MeanLosses::default(),
            lr: event::LearningRates::default(),
            early_stop: EarlyStop::new(),
            info,
        }
    }

    /// Forward, loss, backward, and a step if enough batches are open. Waits for the device. `at` is the batch's epoch and number.
    ///
    /// A loss that is not finite leaves weights, average and optimizer as they were, but batch norm has seen the batch.
    pub fn train_batch(
        &mut self,
        mut batch: Batch,
        at: (u32, usize),
        loss: &DetectionLoss,
        rates: &Rates,
    ) -> LossItems {
        // Nothing between the take and the put can leave the function.
        let model = self.model.take().expect("the model is there between batches");
        let boxes = ground_truth(&batch);
        let result = loss.forward(&model.forward(take_images(&mut batch, &model)), &boxes);
        let items = LossItems::read(result.items);
        let gradients = NamedGradients::take(&model, &mut result.total.backward());
        self.model = Some(model);
        if items.is_finite() {
            self.take_gradients(gradients, rates);
            self.means.add(&items);
            self.lr = event::LearningRates::from(rates);
            (self.epoch, self.batch) = at;
            self.is_epoch_done = false;
            self.n_batches += 1;
        }
        items
    }

    /// Mean losses of the epoch in progress, and the rates in force at its end.
    pub fn epoch_means(&self) -> EpochMeans {
        EpochMeans { losses: self.means.mean(), lr: self.lr }
    }

    /// The epoch is validated and has its row.
    pub fn finish_epoch(&mut self) {
        self.is_epoch_done = true;
        self.means = MeanLosses::default();
    }

    /// The model in training mode.
    pub fn model(&self) -> &Detector {
        // It is taken out only inside `train_batch`, which holds the whole state.
        self.model.as_ref().expect("the model is there between batches")
    }

    /// The averaged model, for validation and for keeping.
    pub fn averaged(&self) -> &Detector {
        self.ema.model()
    }

    /// What a file of the present weights says about itself.
    pub fn weights_info(&self) -> WeightsInfo {
        self.info.clone().after(self.position().epochs_done(), self.n_batches)
    }

    pub fn position(&self) -> Position {
        Position {
            epoch: self.epoch,
            batch: self.batch,
            n_batches: self.n_batches,
            step: self.n_steps(),
            is_epoch_done: self.is_epoch_done,
        }
    }

    pub fn n_steps(&self) -> u64 {
        self.optimizer.n_steps() as u64
    }

    fn take_gradients(&mut self, gradients: NamedGradients, rates: &Rates) {
        match &mut self.open {
            Some(open) => open.add(gradients),
            None => self.open = Some(gradients),
        }
        self.n_open += 1;
        if self.n_open >= rates.accumulate
            && let (Some(mut gradients), Some(model)) = (self.open.take(), self.model.take())
        {
            gradients.clip_global_norm(MAX_GRADIENT_NORM);
            let model = self.optimizer.step(model, gradients, rates);
            self.ema.update(&model);
            self.model = Some(model);
            self.n_open = 0;
        }
    }
}

/// Moves the batch's images to the model's device, without autodiff: `[batch, 3, height, width]`, RGB in 0..=1.
pub fn take_images(batch: &mut Batch, model: &Detector) -> Tensor<4> {
    let device = model.devices().into_iter().next().unwrap_or_default().without_autodiff();
    let shape = [batch.n_images(), 3, batch.height_px, batch.width_px];
    Tensor::from_data(TensorData::new(std::mem::take(&mut batch.images), shape), &device)
}

/// The batch's boxes by image, in pixels of the batch.
pub fn ground_truth(batch: &Batch) -> Vec<Vec<GroundTruth>> {
    let mut by_image = vec![Vec::new(); batch.n_images()];
    for target in &batch.targets {
        let gt = GroundTruth::from_norm(target.class_idx, &target.box_norm, batch.width_px, batch.height_px);
        by_image[target.image_idx].push(gt);
    }
    by_image
}

/// Mean of the losses of several batches.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MeanLosses {
    sums: [f64; 3],
    n_batches: usize,
}

impl MeanLosses {
    pub fn add(&mut self, losses: &LossItems) {
        for (sum, loss) in self.sums.iter_mut().zip([losses.box_loss, losses.cls_loss, losses.dfl_loss]) {
            *sum += loss as f64;
        }
        self.n_batches += 1;
    }

    pub fn mean(&self) -> event::Losses {
        let [box_iou, cls, dfl] = self.sums.map(|sum| sum / self.n_batches.max(1) as f64);
        event::Losses { box_iou, cls, dfl }
    }
}

impl From<LossItems> for event::Losses {
    fn from(items: LossItems) -> Self {
        Self { box_iou: items.box_loss.into(), cls: items.cls_loss.into(), dfl: items.dfl_loss.into() }
    }
}

impl From<&Rates> for event::LearningRates {
    fn from(rates: &Rates) -> Self {
        Self { weight: rates.lr_weight, norm: rates.lr_norm, bias: rates.lr_bias }
    }
}
