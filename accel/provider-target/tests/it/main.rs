//! The provider of targets: deaths, records, shared memory. One program: each file of tests by itself would be linked with all that is below.

mod common;
mod deaths;
mod records;
mod shared;
