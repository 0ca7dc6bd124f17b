//! Leaves that sit out of a pool: which are told to, and when that is over (OpenZFS: `vdev_raidz_sit_child`, `vdev_raidz_unsit_child`).

use crate::Zio;
use leaf::Spell;
use ondisk::Guid;

impl Zio {
    /// Has reads pass over the leaf with this guid while parity or another copy does: it goes on being written to, and scrubs and resilvers read it.
    /// False, and nothing changes, where the redundancy of its vdev does not make up for it beside those that sit out or lack blocks already.
    pub fn sit_out(&self, leaf: Guid, spell: Spell) -> bool {
        let snapshot = self.core.snapshot();
        let leaves = &self.core.leaves;
        let can = |id| snapshot.view.tree.can_sit_out(id, &|other| leaves.sits_out(snapshot.stats(other)));
        let Some(id) = snapshot.find(leaf).filter(|id| can(*id)) else { return false };
        leaves.sit_out(snapshot.stats(id), spell);
        true
    }

    /// True while reads pass over the leaf with this guid.
    pub fn sits_out(&self, leaf: Guid) -> bool {
        self.core.leaves.sits_out(&self.core.leaves.stats_of(leaf))
    }

    /// Changes for how many seconds leaves sit out that are found to be slow; with 0 none does, whoever said so (OpenZFS: `vdev_read_sit_out_secs`).
    pub fn set_sit_out_seconds(&self, seconds: u64) {
        self.core.leaves.set_sit_out_seconds(seconds);
    }

    /// True unless no leaf is to sit out.
    pub fn may_sit_out(&self) -> bool {
        self.core.leaves.may_sit_out()
    }
}
