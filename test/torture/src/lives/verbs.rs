//! What can happen to a pool, its devices, and its spares: devices on the list, and the distributed ones of dRAID, which stand in for
//! members and go again.

use super::DEVICE_BYTES;
use super::life::{Life, leaf};
use super::survival::{Health, number, number_of, spare_number, suffices};
use super::written::said;
use device::{BlockDevice, DeviceError};
use ondisk::Guid;
use pool::{AddSpec, PoolError, ScanError, Spare, SweepAction, SweepKind};
use sim::{Fault, FaultKind, Image, OpKind};
use std::sync::Arc;
use vdev::{Leaf, LeafState, NodeKind, Pairing};

/// Number of listed spares at most, besides distributed ones.
const LISTED_MAX: usize = 2;
/// Number of members of a mirror at most.
const MIRROR_MAX: usize = 4;
/// Range of the data in bytes, between labels and boot block at the start and labels at the end: what is damaged is data.
const DATA: std::ops::Range<usize> = 4 << 20..DEVICE_BYTES - (1 << 20);
/// Number of damaged pages in one corruption.
const PAGES_MAX: u64 = 12;

impl Life {
    pub fn step(&mut self) -> Result<(), String> {
        self.report.count("steps");
        match self.below(32) {
            0..=4 => self.write(),
            5 => said("sync", self.pool()?.sync()),
            6 => self.fail(),
            7 | 8 => self.corrupt(),
            9 => self.wipe(),
            10 | 11 => self.take_out(),
            12 | 13 => self.bring_back(),
            14 | 15 => self.attach(),
            16 => self.detach(),
            17 | 18 => self.scan(),
            19 => {
                self.report.count("clears");
                said("clear", self.pool()?.clear(None))
            }
            20 | 21 => self.reopen(),
            22 => self.power_cut(),
            23 => self.heal(),
            24 => self.add_spare(),
            25..=27 => self.spare_in(),
            28 => self.spare_out(),
            29 => self.sweep(),
            30 => self.restart(),
            _ => self.check("a look"),
        }
    }

    /// Lets reads, writes or both fail on a device, some of them or all from now on.
    pub fn fail(&mut self) -> Result<(), String> {
        let Some((device, _)) = self.hit(Health::Lacking)? else { return Ok(()) };
        let mut fault = Fault::always(FaultKind::Error(DeviceError::Io)).on(self.devices[device].index());
        match self.below(4) {
            0 => fault = fault.only(OpKind::Read),
            1 => fault = fault.only(OpKind::Write),
            _ => {}
        }
        if self.below(2) == 0 {
            (fault.skip, fault.count) = (self.below(60), 1 + self.below(20));
        }
        // What the engine need not meet before the device has taken another's place would be met where nobody else has anything.
        let is_met_at_once = fault.op != Some(OpKind::Read) && fault.skip == 0;
        if !is_met_at_once && !self.bears(device, Health::Tainted)? {
            return Ok(());
        }
        self.report.count("failures");
        self.is_faulty = true;
        self.sim.arm(fault);
        Ok(())
    }

    /// Writes something else to pages that were written.
    pub fn corrupt(&mut self) -> Result<(), String> {
        if self.pool()?.is_rebuilding() {
            return Ok(());
        }
        let Some((device, _)) = self.hit(Health::Tainted)? else { return Ok(()) };
        self.report.count("corruptions");
        let written: Vec<usize> = self.devices[device].image().written().map(|(at, _)| at).filter(|at| DATA.contains(at)).collect();
        for _ in 0..1 + self.below(PAGES_MAX) {
            let at = written.get(self.below(written.len() as u64) as usize).copied().unwrap_or(DATA.start);
            let junk: Vec<u8> = (0..512 + self.below(8000) as usize).map(|index| (index * 7) as u8 ^ 0x5A).collect();
            self.devices[device].tamper(|image: &mut Image| image.write(at, &junk));
        }
        Ok(())
    }

    /// Makes a device forget everything; only a replacement helps.
    pub fn wipe(&mut self) -> Result<(), String> {
        if self.unused()?.is_none() || !self.harm.dead.is_empty() || self.pool()?.is_rebuilding() {
            return Ok(());
        }
        let Some((device, _)) = self.hit(Health::Tainted)? else { return Ok(()) };
        self.report.count("wipes");
        self.harm.dead.insert(device);
        self.devices[device].tamper(|image| *image = Image::new(DEVICE_BYTES));
        Ok(())
    }

