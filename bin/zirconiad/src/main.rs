//! The `zirconiad` program.
fn main() {}
