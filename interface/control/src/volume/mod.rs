//! Volumes as programs use them: those that are open, and the file that each of them is (docs/adr/0020).

pub(crate) mod door;
mod file_system;
mod shelf;
mod there;

pub(crate) use shelf::Shelf;
