//! Tests of the crate over [`crate::testing::MemBlockIo`].

mod basics;
mod direct;
mod faults;
mod model;
mod records;
mod threads;
mod txgs;
mod window;