    pub fn take_out(&mut self) -> Result<(), String> {
        let Some((_, guid)) = self.hit(Health::Lacking)? else { return Ok(()) };
        let temporary = self.below(3) == 0;
        match self.pool()?.offline(guid, temporary) {
            Ok(()) => self.report.count("offline"),
            // The engine may know more of what other devices lack than is still so.
            Err(PoolError::NoReplicas) if self.engine_needs(guid)? => {}
            Err(error) => return Err(format!("offline: {error}")),
        }
        self.check("after offline")
    }

    /// True when by what the engine itself knows of all devices not everything can be had without this one.
    fn engine_needs(&self, guid: Guid) -> Result<bool, String> {
        let tree = self.pool()?.tree();
        let health = |id| match tree.leaf(id) {
            leaf if leaf.guid == guid || !leaf.state.is_usable() || !leaf.missing_txgs.is_empty() => Health::Lacking,
            _ => Health::Whole,
        };
        Ok(!tree.tops.iter().all(|top| top.node.as_ref().is_some_and(|node| suffices(node, &health))))
    }

    pub fn bring_back(&mut self) -> Result<(), String> {
        let members = self.members()?;
        let (device, guid) = members[self.below(members.len() as u64) as usize];
        self.report.count("online");
        self.online(device, guid)
    }

    pub fn online(&self, device: usize, guid: Guid) -> Result<(), String> {
        let state = said("online", self.pool()?.online(guid, Some(self.devices[device].clone())))?;
        // Faults can hide a label, and a wiped device has none.
        let may_be_missing = self.harm.dead.contains(&device) || self.harm.hurt.contains(&device);
        if state == LeafState::Online || may_be_missing { Ok(()) } else { Err(format!("d{device} is {state:?} after online")) }
    }

    pub fn attach(&mut self) -> Result<(), String> {
        let Some(new) = self.unused()? else { return Ok(()) };
        let members = self.members()?;
        let (_, guid) = members[self.below(members.len() as u64) as usize];
        let pairing = if self.below(3) == 0 && members.len() < MIRROR_MAX { Pairing::Mirror } else { Pairing::Replacing };
        // A rebuild looks at no checksum: what nobody knows of a device would be copied.
        let sequential = self.harm.tainted.is_empty() && self.below(3) == 0;
        let (pool, spec) = (self.pool()?, leaf(&self.devices[new]));
        let attached = match sequential {
            true => pool.attach_sequential(guid, &spec, pairing, true),
            false => pool.attach(guid, &spec, pairing, true),
        };
        match attached {
            Ok(()) => {
                let is_rebuilding = self.pool()?.is_rebuilding();
                self.harm.came(new);
                self.report.count(match (sequential, pairing) {
                    (true, _) => "rebuilds",
                    (false, Pairing::Mirror) => "attaches",
                    (false, _) => "replacements",
                });
                if is_rebuilding == sequential { Ok(()) } else { Err(format!("d{new}: rebuilding {is_rebuilding}, not {sequential}")) }
            }
            Err(PoolError::Target(_) | PoolError::Rebuilding | PoolError::Scan(_)) => Ok(()),
            // A label cannot be written to a device that fails.
            Err(_) if self.harm.hurt.contains(&new) => Ok(()),
            Err(error) => Err(format!("attach d{new}: {error}")),
        }
    }

    pub fn detach(&mut self) -> Result<(), String> {
        let members = self.members()?;
        let (device, guid) = members[self.below(members.len() as u64) as usize];
        if !self.bears(device, Health::Lacking)? {
            return Ok(());
        }
        match self.pool()?.detach(guid) {
            Ok(()) => {
                self.report.count("detaches");
                self.check("after detach")
            }
            Err(PoolError::NoReplicas | PoolError::Target(_)) => Ok(()),
            Err(error) => Err(format!("detach d{device}: {error}")),
        }
    }

    /// Begins a scrub, or lets what runs go on for a while.
    pub fn scan(&mut self) -> Result<(), String> {
        let blocks = 1 + self.below(12) as usize;
        if self.below(3) == 0 {
            self.start_scrub()?;
        }
        said("rebuild", self.pool()?.rebuild_drive_part(blocks))?;
        said("scan", self.pool()?.scrub_drive_part(blocks))
    }

