//! Non-maximum suppression of head outputs made by formula.

use fermata::metrics::nms::nms;
use fermata::metrics::{Detection, HeadOutput, KeptDetection, NmsSettings};
use serde::Deserialize;

use crate::formula;
use crate::report::Compared;
use crate::summary::{Summary, nan_max, relative};

const COORDINATE_TOLERANCE_PX: f64 = 1e-4;
const SCORE_TOLERANCE: f64 = 1e-6;

#[derive(Deserialize)]
pub struct Case {
    id: String,
    input: Input,
    settings: Settings,
    input_summary: Summary,
    counts: Vec<usize>,
    kept_idx: Vec<Vec<usize>>,
    kept_cls: Vec<Vec<usize>>,
    first: Vec<Vec<[f64; 6]>>,
    last: Vec<Vec<[f64; 6]>>,
    conf_sum: Vec<f64>,
}

#[derive(Deserialize)]
struct Input {
    key: String,
    batch: usize,
    nc: usize,
    n: usize,
    clusters: usize,
    spread: f64,
    power: i32,
    /// Side of the square the clusters lie in, pixels.
    #[serde(default = "default_size_px")]
    size: f64,
}

#[derive(Deserialize)]
struct Settings {
    conf: f32,
    iou: f32,
    multi_label: bool,
    agnostic: bool,
    max_det: usize,
}

fn default_size_px() -> f64 {
    320.0
}

impl Case {
    pub fn name(&self) -> String {
        let Settings { conf, iou, multi_label, agnostic, max_det } = self.settings;
        format!("nms/{} conf={conf} iou={iou} multi_label={multi_label} agnostic={agnostic} max_det={max_det}", self.id)
    }

    pub fn compare(&self) -> Vec<Compared> {
        let values = self.input.values();
        let (batch, n_rows) = (self.input.batch, 4 + self.input.nc);
        let Settings { conf, iou, multi_label, agnostic, max_det } = self.settings;
        let settings = NmsSettings { conf, iou, multi_label, agnostic, max_det, ..NmsSettings::predict() };
        // The mean is printed to 12 digits, the rest is exact in 32 bits.
        let mut compared = self.input_summary.compare("input", &[batch, n_rows, self.input.n], &values, 1.0, 1e-4);
        let listed = [
            self.counts.len(),
            self.kept_idx.len(),
            self.kept_cls.len(),
            self.first.len(),
            self.last.len(),
            self.conf_sum.len(),
        ];
        compared.push(Compared::equal("images", listed, [batch; 6]));
        let n_images = listed.into_iter().min().unwrap_or(0);
        for (image, values) in values.chunks_exact((n_rows * self.input.n).max(1)).enumerate().take(n_images) {
            match HeadOutput::new(values, self.input.nc) {
                Ok(output) => compared.extend(self.compare_kept(image, &nms(&output, &settings), values)),
                Err(reason) => compared.push(Compared::new(format!("image {image}: {reason}"), f64::NAN, 0.0)),
            }
        }
        compared
    }

    fn compare_kept(&self, image: usize, kept: &[KeptDetection], values: &[f32]) -> Vec<Compared> {
        let ours: Vec<_> = kept.iter().map(|k| (k.anchor_idx, k.detection.class_idx)).collect();
        let listed: Vec<_> = self.kept_idx[image].iter().copied().zip(self.kept_cls[image].iter().copied()).collect();
        // The reference leaves equal scores in an arbitrary order; ours is by anchor, then by class.
        let mut expected = listed.clone();
        let score = |(anchor, class): &(usize, usize)| {
            values.get((4 + class) * self.input.n + anchor).copied().unwrap_or(f32::NAN)
        };
        expected.sort_by(|a, b| score(b).total_cmp(&score(a)).then(a.cmp(b)));
        let (first, last) = (&self.first[image], &self.last[image]);
        let ends = listed.iter().take(first.len()).chain(listed.iter().skip(listed.len().saturating_sub(last.len())));
        let errors: Vec<[f64; 6]> = ends
            .zip(first.iter().chain(last))
            .map(|(pair, theirs)| {
                let found = ours.iter().position(|ours| ours == pair).map_or([f64::NAN; 6], |at| row(&kept[at]));
                std::array::from_fn(|column| (found[column] - theirs[column]).abs())
            })
            .collect();
        let largest = |columns: std::ops::Range<usize>| {
            errors.iter().flat_map(|row| &row[columns.clone()]).copied().fold(0.0, nan_max)
        };
        let conf_sum: f64 = kept.iter().map(|k| f64::from(k.detection.confidence)).sum();
        vec![
            Compared::equal(format!("image {image}: count"), [kept.len(), listed.len()], [self.counts[image]; 2]),
            Compared::equal(format!("image {image}: kept anchors and classes, in order"), &ours, &expected),
            Compared::equal(format!("image {image}: rows listed"), errors.len(), first.len() + last.len()),
            Compared::new(format!("image {image}: corners, pixels"), largest(0..4), COORDINATE_TOLERANCE_PX),
            Compared::new(format!("image {image}: scores and classes"), largest(4..6), SCORE_TOLERANCE),
            Compared::new(
                format!("image {image}: sum of scores"),
                relative(conf_sum, self.conf_sum[image], 1.0),
                SCORE_TOLERANCE,
            ),
        ]
    }
}

/// `x1 y1 x2 y2 conf cls`
fn row(kept: &KeptDetection) -> [f64; 6] {
    let Detection { class_idx, confidence, box_px } = kept.detection;
    [box_px.x1, box_px.y1, box_px.x2, box_px.y2, confidence, class_idx as f32].map(f64::from)
}

impl Input {
    /// Head outputs by formula, `[batch, 4 + nc, n]` row-major.
    fn values(&self) -> Vec<f32> {
        let [clusters, boxes, scores] =
            ["cluster", "box", "score"].map(|stream| formula::fnv1a64(&format!("{}/{stream}", self.key)));
        let u = |hash: u64, i: usize| formula::u_hashed(hash, i as u64);
        let coordinate = |image: usize, j: usize, i: usize| {
            let k = u(clusters, (image * self.clusters + i % self.clusters) * 4 + j);
            let v = u(boxes, (image * self.n + i) * 4 + j);
            if j < 2 { k * self.size + (v - 0.5) * self.spread } else { 10.0 + 80.0 * k + v * self.spread }
        };
        let score =
            |image: usize, class: usize, i: usize| u(scores, (image * self.nc + class) * self.n + i).powi(self.power);
        let mut values = Vec::with_capacity(self.batch * (4 + self.nc) * self.n);
        for image in 0..self.batch {
            values.extend((0..4).flat_map(|j| (0..self.n).map(move |i| coordinate(image, j, i) as f32)));
            values.extend((0..self.nc).flat_map(|class| (0..self.n).map(move |i| score(image, class, i) as f32)));
        }
        values
    }
}
