//! Whom datasets are made for: who owns what is new, and whether it is mounted.

use dsl::{DslPool, Subject};
use std::sync::Arc;

/// Maker of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maker {
    /// Number of the user who owns the root directory of what is new.
    pub uid: u32,
    /// Number of its group.
    pub gid: u32,
    /// False for users to whom making was delegated: mounting is root's.
    pub may_mount: bool,
}

impl Maker {
    /// The daemon's own user.
    pub(crate) fn daemon() -> Maker {
        Maker { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw(), may_mount: true }
    }

    /// Whoever sent a request: the daemon's own user unless another one is named.
    pub(crate) fn of(user: Option<&Subject>) -> Maker {
        let made_by = |user: &Subject| Maker { uid: user.uid, gid: user.groups.first().copied().unwrap_or(user.uid), may_mount: false };
        user.map_or_else(Maker::daemon, made_by)
    }

    /// Gives the maker of a dataset what is delegated to those who make some. What cannot be given is missing there, and said in the log.
    pub(crate) fn take_over(self, dsl: &Arc<DslPool>, name: &str) {
        if let Err(error) = dsl.delegate_to_creator(name, self.uid) {
            tracing::warn!("permissions of creators are not given to user {} at '{name}': {error}", self.uid);
        }
    }
}
