//! The `zfs` program.
fn main() {}
