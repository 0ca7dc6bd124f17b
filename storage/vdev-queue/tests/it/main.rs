//! The scheduler of I/O on simulated devices: policy, promise, records. One program: each file of tests by itself would be linked with all that is below.

mod policy;
mod promise;
mod records;
mod world;
