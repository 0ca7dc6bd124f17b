//! Tests of the crate over [`crate::testing::MemBlockIo`].

mod model;
