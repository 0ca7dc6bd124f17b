//! What a device holds before it becomes part of a pool: other pools, file systems, partitions. Every command that takes a new
//! device asks here first (OpenZFS: `is_device_in_use`, `check_device`, `check_file`).

use crate::device::contents::{content_of, line_of, line_of_active, signatures};
use crate::device::devices::Devices;
use crate::device::identity::{same_file, twice};
use crate::device::taken::{Taker, taker};
use crate::failure::{because, pool_failure};
use crate::pool::{OpenPool, Pools};
use control_api::{ErrorKind, FORCEABLE, Failure, NewVdevs, VdevSpec};
use exec::Exec;
use pool::{AddSpec, ClassSpec, DeviceProblem, LeafSpec, PoolError, TopSpec};
use std::path::PathBuf;
use std::sync::Arc;
use vdev::{DraidConfig, LeafKind, TopKind};

/// Offset in bytes of the first byte behind the labels at the front of a device, which are written over.
const FRONT_LABELS_BYTES: u64 = 512 << 10;
/// Bytes of a unit in which magics are emptied: a multiple of every device's sectors.
const PIECE_BYTES: u64 = 4096;

/// Words before a list of objections which nothing overrides, as OpenZFS has them (`vdev_error`).
const UNFORCEABLE: &str = "invalid vdev specification\nthe following errors must be manually repaired";
/// Advice about devices that hold something of others.
const LOSES_CONTENTS: &str = "with '-f' what these devices hold is lost";

/// Failure with a list of objections.
fn listed(what: &str, lines: &[String]) -> Failure {
    Failure::new(ErrorKind::Busy, what, format!("\n{}", lines.join("\n")))
}

/// Failure of devices that nothing takes. Nobody is advised to use force, which OpenZFS does where it was not used: it would not help, and
/// cost whoever tries what the other devices hold.
pub(crate) fn unforceable(lines: &[String]) -> Failure {
    listed(UNFORCEABLE, lines)
}

/// Refuses new devices that hold something of others, unless `force` says that it may go; tells of all of them at once. A device of a pool
/// that is open here is refused in any case, unless it is to come in the place of `replaced`, which it is itself.
pub(crate) fn check_contents(
    pools: &Pools,
    exec: &Exec,
    new: &[LeafSpec],
    replaced: Option<ondisk::Guid>,
    force: bool,
) -> Result<(), Failure> {
    let mut found = Objections::default();
    new.iter().for_each(|leaf| found.look(pools, exec, leaf, replaced));
    refuse(found.fixed, if force { Vec::new() } else { found.lines })
}

/// Objections to new devices.
#[derive(Default)]
struct Objections {
    /// Lines that nothing overrides.
    fixed: Vec<String>,
    /// Lines that force overrides.
    lines: Vec<String>,
}

impl Objections {
    /// Looks at one device, which may be that of the leaf `replaced` itself.
    fn look(&mut self, pools: &Pools, exec: &Exec, leaf: &LeafSpec, replaced: Option<ondisk::Guid>) {
        let member = pool::membership(exec, &leaf.device);
        if let Some(user) = member.as_ref().filter(|member| replaced != Some(member.leaf)).and_then(|member| pools.user_of(member)) {
            return self.fixed.push(line_of_active(&leaf.path, &user));
        }
        match taker(&leaf.path).filter(|_| leaf.kind == LeafKind::File) {
            Some(Taker::Swap) => return self.fixed.push(format!("{} is currently used as swap", leaf.path)),
            Some(Taker::Loop(device)) => self.lines.push(format!("{} is in use by the loop device {device}", leaf.path)),
            None => {}
        }
        match member {
            Some(member) => self.lines.push(line_of(&leaf.path, &member)),
            None => self.lines.extend(content_of(exec, leaf)),
        }
    }
}

