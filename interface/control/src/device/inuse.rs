//! What a device holds before it becomes part of a pool: other pools, file systems, partitions. Every command that takes a new
//! device asks here first (OpenZFS: `is_device_in_use`, `check_device`, `check_file`).

use crate::device::contents::{content_of, line_of, signatures};
use crate::device::devices::Devices;
use crate::device::names::same_file;
use crate::device::taken::{Taker, taker};
use crate::failure::because;
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, Failure, VdevSpec};
use exec::Exec;
use pool::{AddSpec, LeafSpec, Membership, TopSpec};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use vdev::{DraidConfig, LeafKind, TopKind};

/// Offset in bytes of the first byte behind the labels at the front of a device, which are written over.
const FRONT_LABELS_BYTES: u64 = 512 << 10;
/// Bytes of a unit in which magics are emptied: a multiple of every device's sectors.
const PIECE_BYTES: u64 = 4096;

/// Failure of devices that `-f` would take all the same.
pub(crate) fn forceable(lines: &[String]) -> Failure {
    let why = format!("\n{}", lines.join("\n"));
    Failure::new(ErrorKind::Busy, "invalid vdev specification\nuse '-f' to override the following errors", why)
}

/// Failure of devices that nothing takes.
pub(crate) fn unforceable(line: String, force: bool) -> Failure {
    if force {
        let what = "invalid vdev specification\nthe following errors must be manually repaired";
        return Failure::new(ErrorKind::Busy, what, format!("\n{line}"));
    }
    forceable(&[line])
}

/// Refuses new devices that hold something of others, unless `force` says that it may go. A device of a pool that is open
/// here is refused in any case, unless it is to come in the place of `replaced`, which it is itself.
pub(crate) fn check_contents(
    pools: &Pools,
    exec: &Exec,
    new: &[LeafSpec],
    replaced: Option<ondisk::Guid>,
    force: bool,
) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for leaf in new {
        let member = pool::membership(exec, &leaf.device);
        if let Some(user) = member.as_ref().filter(|member| replaced != Some(member.leaf)).and_then(|member| open_user(pools, member)) {
            return Err(unforceable(format!("{} is part of active pool '{user}'", leaf.path), force));
        }
        match taker(&leaf.path).filter(|_| leaf.kind == LeafKind::File) {
            Some(Taker::Swap) => return Err(unforceable(format!("{} is currently used as swap", leaf.path), force)),
            Some(Taker::Loop(device)) => lines.push(format!("{} is in use by the loop device {device}", leaf.path)),
            None => {}
        }
        match member {
            Some(member) => lines.push(line_of(&leaf.path, &member)),
            None => lines.extend(content_of(exec, leaf)),
        }
    }
    if lines.is_empty() || force { Ok(()) } else { Err(forceable(&lines)) }
}

/// Paths of new disks that have partitions, which the kernel is to forget.
pub(crate) fn partitioned(exec: &Exec, new: &[LeafSpec]) -> Vec<PathBuf> {
    let has_table = |leaf: &&LeafSpec| signatures(exec, &leaf.device).iter().any(|one| one.is_table);
    new.iter().filter(|leaf| leaf.kind == LeafKind::Disk).filter(has_table).map(|leaf| PathBuf::from(&leaf.path)).collect()
}

/// Empties what would make others take devices for theirs that have joined a pool, where no label was written over it: between the
/// labels and the first block. And has the kernel forget the partitions of some.
pub(crate) fn wipe_contents(exec: &Exec, new: &[LeafSpec], partitioned: &[PathBuf]) {
    for leaf in new {
        let found = signatures(exec, &leaf.device);
        for one in found.iter().filter(|one| (FRONT_LABELS_BYTES..vdev::LABEL_START_BYTES).contains(&one.offset)) {
            let start = one.offset / PIECE_BYTES * PIECE_BYTES;
            // Who can't do that finds out soon enough.
            let Ok(piece) = leaf.device.read_at(exec, start, PIECE_BYTES as usize) else { continue };
            let mut piece = piece.to_contiguous();
            let from = (one.offset - start) as usize;
            if let Some(magic) = piece.make_mut().get_mut(from..from + one.length) {
                magic.fill(0);
                let _ = leaf.device.write_at(exec, start, &piece);
            }
        }
    }
    partitioned.iter().for_each(|path| device::forget_partitions(path));
}

/// Opens the device of a new leaf.
pub(crate) fn new_leaf(devices: &Devices, path: &str, what: &str) -> Result<LeafSpec, Failure> {
    let device = devices.open_device(path, false, what)?;
    let kind = if device.facts().whole_disk { LeafKind::Disk } else { LeafKind::File };
    Ok(LeafSpec { path: path.to_string(), kind, device })
}

