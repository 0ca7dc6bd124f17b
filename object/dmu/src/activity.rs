//! What this process's transactions and dnodes went through (OpenZFS: kstats `dmu_tx` and `dnodestats`). Counters only grow.

use kstat::Sheet;
use std::sync::LazyLock;

macro_rules! counted {
    ($(#[$about:meta])* $what:ident: $($(#[$of_one:meta])* $variant:ident = $name:literal,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $what {
            $($(#[$of_one])* $variant,)*
        }

        impl $what {
            /// Events of this kind, all of them, with OpenZFS's names.
            pub const ALL: &'static [($what, &'static str)] = &[$(($what::$variant, $name),)*];
        }
    };
}

counted! {
    /// Events in the life of a transaction that are counted.
    TxEvent:
    /// Transaction was assigned to a txg.
    Assigned = "dmu_tx_assigned",
    /// Transaction got no txg: the pool is being closed, or failed.
    Error = "dmu_tx_error",
    /// Transaction got no txg: the pool is suspended, and nobody is to wait for it.
    Suspended = "dmu_tx_suspended",
    /// Transaction waited for the previous txg to let go of its holds.
    Group = "dmu_tx_group",
    /// Transaction was held up because much is dirty.
    DirtyThrottle = "dmu_tx_dirty_throttle",
    /// Transaction was delayed by the dirty throttle.
    DirtyDelay = "dmu_tx_dirty_delay",
    /// Transaction waited until less is dirty.
    DirtyOverMax = "dmu_tx_dirty_over_max",
    /// Transaction was refused by a quota, or by want of space.
    Quota = "dmu_tx_quota",
}

counted! {
    /// Events in the life of a dnode that are counted.
    DnodeEvent:
    /// Dnode was wanted and is in memory.
    HoldHit = "dnode_hold_alloc_hits",
    /// Dnode was wanted and had to be made from its record.
    HoldMiss = "dnode_hold_alloc_misses",
    /// Object number was wanted that no object has.
    HoldNone = "dnode_hold_alloc_type_none",
    /// Object number was given to a new object.
    Allocated = "dnode_allocate",
    /// Dnode left the memory: nobody held it.
    Evicted = "dnode_buf_evict",
    /// The search for a free number went on in another block.
    NextBlock = "dnode_alloc_next_block",
}

static TX: LazyLock<Sheet> = LazyLock::new(|| Sheet::new(TxEvent::ALL.len()));
static DNODE: LazyLock<Sheet> = LazyLock::new(|| Sheet::new(DnodeEvent::ALL.len()));

impl TxEvent {
    /// Adds one to the counter of this event.
    pub fn count(self) {
        TX.row().add(self as usize, 1);
    }
}

impl DnodeEvent {
    pub(crate) fn count(self) {
        self.add(1);
    }
    pub(crate) fn add(self, amount: u64) {
        DNODE.row().add(self as usize, amount);
    }
}

/// The counters of transactions, by OpenZFS's names.
pub fn tx_counts() -> Vec<(&'static str, u64)> {
    TxEvent::ALL.iter().map(|(what, name)| (*name, TX.get(*what as usize))).collect()
}

/// The counters of dnodes, by OpenZFS's names.
pub fn dnode_counts() -> Vec<(&'static str, u64)> {
    DnodeEvent::ALL.iter().map(|(what, name)| (*name, DNODE.get(*what as usize))).collect()
}
