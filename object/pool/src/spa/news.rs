//! What scans and sequential rebuilds tell the dirty time logs; the sync writes it down.

use ondisk::{Txg, VdevId};
use scan::ScanOutcome;

/// What a scan tells the dirty time logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanNews {
    /// A resilver of what was born up to this txg began.
    pub resilver_began: Option<Txg>,
    /// A scan saw everything.
    pub outcome: Option<ScanOutcome>,
}

/// What a rebuild tells the dirty time logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebuildNews {
    /// It began for what leaves lack up to the txg.
    Began(VdevId, Txg),
    /// It ended, and they have all of it; or it ended without.
    Ended(VdevId, Txg, bool),
}
