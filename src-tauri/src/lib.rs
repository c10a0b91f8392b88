//! Fermata trains YOLO detectors that can be paused, resumed, rewound and branched without losing a step.
//!
//! | module | what lives there |
//! |---|---|
//! | [`geometry`] | boxes on plain numbers |
//! | [`dataset`] | any label format to one in-memory dataset, its check, batches of it |
//! | [`augment`] | letterbox and the random changes of training images |
//! | [`model`] | the network and its tensors by name |
//! | [`loss`] | assigner, box, class and distribution loss |
//! | [`metrics`] | suppression, average precision, confusion |
//! | [`trainer`] | settings, the loop, validation, the run folder, devices |
//! | [`checkpoint`] | weights and whole states on disk: saved, verified, kept, pruned |
//! | [`worker`] | the process that trains: what it hears and says, how it is started |
//! | [`run`] | one run's supervisor, its clients, finding runs, timelines and branches |
//! | [`predict`] | detections of images, drawn and written |
//! | [`exit`] | exit codes and their words |
//! | [`cli`] | the command line |

pub mod augment;
pub mod checkpoint;
pub mod cli;
pub mod dataset;
mod durable;
pub mod exit;
mod fault;
pub mod geometry;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod predict;
pub mod run;
pub mod trainer;
pub mod worker;
