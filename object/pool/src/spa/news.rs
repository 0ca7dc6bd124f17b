//! What scans and sequential rebuilds tell the dirty time logs; the sync writes it down.

use ondisk::{Txg, VdevId};
use scan::ScanOutcome;

/// News of a scan for the dirty time logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanNews {
    /// Txg up to which a resilver that began brings what was born.
    pub resilver_began: Option<Txg>,
    /// Result of a scan that saw everything.
    pub outcome: Option<ScanOutcome>,
}

/// News of a rebuild for the dirty time logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebuildNews {
    /// Rebuild began for what leaves lack up to the txg.
    Began(VdevId, Txg),
    /// Rebuild ended for what leaves lack up to the txg; true when they have all of it.
    Ended(VdevId, Txg, bool),
}
