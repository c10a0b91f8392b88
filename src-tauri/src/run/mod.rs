//! A run as others see it: its supervisor, how it is asked and told things, and the state machine between them.
//!
//! [`supervise`] is the supervisor, [`client`] what commands and windows call, [`protocol`] what both say. Knows nothing of
//! devices and tensors; those belong to the worker.

mod accounting;
pub mod client;
pub mod detach;
pub mod endpoint;
pub mod find;
pub mod machine;
pub mod protocol;
pub mod signals;
pub mod supervise;
pub mod timeline;
