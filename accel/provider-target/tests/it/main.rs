//! The provider of targets: deaths, records, shared memory, somebody on the link. One program: each file of tests by itself would be linked with all that is below.

mod common;
mod deaths;
mod records;
mod shared;
mod tapped;
