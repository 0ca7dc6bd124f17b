//! The `zirconiad` program: see ARCHITECTURE.md for its place and limits.
fn main() {}
