//! Names, shapes, parameter counts and graph of each network.

use std::collections::HashMap;
use std::path::Path;

use burn::prelude::*;
use fermata::model::{LayerKind, ModelConfig, flops, list_state};
use serde::Deserialize;

use crate::network::config;
use crate::report::{Compared, Report};
use crate::summary::relative;

#[derive(Deserialize)]
struct File {
    models: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    model: String,
    nc: usize,
    params: usize,
    n_param_tensors: usize,
    n_state_entries: usize,
    gflops_640: f64,
    gflops_320: f64,
    strides: Vec<f64>,
    bn_eps: f64,
    bn_momentum: f64,
    layers: Vec<(usize, From, String, usize)>,
    default_init_head_bias_first: HashMap<String, f64>,
    state: Vec<(String, Vec<usize>, String)>,
}

#[derive(Deserialize, PartialEq)]
#[serde(untagged)]
enum From {
    One(i64),
    Many(Vec<i64>),
}

pub fn run(dir: &Path, report: &mut Report) {
    let Some(file) = crate::read::<File>(dir, "arch.json", report) else { return };
    for expected in &file.models {
        let name = format!("arch/{}_nc{}", expected.model, expected.nc);
        match config(&expected.model, expected.nc) {
            Ok(config) => report.case(&name, compare(expected, &config)),
            Err(reason) => report.skip(&name, &reason),
        }
    }
}

fn compare(expected: &Model, config: &ModelConfig) -> Vec<Compared> {
    let model = config.init(0, &Device::flex());
    let state = list_state(&model);
    let ours: Vec<_> = state
        .iter()
        .map(|e| (e.name.clone(), e.shape.clone(), if e.is_parameter { "p" } else { "b" }.to_owned()))
        .collect();
    let n_params = |prefix: &str| -> usize {
        let members = state.iter().filter(|e| e.is_parameter && e.name.starts_with(prefix));
        members.map(|e| e.shape.iter().product::<usize>()).sum()
    };
    let mut compared = vec![
        Compared::equal("state dict names, shapes and kinds, in order", ours == expected.state, true),
        Compared::equal("parameters", n_params(""), expected.params),
        Compared::equal("parameter tensors", state.iter().filter(|e| e.is_parameter).count(), expected.n_param_tensors),
        Compared::equal("state entries", state.len(), expected.n_state_entries),
        Compared::new("GFLOPs at 640", relative(flops(config, 640, 640) / 1e9, expected.gflops_640, 1.0), 1e-6),
        Compared::new("GFLOPs at 320", relative(flops(config, 320, 320) / 1e9, expected.gflops_320, 1.0), 1e-6),
        Compared::equal("strides", fermata::model::STRIDES.map(|s| s as f64).to_vec(), expected.strides.clone()),
        Compared::equal("batch-norm epsilon", fermata::model::BN_EPSILON, expected.bn_eps),
        Compared::equal("batch-norm momentum", fermata::model::BN_MOMENTUM, expected.bn_momentum),
    ];
    compared.extend(compare_layers(expected, config, &n_params));
    let tensors: HashMap<String, f64> =
        fermata::model::export_tensors(&model).into_iter().map(|t| (t.name, t.values[0] as f64)).collect();
    for (name, first) in &expected.default_init_head_bias_first {
        let ours = tensors.get(name).copied().unwrap_or(f64::NAN);
        compared.push(Compared::new(format!("initial {name}"), relative(ours, *first, 1.0), 1e-6));
    }
    compared
}

fn compare_layers(expected: &Model, config: &ModelConfig, n_params: &dyn Fn(&str) -> usize) -> Vec<Compared> {
    let layers = config.layers();
    let mut compared = vec![Compared::equal("number of layers", layers.len(), expected.layers.len())];
    for (layer, (index, from, kind, count)) in layers.iter().zip(&expected.layers) {
        let absolute = |i: i64| if i < 0 { *index as i64 + i } else { i };
        let sources: Vec<i64> = match from {
            From::One(i) => vec![absolute(*i)],
            From::Many(many) => many.iter().map(|&i| absolute(i)).collect(),
        };
        let ours: Vec<i64> =
            if layer.from.is_empty() { vec![-1] } else { layer.from.iter().map(|&i| i as i64).collect() };
        let our_kind = match layer.kind {
            LayerKind::Downsample { .. } => "Conv",
            LayerKind::C2f { .. } => "C2f",
            LayerKind::Sppf { .. } => "SPPF",
            LayerKind::Upsample => "Upsample",
            LayerKind::Concat => "Concat",
            LayerKind::Detect { .. } => "Detect",
        };
        compared.push(Compared::equal(format!("layer {index} source"), ours, sources));
        compared.push(Compared::equal(format!("layer {index} kind"), our_kind, kind.as_str()));
        compared.push(Compared::equal(
            format!("layer {index} parameters"),
            n_params(&format!("model.{index}.")),
            *count,
        ));
    }
    compared
}
