//! Pictures of pools for the commands: the vdev tree with its counters, properties, history.

use control_api::{CheckpointReport, ExpansionReport, HistoryRecord, Property, RebuildReport, RemovalReport, Source, Value, VdevReport};
use nvlist::NvList;
use ondisk::Guid;
use pool::{
    CacheStatus, CheckpointStatus, ExpandStatus, LeafStatus, PoolStatus, RebuildState, RebuildStatus, RemovalState, RemovalStatus, Spare,
};
use std::collections::{BTreeMap, BTreeSet};
use vdev::{DraidConfig, LeafId, LeafKind, LeafState, Node, NodeKind, TopKind, TopVdev, VdevTree};
use zio::{IoKind, LeafCounts};

/// Kinds of I/O that [`VdevReport::io_ops`] has.
const SHOWN_KINDS: [IoKind; 3] = [IoKind::Read, IoKind::Write, IoKind::Trim];
/// Bytes that labels and the boot block take of a device (OpenZFS: `VDEV_LABEL_START_SIZE`, `VDEV_LABEL_END_SIZE`).
const LABELS_BYTES: u64 = (4 << 20) + (512 << 10);

/// Name of a leaf's state: `ONLINE`, `OFFLINE`, ….
pub fn leaf_state(state: LeafState) -> &'static str {
    match state {
        LeafState::Online => "ONLINE",
        LeafState::Degraded => "DEGRADED",
        LeafState::Offline => "OFFLINE",
        LeafState::Faulted => "FAULTED",
        LeafState::Missing => "UNAVAIL",
        LeafState::Removed => "REMOVED",
    }
}

pub(crate) fn node_kind(node: &Node) -> (&'static str, String) {
    match node.kind {
        NodeKind::Leaf(_) => ("disk", String::new()),
        NodeKind::Mirror => ("mirror", format!("mirror-{}", node.id)),
        NodeKind::Raidz(parity) => ("raidz", format!("raidz{parity}-{}", node.id)),
        NodeKind::Draid(config) => ("draid", format!("{}-{}", draid_name(config), node.id)),
        NodeKind::Replacing => ("replacing", format!("replacing-{}", node.id)),
        NodeKind::Spare => ("spare", format!("spare-{}", node.id)),
    }
}

/// Name of a dRAID: `draid2:8d:24c:2s` (OpenZFS: `zpool_draid_name`).
pub(crate) fn draid_name(config: DraidConfig) -> String {
    format!("draid{}:{}d:{}c:{}s", config.parity(), config.data(), config.children(), config.spares())
}

/// State of an interior vdev by its children's, given how many of them it can lose.
fn combine(children: &[VdevReport], can_lose: usize) -> &'static str {
    let lost = children.iter().filter(|child| !matches!(child.state.as_str(), "ONLINE" | "DEGRADED")).count();
    if lost > can_lose {
        "UNAVAIL"
    } else if lost > 0 || children.iter().any(|child| child.state == "DEGRADED") {
        "DEGRADED"
    } else {
        "ONLINE"
    }
}

fn node_report(tree: &VdevTree, leaves: Option<&[LeafStatus]>, node: &Node) -> VdevReport {
    if let NodeKind::Leaf(id) = node.kind {
        return leaf_report(tree, leaves, id);
    }
    let children: Vec<VdevReport> = node.children.iter().map(|child| node_report(tree, leaves, child)).collect();
    let can_lose = match node.kind {
        NodeKind::Raidz(parity) => usize::from(parity),
        NodeKind::Draid(config) => config.parity(),
        _ => children.len().saturating_sub(1),
    };
    let (kind, name) = node_kind(node);
    let parity = if matches!(node.kind, NodeKind::Raidz(_) | NodeKind::Draid(_)) { can_lose as u64 } else { 0 };
    VdevReport {
        name,
        kind: kind.to_string(),
        guid: node.guid.0,
        state: combine(&children, can_lose).to_string(),
        parity,
        children,
        ..VdevReport::default()
    }
}

fn leaf_kind(kind: LeafKind) -> &'static str {
    match kind {
        LeafKind::Disk => "disk",
        LeafKind::DraidSpare => "dspare",
        LeafKind::File | LeafKind::Missing => "file",
    }
}

