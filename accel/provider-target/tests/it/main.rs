//! The provider of targets: deaths, records, repairs, shared memory, somebody on the link. One program: each file of tests by itself would be linked with all that is below.

mod common;
mod deaths;
mod records;
mod repair;
mod shared;
mod tapped;
