pub mod ema;
pub mod gradients;
pub mod optimizer;
pub mod schedule;
