//! Within what time a command answers, whatever happens to daemon and devices meanwhile. The table of docs/deadlines.md is this one.
//!
//! A deadline guards against hanging, it is no promise of speed: an idle machine needs a hundredth of it.

use std::time::Duration;

/// Deadline of a kind of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Names of the commands.
    pub commands: &'static str,
    /// State in which the deadline holds.
    pub state: &'static str,
    /// Seconds that a command may take.
    pub seconds: u64,
}

impl Deadline {
    /// Time that a command may take.
    pub fn time(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// Deadline of what is asked of the daemon's memory.
pub const LOOK: Deadline = Deadline {
    commands: "`zpool status`, `list`, `get`, `iostat`, `events`",
    state: "always, also while devices hang or the pool is suspended",
    seconds: 5,
};
/// Deadline of what may have to be read from devices.
pub const READ: Deadline = Deadline {
    commands: "`zfs list`, `zfs get`, `zpool history`, `zpool status -v`",
    state: "always; while the pool is suspended the answer may be that it is",
    seconds: 20,
};
/// Deadline of what waits for a transaction group.
pub const CHANGE: Deadline = Deadline {
    commands: "every command that changes a pool, `zpool clear`, `zpool sync`, `zpool export`",
    state: "while devices answer or fail; on a suspended pool the answer is that it is suspended",
    seconds: 60,
};
/// Deadline of what gives a pool up.
pub const FORCE: Deadline =
    Deadline { commands: "`zpool export -f`", state: "always, also while devices hang or the pool is suspended", seconds: 60 };
/// Deadline of what cuts programs off that have files open.
pub const CUT: Deadline = Deadline {
    commands: "`zfs unmount -f`, `rename -f`, `destroy -rf`, `zpool destroy -f`, `zirconia stop`, SIGTERM",
    state: "always, whatever has files open, in whatever mount namespace, of however many file systems; on a suspended pool the answer may be that requests do not end, and what was to be unmounted stays, dead (docs/semantics.md)",
    seconds: 60,
};
/// Deadline of what opens pools.
pub const OPEN: Deadline = Deadline {
    commands: "`zpool import`, and the first command after the daemon ended",
    state: "while devices answer or fail",
    seconds: 60,
};

/// Rows of the table, all of them.
#[cfg(test)]
const TABLE: [Deadline; 6] = [LOOK, READ, CHANGE, FORCE, CUT, OPEN];

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever scripts around a command looks its deadline up: the page and what is checked must be the same.
    #[test]
    fn the_page_has_every_deadline() {
        let page = include_str!("../../../../docs/deadlines.md");
        for Deadline { commands, state, seconds } in TABLE {
            let row = format!("| {commands} | {state} | {seconds} s |");
            assert!(page.contains(&row), "docs/deadlines.md lacks: {row}");
        }
        assert_eq!(page.lines().filter(|line| line.starts_with("| `") || line.starts_with("| every")).count(), TABLE.len());
    }
}