/// Opens the devices of new top-level vdevs.
pub(crate) fn new_tops(devices: &Devices, specs: &[VdevSpec], what: &str) -> Result<Vec<TopSpec>, Failure> {
    specs.iter().map(|spec| new_top(devices, spec, what)).collect()
}

fn new_top(devices: &Devices, spec: &VdevSpec, what: &str) -> Result<TopSpec, Failure> {
    let (kind, children) = match spec {
        VdevSpec::Leaf { .. } => (TopKind::Leaf, std::slice::from_ref(spec)),
        VdevSpec::Mirror { children } => (TopKind::Mirror, children.as_slice()),
        VdevSpec::Raidz { parity, children } => (TopKind::Raidz(*parity), children.as_slice()),
        VdevSpec::Draid { parity, data, spares, children } => {
            let [parity, data, spares] = [parity, data, spares].map(|number| usize::from(*number));
            let config = DraidConfig::new(parity, data, spares, children.len());
            let shape = || format!("draid{parity}:{data}d:{spares}s takes between {} and 255 devices", parity + data + spares);
            (TopKind::Draid(config.map_err(|_| because(ErrorKind::Invalid, what, shape()))?), children.as_slice())
        }
    };
    if let TopKind::Raidz(parity) = kind
        && (!(1..=3).contains(&parity) || children.len() <= usize::from(parity) || children.len() > 255)
    {
        return Err(because(ErrorKind::Invalid, what, format!("raidz{parity} takes between {} and 255 devices", parity + 1)));
    }
    let leaf = |spec: &VdevSpec| match spec {
        VdevSpec::Leaf { path } => new_leaf(devices, path, what),
        _ => Err(because(ErrorKind::Invalid, what, "a mirror, raidz or draid cannot hold another one")),
    };
    Ok(TopSpec { kind, leaves: children.iter().map(leaf).collect::<Result<_, _>>()? })
}

/// Name of the open pool that has the device among its leaves, whatever their state.
fn open_user(pools: &Pools, member: &Membership) -> Option<String> {
    let is_user = |open: &Arc<OpenPool>| open.pool().guid() == member.guid && open.pool().tree().leaf_by_guid(member.leaf).is_some();
    pools.find(is_user).map(|open| open.name())
}

/// Refuses devices that open pools use or keep as spares: not even force takes them.
pub(crate) fn check_unreserved(pools: &Pools, vdevs: &[VdevSpec], logs: &[VdevSpec], force: bool) -> Result<(), Failure> {
    let mut rest: Vec<&VdevSpec> = vdevs.iter().chain(logs).collect();
    while let Some(spec) = rest.pop() {
        let path = match spec {
            VdevSpec::Leaf { path } => path,
            VdevSpec::Mirror { children } | VdevSpec::Raidz { children, .. } | VdevSpec::Draid { children, .. } => {
                rest.extend(children);
                continue;
            }
        };
        let is_in_use =
            |open: &Arc<OpenPool>| open.pool().tree().leaves.iter().any(|leaf| leaf.state.is_usable() && same_file(&leaf.path, path));
        let user = pools.find(is_in_use).map(|open| open.name());
        let line = match (user, pools.reserving_pool(path)) {
            (Some(user), _) => format!("{path} is part of active pool '{user}'"),
            (None, Some((open, _))) => format!("{path} is reserved as a hot spare for pool {}", open.name()),
            (None, None) => continue,
        };
        return Err(unforceable(line, force));
    }
    Ok(())
}

/// Opens the devices that are to be spares; those that another pool lists are shared as they are.
pub(crate) fn spare_specs(devices: &Devices, paths: &[String], what: &str) -> Result<AddSpec, Failure> {
    let mut spec = AddSpec::default();
    for path in paths {
        match devices.pools.reserving_pool(path) {
            Some((_, spare)) => spec.shared.push(spare),
            None => spec.spares.push(new_leaf(devices, path, what)?),
        }
    }
    Ok(spec)
}

/// Refuses devices that are named twice.
pub(crate) fn distinct_paths(vdevs: &[VdevSpec], what: &str) -> Result<(), Failure> {
    let mut seen = BTreeMap::new();
    let mut rest: Vec<&VdevSpec> = vdevs.iter().collect();
    while let Some(spec) = rest.pop() {
        match spec {
            VdevSpec::Leaf { path } => {
                if seen.insert(path, ()).is_some() {
                    return Err(because(ErrorKind::Invalid, what, format!("'{path}' is named twice")));
                }
            }
            VdevSpec::Mirror { children } | VdevSpec::Raidz { children, .. } | VdevSpec::Draid { children, .. } => rest.extend(children),
        }
    }
    Ok(())
}
