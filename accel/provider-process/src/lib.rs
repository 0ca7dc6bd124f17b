//! Libraries of vendors in processes of their own: what they do to themselves, they do to nobody else.
//!
//! ```text
//! Hosted::start ── socket pair, as its standard input ──► helper::serve: loads the library, says its name ──► programs as for a target
//! the process ends, or owes an answer for longer than the deadline (then it is killed) ──► the provider is down, its user goes on in software
//! ```
//! The two ends speak as a host and a target do (docs/target-protocol.md), records in memory that both share; so this is a short crate. The library's
//! process gives nothing to anybody but the one at the other end of the pair, and ends with it.
//!
//! Invariants: nothing of a library's code runs in the process that uses [`Hosted`]; nothing here waits for a library longer than the deadline.
#![forbid(unsafe_code)]

mod hello;
pub mod helper;
mod hosted;
mod words;

pub use hosted::{Hosted, HostedOptions, StartError};

use std::path::PathBuf;

/// The word, first on its command line, by which the helper program is told from what else it is.
pub const WORD: &str = "--library";

/// Secret that both ends of a pair know: nobody else can be at the other end.
const SECRET: &[u8] = b"a pair of sockets that nobody else has";

/// The helper program: beside this one, else wherever programs are found.
pub fn program() -> PathBuf {
    const NAME: &str = "zirconia-target";
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(NAME)));
    beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from(NAME))
}
