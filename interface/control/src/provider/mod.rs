//! Accelerators: which there are, where they come from, what they do.

pub(crate) mod accelerators;
pub(crate) mod offload;
pub(crate) mod source;
pub(crate) mod targets;
pub(crate) mod unserved;
mod within;
