//! Blocks that ordinary reads could not have, until the next sync puts them into the error log (OpenZFS: `spa_log_error`,
//! `spa_errlist_last`).

use exec::Mutex;
use ondisk::{Bookmark, Txg};
use std::collections::BTreeMap;

/// Blocks remembered between two syncs; more errors than that in a few seconds tell nothing new.
const REMEMBERED_MAX: usize = 4096;

/// The blocks, with their births. Costs nothing until a read fails.
#[derive(Debug, Default)]
pub struct LostBlocks(Mutex<BTreeMap<Bookmark, Txg>>);

impl LostBlocks {
    /// The block at `at`, born in `birth`, could not be read.
    pub fn note(&self, at: &Bookmark, birth: Txg) {
        let mut lost = self.0.lock();
        if lost.len() < REMEMBERED_MAX || lost.contains_key(at) {
            lost.insert(*at, birth);
        }
    }

    /// Places and births of the blocks noted so far.
    pub(crate) fn list(&self) -> Vec<(Bookmark, Txg)> {
        self.0.lock().iter().map(|(at, birth)| (*at, *birth)).collect()
    }

    /// Forgets blocks that are in the log now.
    pub(crate) fn forget(&self, logged: &[(Bookmark, Txg)]) {
        let mut lost = self.0.lock();
        for (at, birth) in logged {
            if lost.get(at) == Some(birth) {
                lost.remove(at);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
