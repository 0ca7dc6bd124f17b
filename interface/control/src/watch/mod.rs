//! What the daemon does unasked: it watches, judges, and makes room.

pub(crate) mod hooks;
pub(crate) mod memory;
pub(crate) mod policy;
pub(crate) mod rounds;
pub(crate) mod watcher;
