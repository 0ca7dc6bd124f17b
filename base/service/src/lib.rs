//! What a service stands on: nothing taken over from whoever started it, and files that nobody else can have written.
//!
//! A command of any user in any shell starts the daemon, and what it finds in its folder it believes: which pools to open, which libraries to
//! load. So it begins with descriptors, umask and limits of its own ([`begin`]), and believes only what lies where nobody but its user and root
//! could put it ([`trust`]). What a request names it reads, if it ends ([`given`]); who asks says the kernel
//! ([`peer_groups`]).
#![deny(unsafe_op_in_unsafe_fn)]

pub mod given;
mod inherited;
mod peer;
pub mod trust;

pub use inherited::{begin, close_inherited, descriptors_max, output_was_closed, raise_limits, stand_apart, take_log};
pub use peer::peer_groups;
