//! Healing: everything is done that gives the pool its redundancy back; then devices are left out to see whether it has it.

use super::life::{Life, leaf};
use super::survival::{Health, is_replaced, number_of, suffices};
use super::written::said;
use ondisk::Guid;
use pool::{PoolError, ScanStatus};
use vdev::{Leaf, NodeKind, Pairing};

/// Number of resilvers that may follow each other until nothing is missing.
const ROUNDS_MAX: usize = 6;

impl Life {
    /// Ends faults, brings everybody back, replaces what is dead; resilver and scrub to their ends. Then nothing is hurt.
    pub fn heal(&mut self) -> Result<(), String> {
        self.report.count("healings");
        self.sim.disarm();
        self.is_faulty = false;
        said("rebuild", self.pool()?.rebuild_wait())?;
        self.harm.left.clear();
        for _ in 0..ROUNDS_MAX {
            self.bury_all()?;
            for (device, guid) in self.members()? {
                let tree = self.pool()?.tree();
                // A spare goes by itself when the device that it stood in for comes back.
                let Some(id) = tree.leaf_by_guid(guid) else { continue };
                if !tree.leaf(id).state.is_usable() && !self.harm.dead.contains(&device) {
                    self.online(device, guid)?;
                }
            }
            said("clear", self.pool()?.clear(None))?;
            self.finish_scans()?;
            if self.is_healed()? {
                break;
            }
        }
        if !self.is_healed()? {
            let tree = self.pool()?.tree();
            let of = |leaf: &vdev::Leaf| format!("{} {:?} lacks {:?} ({:?})", leaf.path, leaf.state, leaf.missing_txgs, leaf.resilver_txg);
            let leaves: Vec<_> = tree.leaves.iter().map(of).collect();
            return Err(format!("after {ROUNDS_MAX} resilvers: {leaves:?}, {:?}", self.pool()?.scan_status()));
        }
        self.prove()?;
        self.dismiss_spares()
    }

    /// Proves that a scrub finds nothing that can't be repaired, and the pool has its redundancy. Where nothing was damaged without anybody's
    /// knowledge, resilvers alone gave that back: then it is looked at before the scrub, which would hide what they left out, and the scrub
    /// has nothing to repair.
    fn prove(&mut self) -> Result<(), String> {
        let is_known = self.members()?.iter().all(|(device, _)| !self.harm.tainted.contains(device) || self.harm.left.contains(device));
        if is_known {
            self.report.count("losses after resilvers");
            self.harm.count_as_whole();
            self.lose()?;
        }
        self.start_scrub()?;
        said("scrub", self.pool()?.scrub_wait())?;
        let is_bad = |status: &ScanStatus| status.errors != 0 || (is_known && status.repaired != 0);
        if let Some(status) = self.pool()?.scan_status().filter(is_bad) {
            return Err(format!("the scrub found something after resilvers: {status:?}"));
        }
        self.harm.count_as_whole();
        self.check("after healing")?;
        if is_known { Ok(()) } else { self.lose() }
    }

    /// Runs rebuild and resilver to their ends.
    fn finish_scans(&self) -> Result<(), String> {
        said("rebuild", self.pool()?.rebuild_wait())?;
        said("resilver", self.pool()?.scrub_wait())?;
        said("sync", self.pool()?.sync())
    }

    /// True when every member has everything, but for those that are left to their spares.
    fn is_healed(&self) -> Result<bool, String> {
        let tree = self.pool()?.tree();
        let lacks = |leaf: &&Leaf| !leaf.state.is_usable() || !leaf.missing_txgs.is_empty();
        let lacking: Vec<usize> =
            tree.leaves.iter().filter(lacks).map(number_of).filter(|device| !self.harm.left.contains(device)).collect();
        let is_buried = self.members()?.iter().all(|(device, _)| !self.harm.dead.contains(device) || self.harm.left.contains(device));
        let is_rebuilding = self.pool()?.is_rebuilding() || tree.leaves.iter().any(|leaf| leaf.rebuild_txg.0 != 0);
        Ok(lacking.is_empty() && is_buried && !tree.is_replacing() && !is_rebuilding)
    }

    fn bury_all(&mut self) -> Result<(), String> {
        for (device, guid) in self.members()? {
            if self.harm.dead.contains(&device) && !self.harm.left.contains(&device) {
                self.bury(device, guid)?;
            }
        }
        Ok(())
    }

    /// Gives a dead device a successor, unless it has one.
    fn bury(&mut self, device: usize, guid: Guid) -> Result<(), String> {
        let tree = self.pool()?.tree();
        let Some(id) = tree.leaf_by_guid(guid) else { return Ok(()) };
        let is_in_spare = tree.parent_kind(id) == Some(NodeKind::Spare);
        if tree.parent_kind(id) == Some(NodeKind::Replacing) || (is_in_spare && tree.leaf(id).is_spare) {
            // A replacement or a spare that died goes; a device that died beside its replacement goes when that has everything.
            return match self.pool()?.detach(guid) {
                Ok(()) | Err(PoolError::NoReplicas) => Ok(()),
                Err(error) => Err(format!("detach dead d{device}: {error}")),
            };
        }
        if is_in_spare && self.below(3) > 0 && self.leave_to_spare(device, guid)? {
            return Ok(());
        }
        if self.unused()?.is_none() {
            // Another member that is being replaced keeps the last free device until its resilver ends.
            self.finish_scans()?;
        }
        // The next round may find one that has become free; that all is well in the end is looked at there.
        let Some(new) = self.free_device()? else { return self.release_spare(guid) };
        match self.pool()?.attach(guid, &leaf(&self.devices[new]), Pairing::Replacing, true) {
            // It went meanwhile.
            Err(PoolError::NoSuchDevice) => Ok(()),
            done => said("replace", done),
        }
    }

