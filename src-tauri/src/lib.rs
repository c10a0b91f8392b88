//! Fermata trains YOLO detectors that can be paused, resumed, rewound and branched without losing a step.

pub mod geometry;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod trainer;
