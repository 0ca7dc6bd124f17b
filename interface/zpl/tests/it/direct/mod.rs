//! Direct I/O of files: OpenZFS's own cases against counters (`suite.rs`), and through a real mount (`mounted.rs`);
//! what the kernel keeps of files meanwhile (`kernel_cache.rs`).

mod bed;
mod kernel_cache;
mod mounted;
mod suite;
