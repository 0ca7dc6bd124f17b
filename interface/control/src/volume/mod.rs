//! Volumes as programs use them: those that are open, the file that each of them is, and which the network sees (docs/adr/0020).

pub(crate) mod door;
mod file_system;
mod lanes;
mod shelf;
mod stored;
pub(crate) mod there;

pub(crate) use shelf::{Away, IsServed, Loan, Shelf};
pub(crate) use stored::stored;
