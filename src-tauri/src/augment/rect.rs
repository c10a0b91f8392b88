//! Rectangular validation batches: images of like shape share a canvas that wastes little padding.

use super::letterbox::SizePx;

/// How rectangular batches are formed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RectConfig {
    /// Long side in pixels in which images are loaded.
    pub imgsz: u32,
    /// Images in a batch.
    pub batch: usize,
    /// The canvas sides are multiples of this many pixels; 32 for YOLOv8.
    pub stride: u32,
    /// Padding added to each side before rounding up, in strides; Ultralytics validates with 0.5.
    pub pad: f64,
}

/// One validation batch: which samples, on what canvas.
#[derive(Debug, Clone, PartialEq)]
pub struct RectBatch {
    pub sample_idxs: Vec<usize>,
    pub canvas: SizePx,
}

/// Sorts samples from wide to tall and cuts them into batches; samples of equal shape keep their order.
///
/// Images are loaded with their long side at `imgsz`. A batch of only wide images is as high as its tallest needs, a
/// batch of only tall images as wide as its widest, any other is square (Ultralytics' `rect` batches).
pub fn rect_batches(sizes: &[SizePx], config: &RectConfig) -> Vec<RectBatch> {
    let aspect = |sample_idx: usize| sizes[sample_idx].height as f64 / sizes[sample_idx].width.max(1) as f64;
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by(|&a, &b| aspect(a).total_cmp(&aspect(b)));
    let batches = order.chunks(config.batch.max(1)).map(|sample_idxs| {
        // Sorted by aspect: the first is the widest, the last the tallest.
        let (lowest, highest) = (aspect(sample_idxs[0]), aspect(sample_idxs[sample_idxs.len() - 1]));
        RectBatch { sample_idxs: sample_idxs.to_vec(), canvas: canvas(lowest, highest, config) }
    });
    batches.collect()
}

fn canvas(lowest: f64, highest: f64, config: &RectConfig) -> SizePx {
    let (width, height) = if highest < 1.0 {
        (1.0, highest)
    } else if lowest > 1.0 {
        (1.0 / lowest, 1.0)
    } else {
        (1.0, 1.0)
    };
    let side = |share: f64| {
        let strides = share * config.imgsz as f64 / config.stride.max(1) as f64 + config.pad;
        (strides.ceil().max(1.0) as u32).saturating_mul(config.stride.max(1))
    };
    SizePx::new(side(width), side(height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_images_share_a_low_canvas() {
        let sizes = [SizePx::new(100, 200), SizePx::new(200, 50), SizePx::new(200, 100)];
        let config = RectConfig { imgsz: 128, batch: 2, stride: 32, pad: 0.0 };
        let batches = rect_batches(&sizes, &config);
        assert_eq!(batches[0], RectBatch { sample_idxs: vec![1, 2], canvas: SizePx::new(128, 64) });
        assert_eq!(batches[1], RectBatch { sample_idxs: vec![0], canvas: SizePx::new(64, 128) });
    }
}
