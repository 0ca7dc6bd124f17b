//! What the sync of a txg is made of: steps, each with a name and state of its own, run in order.

use super::spacemap::SpaceMaps;
use crate::PoolError;
use crate::spa::adapter::WaitsFor;
use dmu::Tx;
use ondisk::BlockPtr;

/// One thing that every txg's sync does. Only the sync runs it, one at a time; it may wait.
pub(crate) trait SyncStep: Send {
    /// Name of the step in the log of debug messages.
    fn name(&self) -> &'static str;

    /// Condition that it waits for when it cannot read a block.
    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Block
    }

    /// Does it, in syncing context.
    fn run(&mut self, at: &mut Syncing<'_>) -> Result<(), PoolError>;
}

/// A txg that is being synced, as its steps see it.
pub(crate) struct Syncing<'a> {
    pub tx: &'a Tx,
    /// Number of the pass over the MOS, from 1.
    pub pass: u32,
    /// The space maps on disk.
    pub maps: &'a mut SpaceMaps,
    /// The MOS's root, once a pass wrote one.
    pub root: Option<BlockPtr>,
    /// The configuration changed: labels are to say so.
    pub config_dirty: bool,
    /// True when this pass wrote something, and may so have changed what the next one has to write.
    pub unsettled: bool,
}

/// The steps of a sync in their order.
pub(crate) struct Steps {
    /// Run once a txg.
    pub once: Vec<Box<dyn SyncStep>>,
    /// Run in every pass over the MOS, until nothing changes any more.
    pub passes: Vec<Box<dyn SyncStep>>,
}