/// Failure that not even force helps against, with what the devices of its request hold: who mends the one reason alone, and forces the command
/// then, would lose that. With `force` it is to be lost.
pub(crate) fn with_contents(devices: &Devices, new: &NewVdevs, force: bool, failure: Failure) -> Failure {
    if force {
        return failure;
    }
    let free = new.paths().chain(new.beside()).filter(|path| reserved(&devices.pools, path).is_none());
    let leaves: Vec<LeafSpec> = free.filter_map(|path| new_leaf(devices, path, "").ok()).collect();
    with_contents_of((&devices.pools, &devices.exec), &leaves, None, failure)
}

/// As [`with_contents`], of devices that are open; one may be that of the leaf `replaced` itself.
pub(crate) fn with_contents_of(
    (pools, exec): (&Pools, &Exec),
    new: &[LeafSpec],
    replaced: Option<ondisk::Guid>,
    failure: Failure,
) -> Failure {
    let mut found = Objections::default();
    new.iter().for_each(|leaf| found.look(pools, exec, leaf, replaced));
    found.fixed.append(&mut found.lines);
    together(failure, found.fixed)
}

/// Failure that tells of `lines`, too, each once.
fn together(mut failure: Failure, lines: Vec<String>) -> Failure {
    for line in lines {
        if !failure.why.lines().any(|told| told == line) {
            failure.why = format!("{}\n{line}", failure.why);
        }
    }
    failure
}

/// Refuses new devices that are too small for every pool, but for caches, which are judged by themselves.
pub(crate) fn check_sizes(new: &[LeafSpec], caches: &[String], what: &str) -> Result<(), Failure> {
    let is_small = |leaf: &&LeafSpec| !caches.contains(&leaf.path) && vdev::leaf_asize(leaf.device.size_bytes()).is_none();
    let Some(small) = new.iter().find(is_small) else { return Ok(()) };
    let error = PoolError::Device { path: small.path.clone(), problem: DeviceProblem::TooSmall };
    Err(pool_failure(what.to_string(), &error))
}

