//! Claimed intent logs of encrypted datasets, which wait for their keys (docs/adr/0015). They are replayed before anybody has what is in the datasets, or
//! they go with it: a dataset that is destroyed, rolled back or received into takes its log along.

use exec::Mutex;
use ondisk::{BlockPtr, VdevId};
use std::collections::BTreeMap;

/// Log that waits.
#[derive(Clone, Debug)]
pub(crate) struct WaitingLog {
    /// Blocks that are the log's own, all in the space maps: nobody has to read it to free it.
    pub(crate) blocks: Vec<BlockPtr>,
    /// Description of what cut it short, if anything did.
    pub(crate) cut: Option<String>,
}

/// Log that waits, or that somebody replays.
struct Entry {
    log: WaitingLog,
    is_taken: bool,
}

/// Logs that wait, by the object of their dataset.
#[derive(Default)]
pub(crate) struct WaitingLogs(Mutex<BTreeMap<u64, Entry>>);

impl WaitingLogs {
    /// Has a log wait.
    pub(crate) fn add(&self, head: u64, log: WaitingLog) {
        self.0.lock().insert(head, Entry { log, is_taken: false });
    }

    /// True for a dataset whose log waits, or is being replayed.
    pub(crate) fn has(&self, head: u64) -> bool {
        self.0.lock().contains_key(&head)
    }

    /// Objects of the datasets whose logs wait.
    pub(crate) fn all(&self) -> Vec<u64> {
        self.0.lock().keys().copied().collect()
    }

    /// Objects of the datasets whose waiting logs have blocks on a vdev.
    pub(crate) fn on(&self, vdev: VdevId) -> Vec<u64> {
        let is_there = |entry: &Entry| entry.log.blocks.iter().any(|bp| bp.dvas().any(|dva| dva.vdev == vdev));
        self.0.lock().iter().filter(|(_, entry)| is_there(entry)).map(|(head, _)| *head).collect()
    }

    /// Takes a log to replay it; None for one that does not wait, or that somebody else took.
    pub(crate) fn take(&self, head: u64) -> Option<WaitingLog> {
        let mut logs = self.0.lock();
        let entry = logs.get_mut(&head).filter(|entry| !entry.is_taken)?;
        entry.is_taken = true;
        Some(entry.log.clone())
    }

    /// Gives back a log that was taken: it waits on, unless it was replayed and is gone.
    pub(crate) fn give_back(&self, head: u64, is_replayed: bool) {
        let mut logs = self.0.lock();
        if is_replayed {
            logs.remove(&head);
        } else if let Some(entry) = logs.get_mut(&head) {
            entry.is_taken = false;
        }
    }

    /// Gives up the log of a dataset whose contents go; its blocks are to be freed.
    pub(super) fn give_up(&self, head: u64) -> Vec<BlockPtr> {
        self.0.lock().remove(&head).map_or_else(Vec::new, |entry| entry.log.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::Dva;

    /// If this fails, who wants a log device out is not told whose key it waits for, or loses what was made durable.
    #[test]
    fn logs_that_wait_are_known_by_their_vdevs() {
        let block = |vdev: u32| {
            let mut bp = BlockPtr::HOLE;
            bp.set_dva(0, Dva { vdev: VdevId(vdev), offset: 4096, asize: 4096, ..Dva::default() });
            bp
        };
        let logs = WaitingLogs::default();
        logs.add(54, WaitingLog { blocks: vec![block(0), block(3)], cut: None });
        logs.add(60, WaitingLog { blocks: vec![block(0)], cut: None });
        assert_eq!((logs.on(VdevId(3)), logs.on(VdevId(0)), logs.on(VdevId(1))), (vec![54], vec![54, 60], vec![]));
    }
}
