//! Redaction lists that somebody uses: the bookmarks that have them are not destroyed meanwhile (OpenZFS: `dsl_redaction_list_long_hold`).

use super::tree::Tree;
use crate::DslError;
use crate::redaction::{self, RedactedRun, Redaction};
use exec::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Lists that are used, by object, with the number of those who do.
#[derive(Default)]
pub(super) struct HeldLists(Mutex<BTreeMap<u64, u64>>);

impl HeldLists {
    /// True for a list that somebody uses.
    pub(super) fn has(&self, object: u64) -> bool {
        self.0.lock().contains_key(&object)
    }

    fn add(&self, object: u64) {
        *self.0.lock().entry(object).or_default() += 1;
    }

    fn remove(&self, object: u64) {
        let mut held = self.0.lock();
        match held.get_mut(&object) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                held.remove(&object);
            }
        }
    }
}

/// A bookmark's list of what was redacted. The bookmark is not destroyed while this lives.
pub struct RedactionList {
    tree: Arc<Tree>,
    held: Arc<HeldLists>,
    object: u64,
    facts: Redaction,
}

impl std::fmt::Debug for RedactionList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RedactionList {{ object: {}, facts: {:?} }}", self.object, self.facts)
    }
}

impl Drop for RedactionList {
    fn drop(&mut self) {
        self.held.remove(self.object);
    }
}

impl RedactionList {
    /// Holds the list with this object.
    pub(super) fn hold(tree: &Arc<Tree>, held: &Arc<HeldLists>, object: u64) -> Result<RedactionList, DslError> {
        let facts = redaction::read(&tree.meta, object)?;
        held.add(object);
        Ok(RedactionList { tree: tree.clone(), held: held.clone(), object, facts })
    }

    /// Object of the list in the MOS.
    pub(super) fn object(&self) -> u64 {
        self.object
    }

    /// Facts of the list, as of when it was held.
    pub fn facts(&self) -> &Redaction {
        &self.facts
    }

    /// Runs of blocks, so many from this one on, in order of object and block; fewer at the end.
    ///
    /// # Errors
    /// [`DslError::Corrupt`], those of reading the MOS.
    pub fn runs(&self, first: u64, count: u64) -> Result<Vec<RedactedRun>, DslError> {
        redaction::runs(&self.tree.meta, self.object, first, count)
    }
}