fn leaf_report(tree: &VdevTree, leaves: Option<&[LeafStatus]>, id: LeafId) -> VdevReport {
    let leaf = tree.leaf(id);
    let counts = leaves.and_then(|leaves| leaves.iter().find(|status| status.leaf == id)).map(|status| &status.counts);
    let note = match leaf.state {
        LeafState::Missing if leaf.is_not_present && !leaf.path.is_empty() => Some(format!("was {}", leaf.path)),
        LeafState::Missing => Some("cannot open".to_string()),
        LeafState::Faulted | LeafState::Degraded if leaf.too_many_errors => Some("too many errors".to_string()),
        LeafState::Faulted => Some("external device fault".to_string()),
        state if state.is_usable() && leaf.resilver_txg.0 + leaf.rebuild_txg.0 != 0 && !leaf.missing_txgs.is_empty() => {
            Some("(resilvering)".to_string())
        }
        state if state.is_usable() && leaf.resilver_deferred => Some("(awaiting resilver)".to_string()),
        _ => None,
    };
    VdevReport {
        name: if leaf.path.is_empty() { leaf.guid.0.to_string() } else { leaf.path.clone() },
        kind: leaf_kind(leaf.kind).to_string(),
        guid: leaf.guid.0,
        state: leaf_state(leaf.state).to_string(),
        note,
        path: (!leaf.path.is_empty()).then(|| leaf.path.clone()),
        identity: leaf.identity.clone(),
        ..counts.map(counted).unwrap_or_default()
    }
}

/// Says of leaves that stand out among their siblings, or sit out, what sets them apart, where there is no other remark; and of those that the scrub
/// that runs repaired that it does (OpenZFS: `print_status_config`).
pub(crate) fn overlay_remarks(vdev: &mut VdevReport, remarks: &BTreeMap<Guid, String>, repaired: &BTreeSet<Guid>) {
    vdev.children.iter_mut().for_each(|child| overlay_remarks(child, remarks, repaired));
    if vdev.note.is_none() {
        vdev.note = remarks.get(&Guid(vdev.guid)).cloned();
    }
    // The remark on one that is not there leads to where it was.
    if repaired.contains(&Guid(vdev.guid)) && vdev.state != leaf_state(LeafState::Missing) {
        let before = vdev.note.take().map_or_else(String::new, |note| format!("{note}  "));
        vdev.note = Some(format!("{before}(repairing)"));
    }
}

/// Adds up what leaves did, and says how large vdevs are: `size_of` is a leaf's device.
pub(crate) fn overlay_devices(vdev: &mut VdevReport, size_of: &dyn Fn(u64) -> Option<u64>) {
    vdev.children.iter_mut().for_each(|child| overlay_devices(child, size_of));
    if vdev.children.is_empty() {
        let Some(asize) = size_of(vdev.guid).and_then(vdev::leaf_asize) else { return };
        vdev.psize_bytes = asize + LABELS_BYTES;
        vdev.asize_bytes = if vdev.asize_bytes == 0 { asize } else { vdev.asize_bytes };
        return;
    }
    let sum = |of: fn(&VdevReport) -> [u64; 3]| std::array::from_fn(|kind| vdev.children.iter().map(|child| of(child)[kind]).sum());
    (vdev.io_ops, vdev.io_bytes) = (sum(|child| child.io_ops), sum(|child| child.io_bytes));
    if vdev.asize_bytes == 0 {
        vdev.asize_bytes = vdev.children.iter().map(|child| child.asize_bytes).min().unwrap_or(0);
    }
}

/// Says by how much top-level vdevs could grow: `grown` is the tree as it would be then (OpenZFS: `vs_esize`).
pub(crate) fn overlay_growth(root: &mut VdevReport, tree: &VdevTree, grown: &VdevTree) {
    for (top, larger) in tree.tops.iter().zip(&grown.tops) {
        let room = larger.asize.saturating_sub(top.asize) >> top.ms_shift << top.ms_shift;
        if let Some(report) = root.children.iter_mut().find(|report| report.guid == top.guid.0) {
            report.expand_bytes = room;
        }
        root.expand_bytes += room;
    }
}

/// Report of a checkpoint; it is said of top-level vdevs, too, how much of them is allocated for its sake only (OpenZFS: `vs_checkpoint_space`).
pub(crate) fn checkpoint(root: &mut VdevReport, tree: &VdevTree, known: &CheckpointStatus) -> CheckpointReport {
    for top in &tree.tops {
        let report = root.children.iter_mut().find(|report| report.guid == top.guid.0);
        report.into_iter().for_each(|report| report.checkpoint_bytes = known.vdev_bytes.get(&top.id).copied().unwrap_or(0));
    }
    CheckpointReport { is_discarding: known.is_discarding, start_time: known.timestamp as i64, bytes: known.bytes() }
}

