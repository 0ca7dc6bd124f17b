//! The `zirconia` program.
fn main() {}
