//! Rates, momentum, accumulation and the batches that take a step, as recorded from real training runs.

use std::path::Path;

use fermata::trainer::schedule::{Decay, Schedule};
use serde::Deserialize;

use crate::report::{Compared, Report};
use crate::summary::relative;

#[derive(Deserialize)]
struct File {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    case: Case,
    nb: usize,
    accumulate_nominal: usize,
    warmup_iterations: usize,
    args_used: Args,
    groups: Vec<Group>,
    ema_updates: usize,
    rows: Vec<Row>,
}

/// One batch, in the order of the file's `columns`.
#[derive(Deserialize)]
struct Row {
    batch_idx: usize,
    epoch_idx: usize,
    lr_bias: f64,
    lr_weight: f64,
    lr_norm: f64,
    momentum: Option<f64>,
    accumulate: usize,
    took_step: usize,
}

#[derive(Deserialize)]
struct Case {
    id: String,
}

#[derive(Deserialize)]
struct Args {
    lr0: f64,
    lrf: f64,
    momentum: f64,
    weight_decay: f64,
    warmup_epochs: f64,
    warmup_momentum: f64,
    warmup_bias_lr: f64,
    nbs: usize,
    cos_lr: bool,
    batch: usize,
    epochs: usize,
}

#[derive(Deserialize)]
struct Group {
    param_group: String,
    weight_decay: f64,
}

pub fn run(dir: &Path, report: &mut Report) {
    let Some(file) = crate::read::<File>(dir, "schedule.json", report) else { return };
    for run in &file.runs {
        report.case(&format!("schedule/{}", run.case.id), compare(run));
    }
}

fn compare(run: &Run) -> Vec<Compared> {
    let args = &run.args_used;
    let schedule = Schedule {
        epochs: args.epochs,
        batches_per_epoch: run.nb,
        batch: args.batch,
        nbs: args.nbs,
        lr0: args.lr0,
        lrf: args.lrf,
        decay: if args.cos_lr { Decay::Cosine } else { Decay::Linear },
        momentum: args.momentum,
        weight_decay: args.weight_decay,
        warmup_epochs: args.warmup_epochs,
        warmup_momentum: args.warmup_momentum,
        warmup_bias_lr: args.warmup_bias_lr,
    };
    let mut compared = vec![
        Compared::equal("warm-up batches", schedule.warmup_batches(), run.warmup_iterations),
        Compared::equal("accumulation", schedule.rates(usize::MAX, 0).accumulate, run.accumulate_nominal),
    ];
    for group in &run.groups {
        let ours = if group.param_group == "weight" { schedule.scaled_weight_decay() } else { 0.0 };
        compared.push(Compared::new(
            format!("decay of {}", group.param_group),
            relative(ours, group.weight_decay, 1e-12),
            1e-9,
        ));
    }
    let mut n_steps = 0;
    let mut open_batches = 0;
    for &Row { batch_idx, epoch_idx, lr_bias, lr_weight, lr_norm, momentum, accumulate, took_step } in &run.rows {
        let rates = schedule.rates(batch_idx, epoch_idx);
        open_batches += 1;
        let takes_step = open_batches >= rates.accumulate;
        n_steps += usize::from(takes_step);
        if takes_step {
            open_batches = 0;
        }
        let mut row = vec![
            ("bias rate", rates.lr_bias, lr_bias),
            ("weight rate", rates.lr_weight, lr_weight),
            ("norm rate", rates.lr_norm, lr_norm),
        ];
        row.extend(momentum.map(|momentum| ("momentum", rates.momentum, momentum)));
        let worst = row.iter().map(|(_, ours, theirs)| relative(*ours, *theirs, 1e-9)).fold(0.0, f64::max);
        compared.push(Compared::new(format!("rates of batch {batch_idx}"), worst, 1e-9));
        compared.push(Compared::equal(format!("accumulation of batch {batch_idx}"), rates.accumulate, accumulate));
        compared.push(Compared::equal(format!("step at batch {batch_idx}"), takes_step, took_step == 1));
    }
    compared.push(Compared::equal("steps in all", n_steps, run.ema_updates));
    compared
}