fn top_report(tree: &VdevTree, leaves: Option<&[LeafStatus]>, top: &TopVdev) -> VdevReport {
    match (&top.node, top.kind) {
        (Some(node), _) => VdevReport { is_expanding: top.widths.reflow.is_some(), ..node_report(tree, leaves, node) },
        (None, TopKind::Hole) => {
            VdevReport { name: format!("hole-{}", top.id), kind: "hole".into(), state: "ONLINE".into(), ..VdevReport::default() }
        }
        (None, _) => {
            VdevReport { name: format!("missing-{}", top.id), kind: "missing".into(), state: "UNAVAIL".into(), ..VdevReport::default() }
        }
    }
}

/// Report of what is left of a top-level vdev that was removed.
fn removed(top: &TopVdev) -> VdevReport {
    VdevReport {
        name: format!("indirect-{}", top.id),
        kind: "indirect".into(),
        guid: top.guid.0,
        id: u64::from(top.id.0),
        bias: top.bias.word().map(str::to_string),
        state: "ONLINE".into(),
        ..VdevReport::default()
    }
}

/// Report of a removal of a top-level vdev.
pub(crate) fn removal(tree: &VdevTree, removal: &RemovalStatus) -> Option<RemovalReport> {
    let top = tree.tops.get(removal.vdev.0 as usize)?;
    let name = if top.is_removed() { removed(top).name } else { top_report(tree, None, top).name };
    let state = match removal.state {
        RemovalState::Active => "active",
        RemovalState::Canceled => "canceled",
        RemovalState::Finished => "finished",
    };
    Some(RemovalReport {
        name,
        vdev: u64::from(removal.vdev.0),
        state: state.to_string(),
        start_time: removal.start_time as i64,
        end_time: removal.end_time as i64,
        to_copy_bytes: removal.to_copy,
        copied_bytes: removal.copied,
        mapping_bytes: removal.mapping_bytes,
    })
}

/// Report of an expansion of a RAID-Z vdev.
pub(crate) fn expansion(tree: &VdevTree, expansion: &ExpandStatus) -> Option<ExpansionReport> {
    let top = tree.tops.get(expansion.vdev.0 as usize)?;
    Some(ExpansionReport {
        name: top_report(tree, None, top).name,
        vdev: u64::from(expansion.vdev.0),
        state: if expansion.is_active { "active" } else { "finished" }.to_string(),
        start_time: expansion.start_time as i64,
        end_time: expansion.end_time as i64,
        to_reflow_bytes: expansion.to_reflow,
        reflowed_bytes: expansion.reflowed,
        is_waiting: expansion.is_waiting,
    })
}

/// Report of a sequential rebuild of a top-level vdev that the tree has.
pub(crate) fn rebuild(tree: &VdevTree, rebuild: &RebuildStatus) -> Option<RebuildReport> {
    let top = top_report(tree, None, tree.tops.get(rebuild.vdev.0 as usize)?);
    let state = match rebuild.state {
        RebuildState::Active => "active",
        RebuildState::Canceled => "canceled",
        RebuildState::Complete => "complete",
    };
    Some(RebuildReport {
        name: top.name,
        guid: top.guid,
        state: state.to_string(),
        start_time: rebuild.start_time as i64,
        end_time: rebuild.end_time as i64,
        scan_time_ms: rebuild.scan_time_ms,
        scanned_bytes: rebuild.scanned,
        issued_bytes: rebuild.issued,
        rebuilt_bytes: rebuild.rebuilt,
        to_scan_bytes: rebuild.estimated,
        errors: rebuild.errors,
        pass_time_ms: rebuild.pass_time_ms,
        pass_scanned_bytes: rebuild.pass_scanned,
        pass_issued_bytes: rebuild.pass_issued,
        pass_skipped_bytes: rebuild.pass_skipped,
    })
}

