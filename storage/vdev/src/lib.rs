//! Vdevs as pure geometry (OpenZFS: `vdev.c`, `vdev_mirror.c`, `vdev_raidz.c`, `vdev_draid.c`): nothing here performs I/O, waits or locks.
//!
//! * [`VdevTree`] is an immutable snapshot of the pool's configuration, shared as `Arc` and replaced as a whole;
//! * [`WritePlan`] says which leaf writes make up one block, and what their results amount to;
//! * [`RebuildJob`] is the same for a part of the address space, whatever is in it, of which leaves lack their columns;
//! * [`ReadJob`] is the state machine of one block's read: it names the leaf reads, takes their results and answers
//!   "issue these", "done, and repair those" or "lost". The caller's closure is the only judge of correct bytes.
#![forbid(unsafe_code)]

mod areas;
mod bias;
mod build;
mod config;
mod draid;
mod dtl;
mod edit;
mod error;
mod expansion;
mod extents;
mod leaf;
mod mapping;
mod math;
mod raidz;
mod read;
mod read_copies;
mod read_raidz;
mod read_split;
mod read_step;
mod rebuild;
mod size;
mod spread;
mod tree;
mod write;

pub use areas::{BOOT_BYTES, LABEL_BYTES, LABEL_END_BYTES, LABEL_START_BYTES};
pub use bias::Bias;
pub use config::ConfigScope;
pub use draid::{DraidConfig, DraidLayout};
pub use edit::Pairing;
pub use error::TreeError;
pub use expansion::{Reflow, Scratch, Widths};
pub use leaf::{DraidSpare, Leaf, LeafId, LeafKind, LeafState};
pub use mapping::{MappedRange, Mapping, Piece, RemovalObjects};
pub use raidz::{RaidzColumn, RaidzMap};
pub use read::ReadJob;
pub use read_copies::mirror_choices;
pub use read_split::set_combinations_max;
pub use read_step::{ComputedRow, LostRow, Mending, MendingColumn, ReadFailure, ReadMode, ReadOutcome, ReadStep, Repair, SITS_OUT};
pub use rebuild::{RebuildJob, RebuildNeed, RebuildStep, Spared};
pub use size::{
    ASHIFT_MAX, ASHIFT_MIN, DEVICE_BYTES_MIN, MetaslabTunables, has_log_metaslab, label_offset, leaf_asize, metaslab_shift,
    set_metaslab_tunables,
};
pub use tree::{Node, NodeKind, TopKind, TopVdev, VdevTree};
pub use write::{LeafIo, ParityRow, Part, WriteOutcome, WritePlan};
