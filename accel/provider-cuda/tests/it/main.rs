//! The provider of GPUs: its host's side, its kernels, NVIDIA's own libraries. One program: each file of tests by itself would be linked with all that is below.

mod common;
mod host;
mod kernels;
mod lz4;
mod nvrtc;
mod races;
