//! What this process's intent logs wrote (OpenZFS: kstat `zil`). Counters only grow.

use kstat::Sheet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counted {
    ($($(#[$about:meta])* $variant:ident = $name:literal,)*) => {
        /// Events in the life of intent logs that are counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum ZilEvent {
            $($(#[$about])* $variant,)*
        }

        /// All, with OpenZFS's names.
        const ALL: &[(ZilEvent, &str)] = &[$((ZilEvent::$variant, $name),)*];
    };
}

counted! {
    /// Commits that were asked for.
    Commits = "zil_commit_count",
    /// Batches of records that were written.
    Writers = "zil_commit_writer_count",
    /// Batches that could not be written: their txgs were waited for.
    Errors = "zil_commit_error_count",
    /// Batches for which there was no room.
    Stalls = "zil_commit_stall_count",
    /// Commits that waited for the txg, since the log was closed or paused.
    Suspended = "zil_commit_suspend_count",
    /// Operations that were noted.
    Noted = "zil_itx_count",
    /// Writes that named a block.
    IndirectCount = "zil_itx_indirect_count",
    /// Bytes of these.
    IndirectBytes = "zil_itx_indirect_bytes",
    /// Writes that came with their bytes.
    CopiedCount = "zil_itx_copied_count",
    /// Bytes of these.
    CopiedBytes = "zil_itx_copied_bytes",
    /// Writes whose bytes were copied by the commit.
    NeedCopyCount = "zil_itx_needcopy_count",
    /// Bytes of these.
    NeedCopyBytes = "zil_itx_needcopy_bytes",
    /// Blocks that went to data devices.
    NormalCount = "zil_itx_metaslab_normal_count",
    /// Bytes of these that count.
    NormalBytes = "zil_itx_metaslab_normal_bytes",
    /// Bytes of these that were written.
    NormalWrite = "zil_itx_metaslab_normal_write",
    /// Bytes of these that were allocated.
    NormalAlloc = "zil_itx_metaslab_normal_alloc",
    /// Blocks that went to log devices.
    SlogCount = "zil_itx_metaslab_slog_count",
    /// Bytes of these that count.
    SlogBytes = "zil_itx_metaslab_slog_bytes",
    /// Bytes of these that were written.
    SlogWrite = "zil_itx_metaslab_slog_write",
    /// Bytes of these that were allocated.
    SlogAlloc = "zil_itx_metaslab_slog_alloc",
}

static SHEET: LazyLock<Sheet> = LazyLock::new(|| Sheet::new(ALL.len()));

/// Counters of one log. What they count, those of the process count as well.
#[derive(Debug, Default)]
pub(crate) struct LogCounts([AtomicU64; ALL.len()]);

impl LogCounts {
    /// Adds to the counter of an event.
    pub(crate) fn add(&self, event: ZilEvent, amount: u64) {
        SHEET.row().add(event as usize, amount);
        self.0[event as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts a block that was written: the bytes of it that count, that went to the devices, and that it occupies.
    pub(crate) fn add_block(&self, is_separate: bool, [used, written, allocated]: [u64; 3]) {
        let events = match is_separate {
            false => [ZilEvent::NormalCount, ZilEvent::NormalBytes, ZilEvent::NormalWrite, ZilEvent::NormalAlloc],
            true => [ZilEvent::SlogCount, ZilEvent::SlogBytes, ZilEvent::SlogWrite, ZilEvent::SlogAlloc],
        };
        events.into_iter().zip([1, used, written, allocated]).for_each(|(event, amount)| self.add(event, amount));
    }

    /// The counters, by OpenZFS's names.
    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        ALL.iter().map(|(event, name)| (*name, self.0[*event as usize].load(Ordering::Relaxed))).collect()
    }
}

/// The counters of all intent logs of this process together, by OpenZFS's names.
pub fn zil_counts() -> Vec<(&'static str, u64)> {
    ALL.iter().map(|(event, name)| (*name, SHEET.get(*event as usize))).collect()
}
