//! Scans: walking everything that a pool references, to verify and repair it (OpenZFS: `dsl_scan.c`, `spa_errlog.c`).
#![forbid(unsafe_code)]

mod status;

pub use status::{Damaged, ScanFunction, ScanState, ScanStatus};
