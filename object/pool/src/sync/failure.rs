//! Why a txg is not on disk, and who is told.

use crate::spa::services::Services;
use ondisk::Txg;
use std::fmt;
use zio::ZioError;

/// Reason why a txg is not on disk: from then on the pool changes nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// The txg; the one before is the newest on disk.
    pub txg: Txg,
    /// The block that could not be read or written, where it was for one: object set, object, level and number, and where it was looked for.
    pub block: Option<ZioError>,
    /// Description of what went wrong.
    pub why: String,
}

impl fmt::Display for SyncFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "txg {} could not be written: ", self.txg)?;
        match &self.block {
            Some(error) => fmt::Display::fmt(error, f),
            None => f.write_str(&self.why),
        }
    }
}

impl SyncFailure {
    /// Says it: in the log, and as an event with the block that it failed on. OpenZFS has no such event: its module would panic.
    pub(super) fn tell(&self, services: &Services) {
        let name = services.name.read().clone();
        tracing::error!("pool '{name}': {self}");
        tracing::debug!("pool '{name}': txg {}: {}", self.txg, self.why);
        let mut event = services.event("ereport.fs.zfs.sync_failed").with("txg", self.txg.0).with("why", self.to_string());
        if let Some(error) = &self.block {
            let at = &error.bookmark;
            event = event.with("zio_objset", at.objset.0).with("zio_object", at.object.0);
            event = event.with("zio_level", u64::from(at.level.0)).with("zio_blkid", at.block.0);
        }
        services.events.event(event);
    }
}
