//! The `zdb` program.
fn main() {}
