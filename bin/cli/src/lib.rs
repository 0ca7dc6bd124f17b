//! What the commands share: talking to the daemon (and starting it), numbers for people, tables, JSON, the frame of a program.
#![forbid(unsafe_code)]
// `println!` panics when its reader is gone: see `cli::print`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod client;
mod closed;
pub mod color;
pub mod dead;
pub mod dedup;
pub mod direct;
mod fetch;
pub mod json;
pub mod keys;
pub mod kstat;
pub mod manual;
pub mod number;
pub mod options;
mod patience;
pub mod print;
mod program;
pub mod property;
pub mod repeat;
mod request;
mod stop;
mod streaming;
pub mod table;
pub mod time;
pub mod units;
pub mod unlock;
mod value;

pub use client::{Client, daemon_program, unexpected};
pub use patience::patiently;
pub use program::{Lacking, is_called, parsed, refuse_bytes, run, run_with, usage, words};
pub use request::{absolute, assignments, done, invalid, place_of_device, place_of_path, properties, say};
pub use stop::{EXIT_FAILURE, EXIT_USAGE, Stop};
pub use value::{find, show, show_of_pool, show_source, sort_key};

pub use control_api::os_error;