/// Report of a spare as `zpool status` lists it, given which pool uses it (OpenZFS: `VDEV_AUX_SPARED`).
pub(crate) fn spare(spare: &Spare, pool: &str, user: Option<String>) -> VdevReport {
    let is_there = spare.is_distributed() || std::path::Path::new(&spare.path).exists();
    let (state, note) = match user {
        Some(user) if user == pool => ("INUSE", Some("currently in use".to_string())),
        Some(user) => ("INUSE", Some(format!("in use by pool '{user}'"))),
        None if is_there => ("AVAIL", None),
        None => ("UNAVAIL", Some("cannot open".to_string())),
    };
    VdevReport {
        name: spare.path.clone(),
        kind: spare.kind.clone(),
        guid: spare.guid.0,
        state: state.to_string(),
        note,
        path: Some(spare.path.clone()),
        ..VdevReport::default()
    }
}

/// Report of a cache device of a pool.
pub(crate) fn cache(cache: &CacheStatus) -> VdevReport {
    let note = match cache.state {
        LeafState::Missing => Some("cannot open"),
        LeafState::Faulted if cache.device_bytes > 0 => Some("too many errors"),
        LeafState::Faulted => Some("external device fault"),
        _ => None,
    };
    let asize = vdev::leaf_asize(cache.device_bytes).unwrap_or(0);
    VdevReport {
        name: cache.path.clone(),
        kind: cache.kind.clone(),
        guid: cache.guid.0,
        state: leaf_state(cache.state).to_string(),
        note: note.map(str::to_string),
        path: Some(cache.path.clone()),
        allocated_bytes: cache.allocated_bytes,
        size_bytes: cache.size_bytes,
        fragmentation_percent: Some(0),
        asize_bytes: asize,
        psize_bytes: if asize == 0 { 0 } else { asize + LABELS_BYTES },
        ..counted(&cache.counts)
    }
}

/// Report with the counters of a device, and nothing else.
fn counted(counts: &LeafCounts) -> VdevReport {
    VdevReport {
        read_errors: counts.errors[IoKind::Read as usize],
        write_errors: counts.errors[IoKind::Write as usize],
        checksum_errors: counts.checksum_errors,
        slow_ios: counts.slow_ios,
        io_ops: SHOWN_KINDS.map(|kind| counts.ops[kind as usize]),
        io_bytes: SHOWN_KINDS.map(|kind| counts.bytes[kind as usize]),
        ..VdevReport::default()
    }
}

/// Report of the tree of a pool; `status` gives counters and space when the pool is open.
pub fn tree(name: &str, tree: &VdevTree, status: Option<&PoolStatus>) -> VdevReport {
    let leaves = status.map(|status| status.leaves.as_slice());
    let mut children = Vec::new();
    for (index, top) in tree.tops.iter().enumerate().filter(|(_, top)| top.kind != TopKind::Hole && !top.is_removed()) {
        let mut report = top_report(tree, leaves, top);
        if let Some(space) = status.and_then(|status| status.vdev_space.get(index)) {
            report.allocated_bytes = space.allocated;
            report.size_bytes = space.capacity;
        }
        report.fragmentation_percent = status.and_then(|status| *status.vdev_fragmentation.get(index)?);
        (report.id, report.is_log, report.ashift, report.asize_bytes) = (u64::from(top.id.0), top.is_log, top.ashift, top.asize);
        // Devices are of the class of the group that they are in (OpenZFS: `fill_vdev_info`).
        report.bias = top.bias.word().map(str::to_string);
        report.children.iter_mut().for_each(|child| child.bias.clone_from(&report.bias));
        report.allocating = Some(!top.nonallocating);
        report.dio_verify_errors = status.and_then(|status| status.dio_verify_errors.get(index).copied()).unwrap_or(0);
        children.push(report);
    }
    // A pool can do without its logs (OpenZFS: `vdev_propagate_state`).
    let is_lost = |child: &&VdevReport| !matches!(child.state.as_str(), "ONLINE" | "DEGRADED");
    let state = match combine(&children, 0) {
        "UNAVAIL" if children.iter().filter(is_lost).all(|child| child.is_log) => "DEGRADED",
        state => state,
    };
    let total = |field: fn(&VdevReport) -> u64| children.iter().map(field).sum();
    VdevReport {
        name: name.to_string(),
        kind: "root".to_string(),
        guid: tree.guid.0,
        state: state.to_string(),
        allocated_bytes: total(|child| child.allocated_bytes),
        size_bytes: total(|child| child.size_bytes),
        asize_bytes: total(|child| child.asize_bytes),
        children,
        removed: tree.tops.iter().filter(|top| top.is_removed()).map(removed).collect(),
        ..VdevReport::default()
    }
}