/// Refuses for objections that are `fixed`, and for `lines`, which force overrides.
fn refuse(mut fixed: Vec<String>, lines: Vec<String>) -> Result<(), Failure> {
    match (fixed.is_empty(), lines.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(listed(FORCEABLE, &lines).advise(LOSES_CONTENTS)),
        (false, _) => {
            fixed.extend(lines);
            Err(unforceable(&fixed))
        }
    }
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

/// Opens the devices of the vdevs that a request asks for; spares that another pool lists are shared as they are.
pub(crate) fn opened(devices: &Devices, new: &NewVdevs, what: &str) -> Result<AddSpec, Failure> {
    let tops = |specs: &[VdevSpec]| specs.iter().map(|spec| new_top(devices, spec, what)).collect::<Result<_, _>>();
    let classes = ClassSpec { special: tops(&new.special)?, dedup: tops(&new.dedup)? };
    let mut spec = AddSpec { tops: tops(&new.vdevs)?, classes, logs: tops(&new.logs)?, ..AddSpec::default() };
    for path in &new.spares {
        match devices.pools.reserving_pool(path) {
            Some((_, spare)) => spec.shared.push(spare),
            None => spec.spares.push(new_leaf(devices, path, what)?),
        }
    }
    spec.caches = new.caches.iter().map(|path| new_leaf(devices, path, what)).collect::<Result<_, _>>()?;
    Ok(spec)
}

fn new_top(devices: &Devices, spec: &VdevSpec, what: &str) -> Result<TopSpec, Failure> {
    let (count, widths) = (spec.children().len(), spec.widths());
    let kind = match spec {
        VdevSpec::Leaf { path } => return Ok(TopSpec { kind: TopKind::Leaf, leaves: vec![new_leaf(devices, path, what)?] }),
        VdevSpec::Mirror { .. } => Some(TopKind::Mirror),
        VdevSpec::Raidz { parity, .. } => Some(TopKind::Raidz(*parity)).filter(|_| (1..=3).contains(parity)),
        VdevSpec::Draid { parity, data, spares, .. } => {
            let [parity, data, spares] = [parity, data, spares].map(|number| usize::from(*number));
            DraidConfig::new(parity, data, spares, count).ok().map(TopKind::Draid)
        }
    };
    let Some(kind) = kind.filter(|_| widths.contains(&count)) else {
        let (word, least, most) = (spec.word(), widths.start(), widths.end());
        let bounds = if *most == usize::MAX { format!("at least {least}") } else { format!("between {least} and {most}") };
        return Err(because(ErrorKind::Invalid, what, format!("{word} takes {bounds} devices")));
    };
    let leaf = |spec: &VdevSpec| match spec {
        VdevSpec::Leaf { path } => new_leaf(devices, path, what),
        _ => Err(because(ErrorKind::Invalid, what, "a mirror, raidz or draid cannot hold another one")),
    };
    Ok(TopSpec { kind, leaves: spec.children().iter().map(leaf).collect::<Result<_, _>>()? })
}

/// Refuses devices that open pools use, also as caches, or keep as spares: not even force takes them. Spares may be those of several pools.
pub(crate) fn check_unreserved(pools: &Pools, new: &NewVdevs) -> Result<(), Failure> {
    let spares = new.spares.iter().filter(|path| pools.reserving_pool(path).is_none());
    let beside = spares.chain(&new.caches).map(String::as_str);
    let lines = new.paths().chain(beside).filter_map(|path| reserved(pools, path)).collect();
    refuse(lines, Vec::new())
}

/// Line of text about a device that an open pool uses or keeps as a spare.
fn reserved(pools: &Pools, path: &str) -> Option<String> {
    let is_in_use =
        |open: &Arc<OpenPool>| open.pool().tree().leaves.iter().any(|leaf| leaf.state.is_usable() && same_file(&leaf.path, path));
    if let Some(user) = pools.find(is_in_use) {
        return Some(line_of_active(path, &user.name()));
    }
    if let Some(user) = pools.caching_pool(path) {
        return Some(line_of_active(path, &user.name()));
    }
    let (owner, _) = pools.reserving_pool(path)?;
    Some(format!("{path} is reserved as a hot spare for pool {}", owner.name()))
}

/// Refuses what is named twice, spares and caches among it, by whichever names.
pub(crate) fn distinct_paths(new: &NewVdevs, what: &str) -> Result<(), Failure> {
    let why = match twice(new.paths().chain(new.beside())) {
        None => return Ok(()),
        Some((first, second)) if first == second => format!("'{first}' is named twice"),
        Some((first, second)) => format!("the same device is named twice, as '{first}' and as '{second}'"),
    };
    Err(because(ErrorKind::Invalid, what, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, somebody is advised to use force who loses by it what was not told of, or is advised it where it does not help.
    #[test]
    fn all_objections_are_told_at_once_and_force_is_advised_where_it_helps() {
        let lines = |names: &[&str]| names.iter().map(|name| format!("{name} is")).collect::<Vec<_>>();
        assert_eq!(refuse(Vec::new(), Vec::new()), Ok(()));
        let failure = refuse(Vec::new(), lines(&["a", "b"])).expect_err("two hold something");
        let said =
            "invalid vdev specification\nuse '-f' to override the following errors:\na is\nb is\nwith '-f' what these devices hold is lost";
        assert_eq!(failure.to_string(), said);
        let failure = refuse(lines(&["c"]), lines(&["a"])).expect_err("one is in use");
        assert_eq!(failure.to_string(), "invalid vdev specification\nthe following errors must be manually repaired:\nc is\na is");
        let taken = because(ErrorKind::Exists, "cannot create 'tank'", "pool already exists");
        assert_eq!(together(taken, lines(&["a", "a"])).to_string(), "cannot create 'tank': pool already exists\na is");
        let failure = together(unforceable(&lines(&["c"])), lines(&["c", "a"]));
        assert_eq!(failure.why, "\nc is\na is", "once");
    }
}
