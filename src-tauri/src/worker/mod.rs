//! The process that owns the device: how its supervisor talks to it, starts it and sees it go.
//!
//! [`protocol`] is what both sides say, [`process`] the parent's side, [`serve`] the child's. Only the last knows the trainer.

pub mod line;
pub mod process;
pub mod protocol;
pub mod serve;