/// Property `version`, which pools with feature flags do not show (OpenZFS: `spa_prop_get_config`).
fn version(version: u64) -> Property {
    let (value, source) = match version {
        pool::VERSION_WITH_FEATURES => (Value::None, Source::Default),
        older => (Value::Number(older), Source::Local),
    };
    Property::of("version", value, source)
}

/// Properties of a pool, every one, in `zpool get all` order, features last.
pub fn properties(status: &PoolStatus, health: &str, altroot: Option<&str>, features: &[(String, String, Option<u64>)]) -> Vec<Property> {
    let space = &status.space;
    let text = |value: &str| Value::Text(value.to_string());
    let fixed = |name: &str, value: Value| Property::of(name, value, Source::Default);
    let percent = (space.allocated * 100).checked_div(space.capacity).unwrap_or(0);
    let ashift = status.tree.tops.first().map_or(0, |top| u64::from(top.ashift));
    let mut list = vec![
        Property::fact("size", Value::Count(space.capacity)),
        Property::fact("capacity", Value::Percent(percent)),
        Property::of("altroot", text(altroot.unwrap_or("-")), if altroot.is_some() { Source::Local } else { Source::Default }),
        Property::fact("health", text(health)),
        Property::fact("guid", Value::Number(status.guid.0)),
        version(status.version),
        fixed("bootfs", Value::None),
        fixed("delegation", text("on")),
        fixed("autoreplace", text("off")),
        fixed("cachefile", Value::None),
        fixed("failmode", text("wait")),
        fixed("listsnapshots", text("off")),
        fixed("autoexpand", text("off")),
        Property::fact("dedupratio", Value::Ratio(100)),
        Property::fact("free", Value::Count(space.capacity.saturating_sub(space.allocated))),
        Property::fact("allocated", Value::Count(space.allocated)),
        Property::fact("readonly", text(if status.read_only { "on" } else { "off" })),
        Property::of("ashift", Value::Number(ashift), Source::Local),
        Property::of(
            "comment",
            status.comment.as_deref().map_or(Value::None, text),
            if status.comment.is_some() { Source::Local } else { Source::Default },
        ),
        Property::fact("expandsize", Value::None),
        Property::fact("freeing", Value::Count(0)),
        Property::fact("fragmentation", status.fragmentation.map_or(Value::None, Value::Percent)),
        Property::fact("leaked", Value::Count(0)),
        fixed("multihost", text("off")),
        Property::fact("checkpoint", Value::None),
        Property::fact("bcloneused", Value::Count(0)),
        Property::fact("bclonesaved", Value::Count(0)),
        Property::fact("bcloneratio", Value::Ratio(100)),
        Property::fact("dedup_table_size", Value::Count(0)),
        fixed("dedup_table_quota", text("auto")),
        fixed("autotrim", text("off")),
        fixed("compatibility", text("off")),
        fixed("background_latency_target", text("auto")),
        Property::fact("zia_available", text("yes")),
        fixed("zia_provider", text("off")),
    ];
    let switches = ["zia_compress", "zia_decompress", "zia_checksum"];
    let raidz = ["zia_raidz1_gen", "zia_raidz2_gen", "zia_raidz3_gen", "zia_raidz1_rec", "zia_raidz2_rec", "zia_raidz3_rec"];
    list.extend(switches.iter().chain(&raidz).chain(&["zia_file_write", "zia_disk_write"]).map(|name| fixed(name, text("off"))));
    list.extend([fixed("zia_verify", text("100")), fixed("zia_mode", text("offload"))]);
    for (name, _, references) in features {
        let state = match references {
            None => "disabled",
            Some(0) => "enabled",
            Some(_) => "active",
        };
        let is_known = pool::feature_by_name(name).is_some();
        let name = if is_known { format!("feature@{name}") } else { format!("unsupported@{name}") };
        list.push(Property::of(&name, text(state), Source::Local));
    }
    list
}

