//! Replay of a volume's log: writes and holes, and nothing else (OpenZFS: `zvol_replay_vector`).

use super::{ReplayError, ReplayRecords, replay_error};
use crate::{DslError, volume};
use dmu::{Dnode, Objset, Tx};
use std::sync::Arc;
use zil::Record;

/// Volume whose log is replayed.
pub(super) struct Volume {
    data: Arc<Dnode>,
    /// Bytes of the volume.
    size: u64,
}

impl Volume {
    pub(super) fn open(objset: &Arc<Objset>) -> Result<Volume, DslError> {
        let (_, data) = volume::objects(objset)?;
        Ok(Volume { data, size: volume::size(objset)? })
    }
}

impl ReplayRecords for Volume {
    fn replay(&mut self, record: &Record<'_>, _: bool, data: &[u8], tx: &Tx) -> Result<(), ReplayError> {
        let done = match *record {
            Record::Write(write) => {
                // What lies behind the end nobody sees: the volume became smaller since.
                let seen = self.size.saturating_sub(write.offset).min(data.len() as u64) as usize;
                if seen == 0 { Ok(()) } else { self.data.write(write.offset, &data[..seen], tx) }
            }
            Record::Truncate { offset, length, .. } => {
                let seen = self.size.saturating_sub(offset).min(length);
                if seen == 0 { Ok(()) } else { self.data.free_range(offset, seen, tx) }
            }
            _ => return Err(ReplayError::Failed("a volume has no such record".to_string())),
        };
        done.map_err(|error| replay_error(error.into()))
    }
}
