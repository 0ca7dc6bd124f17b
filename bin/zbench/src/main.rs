//! The `zbench` program.
fn main() {}