/// Puts a stored property in its place; one that a user made up follows the others.
pub fn overlay(properties: &mut Vec<Property>, stored: &pool::PoolProp) {
    if pool::is_user_prop(&stored.name) {
        properties.push(Property::of(&stored.name, Value::Text(stored.value.clone()), Source::Local));
    }
    if let Some(property) = properties.iter_mut().find(|property| property.name == stored.name) {
        property.value = match stored.value.parse::<u64>() {
            Ok(bytes) if stored.name == "dedup_table_quota" => Value::Limit(bytes),
            _ if stored.value == "-" => Value::None,
            _ => Value::Text(stored.value.clone()),
        };
        property.source = if stored.is_local { Source::Local } else { Source::Default };
    }
}

/// History record as the commands show it; None for an internal one that was not asked for.
pub fn history_record(record: &NvList, internal: bool) -> Option<HistoryRecord> {
    let time = record.get_u64("history time").unwrap_or(0) as i64;
    let host = record.get_str("history hostname").unwrap_or_default();
    let who = record.get_u64("history who").map(|uid| format!("user {uid} on {host}"));
    if let Some(command) = record.get_str("history command") {
        return Some(HistoryRecord { time, text: command.to_string(), internal: false, who });
    }
    if !internal {
        return None;
    }
    if let Some(text) = pool::shown_call(record) {
        return Some(HistoryRecord { time, text, internal: true, who });
    }
    let name = record.get_str("internal_name").unwrap_or("unrecognized record");
    let txg = record.get_u64("history txg").unwrap_or(0);
    let dataset = record.get_str("dsname").map(|dataset| format!("{dataset} ({}) ", record.get_u64("dsid").unwrap_or(0)));
    let dataset = dataset.unwrap_or_default();
    let details = record.get_str("history internal str").unwrap_or_default();
    Some(HistoryRecord { time, text: format!("[txg:{txg}] {name} {dataset}{details}").trim_end().to_string(), internal: true, who })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, `zpool status` does not say which device a scrub repairs, or hides why one is not in use.
    #[test]
    fn what_a_scrub_repairs_is_said_beside_other_remarks() {
        let leaf = |guid: u64, state: &str, note: Option<&str>| VdevReport {
            guid,
            state: state.to_string(),
            note: note.map(ToString::to_string),
            ..VdevReport::default()
        };
        let children = vec![
            leaf(1, "ONLINE", None),
            leaf(2, "FAULTED", Some("too many errors")),
            leaf(3, "UNAVAIL", Some("was /a")),
            leaf(4, "ONLINE", None),
        ];
        let mut top = VdevReport { guid: 9, children, ..VdevReport::default() };
        overlay_remarks(&mut top, &BTreeMap::from([(Guid(4), "sits out".to_string())]), &BTreeSet::from([Guid(1), Guid(2), Guid(3)]));
        let notes: Vec<Option<&str>> = top.children.iter().map(|child| child.note.as_deref()).collect();
        assert_eq!(notes, [Some("(repairing)"), Some("too many errors  (repairing)"), Some("was /a"), Some("sits out")]);
        assert_eq!(top.note, None);
    }

    /// If this fails, programs take the version of an old pool for one that nobody chose, as OpenZFS says of the newest alone.
    #[test]
    fn the_version_of_an_old_pool_is_its_own() {
        assert_eq!(version(5000), Property::of("version", Value::None, Source::Default));
        assert_eq!(version(28), Property::of("version", Value::Number(28), Source::Local));
    }

    /// An administrator reads there what happened inside the pool, and to which dataset.
    #[test]
    fn an_internal_event_names_what_happened_and_the_dataset() {
        let mut record = NvList::new();
        record.add("history time", 7u64).add("internal_name", "create").add("history txg", 5u64);
        record.add("dsname", "tank/a").add("dsid", 68u64).add("history internal str", "");
        let shown = history_record(&record, true).expect("it was asked for");
        assert_eq!((shown.text.as_str(), shown.internal), ("[txg:5] create tank/a (68)", true));
        assert!(history_record(&record, false).is_none(), "internal events are shown only on request");
        let mut call = NvList::new();
        let input = NvList::new().with("snaps", NvList::new().with("tank/a@s", nvlist::Value::Boolean));
        call.add("ioctl", "snapshot").add("in_nvl", input).add("errno", 17i64).add("history time", 7u64);
        let shown = history_record(&call, true).expect("it was asked for");
        assert_eq!(shown.text, "ioctl snapshot\n    input:\n        snaps:\n            tank/a@s\n    errno: 17\n");
        assert!(history_record(&call, false).is_none(), "nor are calls");
    }
}
