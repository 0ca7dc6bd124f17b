//! Records of data: writes, holes, sizes.

use super::Replay;
use crate::ZplError;
use crate::data::{Allocate, grow_block};
use crate::nodes::Node;
use crate::znode::{CTIME, MTIME, flag};
use dmu::Tx;
use ondisk::ObjectId;
use zil::WriteRecord;

impl Replay {
    /// Writes, in whole blocks what came as one: what lies behind the record's end is in the block too, and is the file's only if a
    /// later record says so (OpenZFS: `zfs_replay_write`).
    pub(super) fn write(&self, write: &WriteRecord<'_>, data: &[u8], tx: &Tx) -> Result<(), ZplError> {
        let node = self.zfs.node(write.object)?;
        node.check_regular()?;
        if !data.is_empty() {
            node.dnode.prepare_write(write.offset, data.len())?;
            grow_block(&node, write.offset + data.len() as u64, self.zfs.store.record_size(), tx)?;
            node.dnode.write(write.offset, data, tx)?;
        }
        self.reach(&node, write.end, tx)
    }

    /// Makes a file at least so long: its bytes are there (OpenZFS: `zfs_replay_write2`).
    pub(super) fn extend(&self, object: ObjectId, end: u64, tx: &Tx) -> Result<(), ZplError> {
        let node = self.zfs.node(object)?;
        node.check_regular()?;
        grow_block(&node, end, self.zfs.store.record_size(), tx)?;
        self.reach(&node, end, tx)
    }

    fn reach(&self, node: &Node, end: u64, tx: &Tx) -> Result<(), ZplError> {
        let now = self.zfs.now();
        node.update(&self.zfs.store.sa, tx, |fields| {
            fields.size = fields.size.max(end);
            (fields.times[MTIME], fields.times[CTIME]) = (now, now);
            fields.flags |= flag::ARCHIVE | flag::AV_MODIFIED;
        })
    }

    /// Makes a hole; one without length reaches to the end of the file, which is its beginning then (OpenZFS: `zfs_replay_truncate`).
    pub(super) fn truncate(&self, object: ObjectId, offset: u64, length: u64) -> Result<(), ZplError> {
        let node = self.zfs.node(object)?;
        if length == 0 {
            return self.zfs.truncate(&node, offset);
        }
        if offset < node.fields().size {
            self.zfs.allocate(&node, offset, length, Allocate::Punch)?;
        }
        let end = offset + length;
        if end > node.fields().size { self.zfs.truncate(&node, end) } else { Ok(()) }
    }
}