    /// Lets a dead device that is being replaced go when its spare is gone: the device that takes its place has everything.
    fn release_spare(&mut self, guid: Guid) -> Result<(), String> {
        let tree = self.pool()?.tree();
        let Some(id) = tree.leaf_by_guid(guid) else { return Ok(()) };
        let is_going = tree.tops.iter().filter_map(|top| top.node.as_ref()).any(|node| is_replaced(node, id));
        let Some(spare) = tree.successor(id).map(|spare| tree.leaf(spare).clone()).filter(|spare| is_going && spare.is_spare) else {
            return Ok(());
        };
        let health = |id| match tree.leaf(id) {
            leaf if self.harm.tainted.contains(&number_of(leaf)) => Health::Tainted,
            leaf if leaf.guid == spare.guid || !leaf.state.is_usable() || !leaf.missing_txgs.is_empty() => Health::Lacking,
            _ => Health::Whole,
        };
        if !tree.tops.iter().all(|top| top.node.as_ref().is_some_and(|node| suffices(node, &health))) {
            return Ok(());
        }
        match self.pool()?.detach(spare.guid) {
            Ok(()) | Err(PoolError::NoReplicas) => Ok(()),
            Err(error) => Err(format!("detach the spare of a device that is replaced: {error}")),
        }
    }

    /// Lets the spare beside a dead device take its place for good, or for as long as it takes; false when it can't.
    fn leave_to_spare(&mut self, device: usize, guid: Guid) -> Result<bool, String> {
        self.finish_scans()?;
        let tree = self.pool()?.tree();
        // A device that is being replaced together with its spare goes when its successor is whole and the spare is gone, not before.
        if tree.is_replacing() {
            return Ok(false);
        }
        let Some(id) = tree.leaf_by_guid(guid) else { return Ok(true) };
        let Some(spare) = tree.successor(id).map(|spare| tree.leaf(spare)) else { return Ok(false) };
        if !spare.state.is_usable() || !spare.missing_txgs.is_empty() || self.harm.dead.contains(&number_of(spare)) {
            return Ok(false);
        }
        if spare.draid_spare.is_none() && self.below(2) == 0 {
            return match self.pool()?.detach(guid) {
                Ok(()) => {
                    self.report.count("promotions");
                    Ok(true)
                }
                Err(PoolError::NoReplicas) => Ok(false),
                Err(error) => Err(format!("detach d{device} beside its spare: {error}")),
            };
        }
        said("fault", self.pool()?.fault(guid, false))?;
        let tree = self.pool()?.tree();
        if tree.leaf_by_guid(guid).is_none_or(|id| tree.leaf(id).state.is_usable()) {
            return Ok(false);
        }
        self.report.count("left to spares");
        self.harm.left.insert(device);
        Ok(true)
    }

    /// Dismisses some spares whose devices are whole again.
    fn dismiss_spares(&mut self) -> Result<(), String> {
        for (key, guid, original) in self.spares_in_use()? {
            if original.is_some_and(|original| !self.harm.left.contains(&original)) && self.below(2) == 0 {
                self.report.count("dismissals");
                said(&format!("detach spare {key}"), self.pool()?.detach(guid))?;
            }
        }
        self.check("after healing")
    }

    /// Takes as many devices away as the pool bears, others each time: everything is read, and nothing has to be repaired.
    pub fn lose(&mut self) -> Result<(), String> {
        let members: Vec<usize> = self.members()?.into_iter().map(|(device, _)| device).collect();
        let mut away = self.harm.left.clone();
        for _ in 0..members.len() {
            let device = members[self.below(members.len() as u64) as usize];
            if !away.contains(&device) && self.bears(device, Health::Lacking)? {
                away.insert(device);
                self.harm.hurt.insert(device);
            }
        }
        self.harm.hurt.clone_from(&self.harm.left);
        let pool = self.pool.take().ok_or("the pool is closed")?;
        said("export", pool.export())?;
        let there: Vec<usize> = members.iter().copied().filter(|device| !away.contains(device)).collect();
        {
            let pool = said("import without some", self.import(&there, true))?;
            self.check_pool(&pool, &format!("without {away:?}"))?;
            let report = said("space", pool.verify_space())?;
            let errors: u64 = pool.status().leaves.iter().map(|leaf| leaf.counts.checksum_errors).sum();
            if !report.is_clean() || errors != 0 {
                return Err(format!("without {away:?}: {errors} checksum errors, space {report:?}"));
            }
        }
        self.report.count("losses");
        let all: Vec<usize> = (0..self.devices.len()).collect();
        self.pool = Some(said("import", self.import(&all, false))?);
        self.check("after the losses")
    }
}
