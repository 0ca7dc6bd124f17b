//! Spares: devices on the pool's list, and the distributed ones of dRAID, which stand in for members and go again.

use super::life::{Life, leaf, said};
use super::survival::{Health, number, number_of, spare_number};
use device::BlockDevice;
use ondisk::Guid;
use pool::{AddSpec, PoolError, Spare};
use std::sync::Arc;
use vdev::{Leaf, NodeKind, Pairing};

/// Listed spares at most, besides distributed ones.
const LISTED_MAX: usize = 2;

impl Life {
    fn listed(&self) -> Result<Vec<Spare>, String> {
        Ok(self.pool()?.spares().into_iter().filter(|spare| !spare.is_distributed()).collect())
    }

    /// A device that is free, if need be one that is taken off the list of spares.
    pub fn free_device(&mut self) -> Result<Option<usize>, String> {
        if let Some(free) = self.unused()? {
            return Ok(Some(free));
        }
        let Some(spare) = self.listed()?.into_iter().find(|spare| !spare.in_use) else { return Ok(None) };
        let device = number(&spare.path);
        said("remove a spare", self.pool()?.remove_aux(spare.guid, Some(self.devices[device].clone())))?;
        self.report.count("spares removed");
        Ok(Some(device))
    }

    pub fn add_spare(&mut self) -> Result<(), String> {
        let Some(new) = self.unused()? else { return Ok(()) };
        if self.listed()?.len() >= LISTED_MAX {
            return Ok(());
        }
        match self.pool()?.add(AddSpec { spares: vec![leaf(&self.devices[new])], force: true, ..AddSpec::default() }) {
            Ok(()) => self.report.count("spares added"),
            // A label cannot be written to a device that fails.
            Err(_) if self.hurt.contains(&new) => {}
            Err(error) => return Err(format!("add spare d{new}: {error}")),
        }
        Ok(())
    }

    /// A spare stands in for a member, and is resilvered or rebuilt.
    pub fn spare_in(&mut self) -> Result<(), String> {
        let free: Vec<Spare> = self.pool()?.spares().into_iter().filter(|spare| !spare.in_use).collect();
        if free.is_empty() {
            return self.add_spare();
        }
        let spare = &free[self.below(free.len() as u64) as usize];
        let members = self.members()?;
        let (_, any) = members[self.below(members.len() as u64) as usize];
        // That is what spares are for.
        let dead = members.iter().find(|(device, _)| self.dead.contains(device)).map(|(_, guid)| *guid);
        let target = dead.filter(|_| self.below(2) == 0).unwrap_or(any);
        let (key, by_path) = (spare_number(spare), self.below(2) == 0);
        // A rebuild looks at no checksum: what nobody knows of a device would be copied.
        let sequential = self.tainted.is_empty() && self.below(2) == 0;
        let (pool, device) = (self.pool()?, self.devices.get(key).cloned());
        let done = match device {
            // As `zpool replace` does it, which finds out that it is a spare.
            Some(device) if by_path && !self.hurt.contains(&key) => match sequential {
                true => pool.attach_sequential(target, &leaf(&device), Pairing::Replacing, true),
                false => pool.attach(target, &leaf(&device), Pairing::Replacing, true),
            },
            device => pool.spare_in(target, spare.guid, device.map(|device| device as Arc<dyn BlockDevice>), sequential),
        };
        match done {
            Ok(()) => {
                self.hurt.insert(key);
                self.tainted.remove(&key);
                self.dead.remove(&key);
                let listed = if sequential { "spares rebuilt" } else { "spares resilvered" };
                self.report.count(if spare.is_distributed() { "distributed spares" } else { listed });
                self.check("after a spare came")
            }
            Err(PoolError::Target(_) | PoolError::Rebuilding | PoolError::Scan(_) | PoolError::Device { .. }) => Ok(()),
            // A label cannot be written to a device that fails.
            Err(_) if self.hurt.contains(&key) => Ok(()),
            Err(error) => Err(format!("spare {key}: {error}")),
        }
    }

    /// Number and guid of the spares that stand in for others now, with the device that each stands in for.
    pub fn spares_in_use(&self) -> Result<Vec<(usize, Guid, Option<usize>)>, String> {
        let tree = self.pool()?.tree();
        let original = |spare: &Leaf| {
            let id = tree.leaf_by_guid(spare.guid)?;
            tree.siblings(id).first().filter(|first| **first != id).map(|first| number_of(tree.leaf(*first)))
        };
        // A distributed spare whose device was detached is a member.
        let stands_in = |leaf: &&Leaf| {
            let id = tree.leaf_by_guid(leaf.guid).filter(|_| leaf.is_spare);
            id.is_some_and(|id| tree.parent_kind(id) == Some(NodeKind::Spare))
        };
        Ok(tree.leaves.iter().filter(stands_in).map(|leaf| (number_of(leaf), leaf.guid, original(leaf))).collect())
    }

    /// A spare goes back on the list.
    pub fn spare_out(&mut self) -> Result<(), String> {
        let spares = self.spares_in_use()?;
        if spares.is_empty() {
            return self.add_spare();
        }
        let (key, guid, _) = spares[self.below(spares.len() as u64) as usize];
        if !self.bears(key, Health::Lacking)? {
            return Ok(());
        }
        match self.pool()?.detach(guid) {
            Ok(()) => {
                self.report.count("spares returned");
                self.check("after a spare went")
            }
            Err(PoolError::NoReplicas | PoolError::Target(_)) => Ok(()),
            Err(error) => Err(format!("detach spare {key}: {error}")),
        }
    }
}
