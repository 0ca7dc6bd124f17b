//! Direct I/O of files: OpenZFS's own cases against counters (`suite.rs`), and through a real mount (`mounted.rs`).

mod bed;
mod mounted;
mod suite;
