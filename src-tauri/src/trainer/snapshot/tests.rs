use super::*;
use crate::dataset::batch::{Batch, Target};
use crate::geometry::BoxXywhNorm;
use crate::loss::{DetectionLoss, LossGains};
use crate::model::Scale;
use crate::trainer::optimizer::UpdateRule;
use crate::trainer::schedule::Rates;

/// One image of noise with a box; the noise is another in every batch.
fn batch(number: usize) -> Batch {
    let noise = |i: usize| ((i * 7919 + number * 104_729) % 251) as f32 / 251.0;
    let box_norm = BoxXywhNorm { cx: 0.5, cy: 0.4, w: 0.5, h: 0.3 };
    Batch {
        batch_idx: number - 1,
        images: (0..3 * 64 * 64).map(noise).collect(),
        height_px: 64,
        width_px: 64,
        sample_idxs: vec![0],
        targets: vec![Target { image_idx: 0, class_idx: 1, box_norm }],
        letterboxes: Vec::new(),
        warnings: Vec::new(),
    }
}

/// A tiny training after `n` batches, with a step every second one.
fn trained(rule: UpdateRule, n: usize) -> TrainState {
    let model = ModelConfig::new(Scale::T, 2).init(1, &Device::flex()).train();
    let info = WeightsInfo::new(Scale::T, vec!["a".into(), "b".into()], 64);
    let mut state = TrainState::new(model, info, Optimizer::new(rule, 5e-4));
    (1..=n).for_each(|number| train(&mut state, number));
    state
}

fn train(state: &mut TrainState, number: usize) {
    let rates = Rates { lr_bias: 0.02, lr_weight: 0.01, lr_norm: 0.01, momentum: 0.9, accumulate: 2 };
    let losses = state.train_batch(batch(number), (1, number), &DetectionLoss::new(LossGains::default()), &rates);
    assert!(losses.is_finite());
}

fn surroundings() -> Surroundings {
    Surroundings {
        settings: TrainConfig::default(),
        journal: Vec::new(),
        dataset_fingerprint: "ab".into(),
        device: "cpu".into(),
        versions: BTreeMap::new(),
        timeline: 0,
        parent: None,
        time_s: 1.5,
    }
}

fn through_files(snapshot: &Snapshot, rule: UpdateRule) -> TrainState {
    let files = snapshot.files().unwrap().into_iter().collect();
    let read = SavedFiles::read(&files, Path::new("e0000-b000003")).unwrap();
    assert_eq!(read.saved, snapshot.saved);
    let config = TrainConfig { imgsz: 64, ..TrainConfig::default() };
    read.restore(&config, Optimizer::new(rule, 5e-4), &Device::flex(), Path::new("e0000-b000003")).unwrap()
}

#[test]
fn a_restored_state_takes_the_same_steps_also_with_open_gradients() {
    for rule in [UpdateRule::Sgd, UpdateRule::AdamW] {
        for n in [0, 1, 3, 4] {
            let mut state = trained(rule, n);
            let snapshot = Snapshot::take(&state, &surroundings());
            assert_eq!(snapshot.saved.n_gradients > 0, n % 2 == 1, "a batch is open after {n}");
            let mut restored = through_files(&snapshot, rule);
            let again = Snapshot::take(&restored, &surroundings());
            assert_eq!(again.state_hash(), snapshot.state_hash(), "{rule:?} after {n}: nothing is lost in the files");
            for number in n + 1..=n + 2 {
                train(&mut state, number);
                train(&mut restored, number);
            }
            let (straight, resumed) =
                (Snapshot::take(&state, &surroundings()), Snapshot::take(&restored, &surroundings()));
            assert_eq!(resumed.state_hash(), straight.state_hash(), "{rule:?} after {n} and two more");
            assert_ne!(resumed.weights_hash(), snapshot.weights_hash(), "a step was taken");
        }
    }
}

#[test]
fn the_hash_knows_every_part_of_the_state_and_nothing_else() {
    let state = trained(UpdateRule::Sgd, 3);
    let snapshot = Snapshot::take(&state, &surroundings());
    let hash = snapshot.state_hash();
    let changed = |change: &dyn Fn(&mut Snapshot)| {
        let mut other = snapshot.clone();
        change(&mut other);
        other.state_hash()
    };
    let flip =
        |tensors: &mut Vec<NamedTensor>| tensors[0].values[0] = f32::from_bits(tensors[0].values[0].to_bits() ^ 1);
    let matters: [&dyn Fn(&mut Snapshot); 9] = [
        &|s| flip(&mut s.weights),
        &|s| flip(&mut s.ema),
        &|s| flip(&mut s.optimizer),
        &|s| s.saved.n_open += 1,
        &|s| s.saved.position.batch += 1,
        &|s| s.saved.ema_updates += 1,
        &|s| assert!(s.saved.early_stop.update(1, Some(0.5))),
        &|s| s.saved.settings.lr0 = 0.02,
        &|s| s.saved.dataset_fingerprint.push('0'),
    ];
    for (i, change) in matters.into_iter().enumerate() {
        assert_ne!(changed(change), hash, "change {i}");
    }
    let beside: [&dyn Fn(&mut Snapshot); 5] = [
        &|s| s.saved.settings.name = "other".into(),
        &|s| s.saved.time_s += 1.0,
        &|s| s.saved.device.push('x'),
        &|s| s.saved.parent = Some("e0001-b000004".into()),
        &|s| s.saved.timeline += 1,
    ];
    for (i, change) in beside.into_iter().enumerate() {
        assert_eq!(changed(change), hash, "change {i}");
    }
}

#[test]
fn a_state_that_is_not_complete_is_refused() {
    let snapshot = Snapshot::take(&trained(UpdateRule::Sgd, 3), &surroundings());
    let files: BTreeMap<String, Vec<u8>> = snapshot.files().unwrap().into_iter().collect();
    let refused = |files: &BTreeMap<String, Vec<u8>>, rule| {
        let read = SavedFiles::read(files, Path::new("c"))?;
        let config = TrainConfig { imgsz: 64, ..TrainConfig::default() };
        read.restore(&config, Optimizer::new(rule, 5e-4), &Device::flex(), Path::new("c")).map(drop)
    };
    assert!(refused(&files, UpdateRule::Sgd).is_ok());
    let mut less = snapshot.clone();
    less.optimizer.pop();
    let cut: BTreeMap<_, _> = less.files().unwrap().into_iter().collect();
    assert!(matches!(refused(&cut, UpdateRule::Sgd), Err(SnapshotError::Misfit(MisfitError::Count { .. }))));
    assert!(matches!(refused(&files, UpdateRule::AdamW), Err(SnapshotError::Misfit(MisfitError::OtherRule { .. }))));
    let mut foreign = snapshot.clone();
    foreign.optimizer[0].name = "first.model.99.weight".into();
    let foreign: BTreeMap<_, _> = foreign.files().unwrap().into_iter().collect();
    assert!(matches!(refused(&foreign, UpdateRule::Sgd), Err(SnapshotError::Misfit(MisfitError::Unknown { .. }))));
    let mut missing = files.clone();
    missing.remove("ema.safetensors");
    assert!(matches!(refused(&missing, UpdateRule::Sgd), Err(SnapshotError::FileMissing { .. })));
    let mut future = files;
    future.insert("state.json".into(), b"{\"version\":2}".to_vec());
    assert!(matches!(refused(&future, UpdateRule::Sgd), Err(SnapshotError::FutureVersion { found: 2, .. })));
}
