//! Why a txg is not on disk, and who is told.

use crate::spa::services::Services;
use ondisk::Txg;
use std::fmt;
use zio::{ZioError, whose};

/// Reason why a txg is not on disk: from then on the pool changes nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// The txg; the one before is the newest on disk.
    pub txg: Txg,
    /// Name of the part of the sync that failed.
    pub step: &'static str,
    /// The block that could not be read or written, where it was for one: object set, object, level and number, and where it was looked for.
    pub block: Option<ZioError>,
    /// Name of the dataset that the block is of; none of the pool's own metadata.
    pub dataset: Option<String>,
    /// Paths of the devices that had errors meanwhile.
    pub devices: Vec<String>,
    /// Description of what went wrong, with its causes.
    pub why: String,
}

impl fmt::Display for SyncFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "txg {} could not be written ({}): ", self.txg, self.step)?;
        match &self.block {
            Some(error) => fmt::Display::fmt(error, f)?,
            None => f.write_str(&self.why)?,
        }
        if self.devices.is_empty() { Ok(()) } else { write!(f, "; devices with errors: {}", self.devices.join(", ")) }
    }
}

impl SyncFailure {
    /// Advice for whoever has such a pool.
    pub const ACTION: &'static str = "Export the pool with 'zpool export -f' and import it again: it has what was\n\ton disk with the txg before.  \
                                      If that fails again, import it with '-o readonly=on'\n\tand copy what can be read.";

    /// Returns the words about a pool that writes nothing any more: for want of what, of which dataset, and why.
    pub fn status(&self) -> String {
        let of = self.whose().map_or_else(String::new, |whose| format!(", for want of a block of {whose}"));
        format!("The pool writes nothing any more{of}:\n\t{self}.")
    }

    /// The owner of the block, in words.
    fn whose(&self) -> Option<String> {
        self.block.map(|error| whose(error.bookmark.objset, self.dataset.as_deref()))
    }

    /// One line that says all of it.
    fn line(&self) -> String {
        let plain = |text: String| text.replace("\n\t", " ");
        format!("{} {}", plain(self.status()), plain(Self::ACTION.to_string()))
    }

    /// Says it: in the log, and as an event with the block that it failed on. OpenZFS has no such event: its module would panic.
    pub(super) fn tell(&self, services: &Services) {
        let (name, line) = (services.name.read().clone(), self.line());
        tracing::error!("pool '{name}': {line}");
        tracing::debug!("pool '{name}': txg {}: {}", self.txg, self.why);
        let mut event = services.event("ereport.fs.zfs.sync_failed").with("txg", self.txg.0).with("why", self.to_string());
        event = event.with("action", Self::ACTION.replace("\n\t", " ")).with("devices", self.devices.join(" "));
        if let Some(error) = &self.block {
            let at = &error.bookmark;
            event = event.with("zio_objset", at.objset.0).with("zio_object", at.object.0);
            event = event.with("zio_level", i64::from(at.level.0)).with("zio_blkid", at.block.0);
            event = event.with("dataset", self.whose().unwrap_or_default());
        }
        services.events.event(event);
    }
}
