//! What everything about arenas stands on: why one cannot be used, and what a request did.

use std::fmt;

/// Reason why an arena cannot be made or used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArenaError {
    /// Error of the system.
    System(rustix::io::Errno),
    /// Contents that do not prove themselves; in words.
    Unsound(&'static str),
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArenaError::System(errno) => fmt::Display::fmt(errno, f),
            ArenaError::Unsound(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ArenaError {}

/// Effect of a request that was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Object that was made or linked, 0 when none was.
    pub object: u64,
    /// Bytes that were written, in all its records.
    pub bytes: u64,
}

impl Done {
    /// Effect of what was noted before and after.
    pub(super) fn and(self, later: Done) -> Done {
        let object = if later.object == 0 { self.object } else { later.object };
        Done { object, bytes: self.bytes.saturating_add(later.bytes) }
    }

    /// Effect of what was noted before, and of a mark that tells it once more, all of it or what came first.
    pub(super) fn told_again(self, mark: Done) -> Done {
        Done { bytes: self.bytes.max(mark.bytes), ..self.and(mark) }
    }
}