    pub fn start_scrub(&mut self) -> Result<(), String> {
        match self.pool()?.scrub_start() {
            Ok(()) => self.report.count("scrubs"),
            Err(PoolError::Scan(ScanError::Running | ScanError::Resilvering)) => {}
            Err(error) => return Err(format!("scrub: {error}")),
        }
        Ok(())
    }

    /// Begins a resilver that runs again.
    pub fn restart(&mut self) -> Result<(), String> {
        self.report.count("restarts");
        said("resilver", self.pool()?.resilver_restart())
    }

    /// Initializes or trims free space of some devices, a part of it, or stops that.
    pub fn sweep(&mut self) -> Result<(), String> {
        let members: Vec<Guid> = self.members()?.into_iter().map(|(_, guid)| guid).collect();
        let first = self.below(members.len() as u64) as usize;
        let kind = if self.below(2) == 0 { SweepKind::Initialize } else { SweepKind::Trim };
        let action = match self.below(4) {
            0 => SweepAction::Suspend,
            1 => SweepAction::Cancel,
            _ => SweepAction::Start { rate: 0, secure: false },
        };
        for done in said("sweep", self.pool()?.sweep(kind, &members[first..], action))? {
            match done {
                Ok(()) => self.report.count("sweeps"),
                // One that is out of use can't be swept; what runs can't be begun, nor what does not run be stopped.
                Err(PoolError::Target(_)) => {}
                Err(error) => return Err(format!("sweep: {error}")),
            }
        }
        let windows = 1 + self.below(3) as usize;
        said("sweep", self.pool()?.sweep_drive_part(windows))?;
        self.check("after a sweep")
    }

    // ---- spares ----

    fn listed(&self) -> Result<Vec<Spare>, String> {
        Ok(self.pool()?.spares().into_iter().filter(|spare| !spare.is_distributed()).collect())
    }

    /// Number of a device that is free, if need be one that is taken off the list of spares.
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
            Err(_) if self.harm.hurt.contains(&new) => {}
            Err(error) => return Err(format!("add spare d{new}: {error}")),
        }
        Ok(())
    }

    /// Lets a spare stand in for a member; it is resilvered or rebuilt.
    pub fn spare_in(&mut self) -> Result<(), String> {
        let free: Vec<Spare> = self.pool()?.spares().into_iter().filter(|spare| !spare.in_use).collect();
        if free.is_empty() {
            return self.add_spare();
        }
        let spare = &free[self.below(free.len() as u64) as usize];
        let members = self.members()?;
        let (_, any) = members[self.below(members.len() as u64) as usize];
        // That is what spares are for.
        let dead = members.iter().find(|(device, _)| self.harm.dead.contains(device)).map(|(_, guid)| *guid);
        let target = dead.filter(|_| self.below(2) == 0).unwrap_or(any);
        let (key, by_path) = (spare_number(spare), self.below(2) == 0);
        // A rebuild looks at no checksum: what nobody knows of a device would be copied.
        let sequential = self.harm.tainted.is_empty() && self.below(2) == 0;
        let (pool, device) = (self.pool()?, self.devices.get(key).cloned());
        let done = match device {
            // As `zpool replace` does it, which finds out that it is a spare.
            Some(device) if by_path && !self.harm.hurt.contains(&key) => match sequential {
                true => pool.attach_sequential(target, &leaf(&device), Pairing::Replacing, true),
                false => pool.attach(target, &leaf(&device), Pairing::Replacing, true),
            },
            device => pool.spare_in(target, spare.guid, device.map(|device| device as Arc<dyn BlockDevice>), sequential),
        };
        match done {
            Ok(()) => {
                self.harm.came(key);
                let listed = if sequential { "spares rebuilt" } else { "spares resilvered" };
                self.report.count(if spare.is_distributed() { "distributed spares" } else { listed });
                self.check("after a spare came")
            }
            Err(PoolError::Target(_) | PoolError::Rebuilding | PoolError::Scan(_) | PoolError::Device { .. }) => Ok(()),
            // A label cannot be written to a device that fails.
            Err(_) if self.harm.hurt.contains(&key) => Ok(()),
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

    /// Lets a spare go back on the list.
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
