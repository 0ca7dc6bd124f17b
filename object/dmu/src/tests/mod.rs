//! Tests of the crate over [`crate::testing::MemBlockIo`].

mod basics;
mod direct;
mod faults;
mod model;
mod threads;
mod txgs;
