//! The `zpool` program.
fn main() {}
