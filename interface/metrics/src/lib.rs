//! Statistics and parameters of the daemon for other programs: a proc-like tree of files with OpenZFS's kstat names
//! (`proc/spl/kstat/zfs/…`), its module parameters (`sys/module/zfs/parameters/…`) and what it knows and can beside them, and the same
//! numbers as OpenMetrics.
//!
//! [`Source`] is the port: the daemon tells what pools it has; [`Tree`] makes paths and texts of it; [`TreeFs`] serves a part of
//! the tree through FUSE. Invariants: nothing here counts or caches, every look is a look at the counters, and at what those of pools that were
//! closed had come to; nothing here knows of mounts or sockets.
#![forbid(unsafe_code)]

mod arcstats;
mod dbufs;
mod fs;
mod memory;
mod names;
mod openmetrics;
mod parameter;
mod parameters;
mod past;
#[cfg(test)]
mod tests;
mod tree;

pub use fs::TreeFs;
pub use memory::resident_bytes;
pub use openmetrics::openmetrics;
pub use parameter::{Parameter, When};
pub use parameters::{PARAMETERS, ParameterError, Parameters, chosen_word};
pub use past::Past;
pub use tree::{AcceleratorView, DatasetView, DirectRow, PoolView, Source, Tree, WriteError};
