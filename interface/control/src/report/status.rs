//! What `zpool status` says of a pool: its picture, the diagnosis, and what cannot be known.

use crate::device::contents::bytes_now;
use crate::pool::{OpenPool, cache_file, compatibility};
use crate::provider::offload;
use crate::report::diagnosis::{Diagnosis, Facts, Fit, diagnose};
use crate::report::{pictures, sweeps, vdev_props};
use control_api::{CheckpointReport, DedupReport, PoolReport, Property, RebuildReport, Source, Throttled, Value, VdevReport};
use ondisk::Guid;
use std::collections::BTreeSet;

/// Report of a pool for `zpool status`, `list` and `get`. What cannot be read is said to be unavailable, never taken for healthy.
/// `user` says which pool uses a spare.
pub(crate) fn pool_report(open: &OpenPool, errors: bool, user: &dyn Fn(Guid) -> Option<String>) -> PoolReport {
    let mut status = open.pool().status();
    note_pulled(&mut status);
    let (vdevs, checkpoint) = pictured(open, &status);
    let state = if status.suspended { "SUSPENDED".to_string() } else { vdevs.state.clone() };
    let (error_count, damaged, errors_unavailable) = match open.errors(errors) {
        Ok((count, damaged)) => (count, damaged, None),
        Err(error) => (0, Vec::new(), Some(error.to_string())),
    };
    let scan = open.scan_report();
    let rebuilds = rebuilds(open, &status.tree);
    let features = open.pool().features();
    let (mut properties, properties_unavailable) = properties(open, &status, &state, &features);
    let compatibility = properties.iter().find(|property| property.name == "compatibility").map(|property| &property.value);
    let diagnosis = diagnose(&Facts {
        vdevs: &vdevs,
        suspended: status.suspended.then(|| open.pool().zio().view().facts.fail_mode == zio::FailMode::Continue),
        has_missed_heartbeats: status.has_missed_heartbeats,
        error_count,
        scan: scan.as_ref(),
        rebuilds: &rebuilds,
        erratum: open.dsl().erratum(),
        fit: fit(status.version, &features, compatibility),
    });
    let (said, todo, message_id) = words(&status, open.pool().is_frozen(), diagnosis.as_ref()).unwrap_or_default();
    let room = properties.iter_mut().find(|property| property.name == "expandsize" && vdevs.expand_bytes > 0);
    room.into_iter().for_each(|property| property.value = Value::Count(vdevs.expand_bytes));
    PoolReport {
        name: status.name.clone(),
        guid: status.guid.0,
        txg: status.txg.0,
        status: said,
        action: todo,
        message_id,
        only_remarks: has_only_remarks(open, &status, diagnosis.as_ref()),
        scan,
        checkpoint,
        throttled: throttled(open),
        accelerator: offload::report(open),
        rebuilds,
        removal: open.pool().removal_status().and_then(|removal| pictures::removal(&status.tree, &removal)),
        expansion: open.pool().expand_status().and_then(|expansion| pictures::expansion(&status.tree, &expansion)),
        error_scrub: open.error_scrub_report(),
        vdevs,
        spares: open.pool().spares().iter().map(|spare| pictures::spare(spare, &status.name, user(spare.guid))).collect(),
        caches: open.pool().caches().iter().map(pictures::cache).collect(),
        dedup: dedup(open),
        error_count,
        errors: damaged,
        errors_unavailable,
        properties,
        properties_unavailable,
        state,
    }
}

/// Picture of a pool's vdevs with all that is known of them, and what its checkpoint keeps.
fn pictured(open: &OpenPool, status: &pool::PoolStatus) -> (VdevReport, Option<CheckpointReport>) {
    let mut vdevs = pictures::tree(&status.name, &status.tree, Some(status));
    let opened = open.pool().devices();
    let can_trim = |guid: u64| {
        let id = status.tree.leaf_by_guid(Guid(guid));
        let device = id.and_then(|id| opened.get(id.0 as usize)?.as_ref());
        device.map_or_else(|| open.pool().could_trim(Guid(guid)), |device| device.facts().can_trim)
    };
    sweeps::overlay(&mut vdevs, &open.pool().sweep_status(), &can_trim);
    pictures::overlay_remarks(&mut vdevs, &open.pool().outliers().remarks(), &open.pool().repaired_leaves());
    pictures::overlay_devices(&mut vdevs, &|guid| {
        let id = status.tree.leaf_by_guid(Guid(guid))?;
        opened.get(id.0 as usize)?.as_ref().map(|device| device.size_bytes())
    });
    show_growth(&mut vdevs, status);
    let checkpoint = open.pool().checkpoint().map(|known| pictures::checkpoint(&mut vdevs, &status.tree, &known));
    vdev_props::show(&mut vdevs, &open.vdev_props());
    vdev_props::show_sitting(&mut vdevs, &status.tree, &|leaf| open.pool().zio().sits_out(leaf));
    (vdevs, checkpoint)
}

/// Report of the tables of deduplication; None where there are none.
fn dedup(open: &OpenPool) -> Option<DedupReport> {
    let mut report = DedupReport::default();
    for table in open.pool().dedup_tables() {
        report.entries = report.entries.saturating_add(table.entries);
        report.disk_bytes = report.disk_bytes.saturating_add(table.disk_bytes);
        report.memory_bytes = report.memory_bytes.saturating_add(table.memory_bytes);
        report.histogram.resize(report.histogram.len().max(table.histogram.len()), [0; 8]);
        for (sums, more) in report.histogram.iter_mut().zip(&table.histogram) {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        }
    }
    report.cached_bytes = open.pool().dedup_cached_bytes();
    (report.entries > 0).then_some(report)
}

/// Reports of the sequential rebuilds of a pool.
fn rebuilds(open: &OpenPool, tree: &vdev::VdevTree) -> Vec<RebuildReport> {
    open.pool().rebuild_status().iter().filter_map(|rebuild| pictures::rebuild(tree, rebuild)).collect()
}

/// Says by how much vdevs could grow, as their devices are now.
fn show_growth(vdevs: &mut VdevReport, status: &pool::PoolStatus) {
    let gained = |id: vdev::LeafId| bytes_now(&status.tree.leaf(id).path).and_then(vdev::leaf_asize);
    if let Some(grown) = status.tree.expanded(None, &gained) {
        pictures::overlay_growth(vdevs, &status.tree, &grown);
    }
}

/// True where a diagnosis is a remark, and nothing else is wrong.
fn has_only_remarks(open: &OpenPool, status: &pool::PoolStatus, diagnosis: Option<&Diagnosis>) -> bool {
    let is_sound = status.broken_metaslabs.is_empty() && status.failed_logs.is_empty() && !open.pool().is_frozen();
    is_sound && diagnosis.is_some_and(|found| found.is_remark)
}

/// Advice about an intent log that cannot be written, where nothing else is wrong.
const LOG_ACTION: &str = "Make sure that the pool has room, and replace devices that fail; 'zpool events' tells what failed.";

/// Words about a pool that `zpool freeze` stopped.
const FROZEN: &str = "The pool is frozen: nothing reaches its devices but what intent logs have.\n\t\
                      fsync(2) of what has no log yet is acknowledged, and not durable.";
const FROZEN_ACTION: &str = "Export the pool and import it again: what no log has is lost.";

/// Texts that say what is wrong and what to do, and the number of OpenZFS's page about it.
type Words = (Option<String>, Option<String>, Option<String>);

/// Words about a pool; None when all is well.
fn words(status: &pool::PoolStatus, is_frozen: bool, diagnosis: Option<&Diagnosis>) -> Option<Words> {
    if let Some(failure) = &status.sync_failure {
        return Some((Some(failure.status()), Some(pool::SyncFailure::ACTION.to_string()), None));
    }
    let waits_for = status.suspended_for.iter().map(|block| format!("The pool waits for a block: {block}."));
    let broken = status.broken_metaslabs.iter().map(|broken| format!("Nothing is allocated any more in {broken}."));
    let logs = status
        .failed_logs
        .iter()
        .map(|log| format!("The intent log of '{}' cannot be written: {}; what is to be durable waits for a txg.", log.dataset, log.error));
    let also: Vec<String> = waits_for.chain(broken).chain(logs).chain(is_frozen.then(|| FROZEN.to_string())).collect();
    match diagnosis.filter(|found| !found.is_remark || also.is_empty()) {
        Some(found) => {
            let said = std::iter::once(found.status.to_string()).chain(also).collect::<Vec<_>>().join("\n\t");
            Some((Some(said), Some(found.action.to_string()), found.message_id.map(String::from)))
        }
        None if also.is_empty() => None,
        None => {
            let todo = match (status.broken_metaslabs.is_empty(), is_frozen && status.failed_logs.is_empty()) {
                (false, _) => pool::BROKEN_ACTION,
                (true, true) => FROZEN_ACTION,
                (true, false) => LOG_ACTION,
            };
            Some((Some(also.join("\n\t")), Some(todo.to_string()), None))
        }
    }
}

/// Shows leaves of a suspended pool as removed that are not there any more: nobody judges them, as it could do without none of them.
fn note_pulled(status: &mut pool::PoolStatus) {
    if !status.suspended {
        return;
    }
    let has_failed = |counts: &zio::LeafCounts| counts.gone > 0 || counts.errors.iter().any(|count| *count > 0);
    let is_gone = |leaf: &vdev::Leaf| bytes_now(&leaf.path).is_none_or(|bytes| bytes == 0);
    let mut tree = vdev::VdevTree::clone(&status.tree);
    for one in status.leaves.iter().filter(|one| has_failed(&one.counts)) {
        let leaf = &mut tree.leaves[one.leaf.0 as usize];
        if leaf.state.is_usable() && leaf.kind != vdev::LeafKind::DraidSpare && (one.counts.gone > 0 || is_gone(leaf)) {
            leaf.state = vdev::LeafState::Removed;
        }
    }
    status.tree = tree.into();
}

/// Properties of a pool, every one, and why those that are stored are missing.
fn properties(open: &OpenPool, status: &pool::PoolStatus, state: &str, features: &[Feature]) -> (Vec<Property>, Option<String>) {
    let mut properties = pictures::properties(status, state, open.altroot(), features);
    let after_guid = properties.iter().position(|property| property.name == "guid").map_or(0, |index| index + 1);
    properties.insert(after_guid, Property::fact("load_guid", Value::Number(open.load_guid())));
    let cachefile = open.cachefile().filter(|path| path != cache_file::DEFAULT);
    if let (Some(path), Some(property)) = (cachefile, properties.iter_mut().find(|property| property.name == "cachefile")) {
        (property.value, property.source) = (Value::Text(path), Source::Local);
    }
    let bytes = [("freeing", Ok(open.dsl().freeing_bytes())), ("leaked", open.dsl().leaked_bytes())];
    for (name, bytes) in bytes {
        if let Some(property) = properties.iter_mut().find(|property| property.name == name) {
            // OpenZFS prints these without a unit below 1K.
            property.value = bytes.map_or(Value::None, Value::Count);
        }
    }
    let (shared, kept) = (open.pool().shared_space(), open.pool().checkpoint().map_or(0, |known| known.bytes()));
    let dedup = open.pool().dedup_space();
    let facts = [
        ("dedupratio", Value::Ratio(dedup.ratio_percent())),
        ("dedup_table_size", Value::Count(dedup.table_bytes)),
        ("checkpoint", if kept > 0 { Value::Bytes(kept) } else { Value::None }),
        ("bcloneused", Value::Count(shared.used_bytes)),
        ("bclonesaved", Value::Count(shared.saved_bytes)),
        ("bcloneratio", Value::Ratio(shared.ratio_percent())),
    ];
    for (name, value) in facts {
        if let Some(property) = properties.iter_mut().find(|property| property.name == name) {
            property.value = value;
        }
    }
    if dedup.entries > 0 {
        properties.push(Property::fact("dedupcached", Value::Count(open.pool().dedup_cached_bytes())));
    }
    if let Ok(txg) = open.pool().last_scrubbed_txg() {
        properties.push(Property::fact("last_scrubbed_txg", Value::Number(txg.0)));
    }
    let unavailable = match open.pool().props() {
        Ok(stored) => {
            stored.iter().for_each(|stored| pictures::overlay(&mut properties, stored));
            None
        }
        Err(error) => {
            properties.retain(|property| !pool::is_stored_prop(&property.name));
            Some(error.to_string())
        }
    };
    (properties, unavailable)
}

/// Name of a feature, its guid, and its references where it is enabled.
type Feature = (String, String, Option<u64>);

/// Fit of a pool's version and features, and what its property `compatibility` wants (OpenZFS: `check_status`).
fn fit(version: u64, features: &[Feature], compatibility: Option<&Value>) -> Fit {
    let wish = match compatibility {
        Some(Value::Text(text)) => text.as_str(),
        _ => "",
    };
    if version < pool::VERSION_WITH_FEATURES {
        return if wish == "legacy" { Fit::Whole } else { Fit::OldVersion };
    }
    let Ok(allowed) = compatibility::allowed(wish) else { return Fit::Untold };
    if !lacking(features, allowed.as_ref()).is_empty() {
        return Fit::Lacking;
    }
    if allowed.is_some_and(|allowed| compatibility::is_exceeded(&allowed, features)) { Fit::Beyond } else { Fit::Whole }
}

/// Short names of the features that pools made here have from the start and that are disabled, as far as they are `allowed`: all without a list.
pub(crate) fn lacking(features: &[Feature], allowed: Option<&BTreeSet<String>>) -> Vec<&'static str> {
    let is_wanted = |name: &str| allowed.is_none_or(|allowed| allowed.contains(name));
    let is_off = |name: &str| features.iter().any(|(other, _, references)| other == name && references.is_none());
    let names = pool::FEATURES.iter().filter(|feature| feature.on_new_pools).map(|feature| feature.name);
    names.filter(|name| is_wanted(name) && is_off(name)).collect()
}

/// Devices on which background work is held back now.
fn throttled(open: &OpenPool) -> Vec<Throttled> {
    let tree = open.pool().tree();
    let of_leaf = |leaf: &vdev::Leaf| {
        let state = open.pool().zio().queue_state(leaf.guid)?;
        let background = zio::Class::ALL.into_iter().filter(|class| class.is_background());
        let waiting: usize = background.map(|class| state.queued[class as usize]).sum();
        let reason = match state.promise.reason {
            zio::Reason::None => return None,
            zio::Reason::Credit => "credit",
            zio::Reason::Share => "share",
            zio::Reason::Yield => "yield",
            zio::Reason::Calibration => "calibration",
        };
        (waiting > 0).then(|| Throttled {
            device: if leaf.path.is_empty() { leaf.guid.0.to_string() } else { leaf.path.clone() },
            reason: reason.to_string(),
            waiting: waiting as u64,
            share_milli: state.promise.share_milli,
            alone_p99_ns: state.promise.alone_p99_ns,
            beside_p99_ns: state.promise.beside_p99_ns,
            limit_ns: state.promise.limit_ns,
        })
    };
    tree.leaves.iter().filter_map(of_leaf).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsl::{CreateDataset, DslPool};
    use ondisk::{ObjectId, ObjsetType};
    use std::sync::Arc;
    use zap::Zap;

    /// If this fails, every status of a pool that an older system is to read tells its owner to enable what that system cannot read.
    #[test]
    fn features_that_are_not_wanted_are_not_missed() {
        let name = pool::FEATURES.iter().find(|feature| feature.on_new_pools).expect("one").name;
        let off: Vec<Feature> = vec![(name.to_string(), String::new(), None)];
        let fits = |text: &str| fit(5000, &off, Some(&Value::Text(text.into())));
        assert_eq!((fit(5000, &off, None), fits("off")), (Fit::Lacking, Fit::Lacking));
        assert_eq!((fits("legacy"), fits("no-such-set-of-features")), (Fit::Whole, Fit::Untold));
        let file = std::env::temp_dir().join(format!("zirconia-features-{}", std::process::id()));
        std::fs::write(&file, name).expect("written");
        assert_eq!(fits(&file.display().to_string()), Fit::Lacking, "wanted, and disabled");
        let legacy = Value::Text("legacy".into());
        let on: Vec<Feature> = vec![(name.to_string(), String::new(), Some(0))];
        assert_eq!(fit(5000, &on, Some(&legacy)), Fit::Beyond);
        assert_eq!((fit(28, &off, None), fit(28, &off, Some(&legacy))), (Fit::OldVersion, Fit::Whole));
        std::fs::remove_file(&file).expect("removed");
    }

    /// Makes an entry of the pool's directory name an object that does not exist, as damage would.
    fn lose(open: &OpenPool, entry: &'static str) {
        let lose = move |dsl: &Arc<DslPool>, (), tx: &dmu::Tx| Ok(Zap::hold(dsl.mos(), ObjectId(1))?.update_u64(entry, 4_000_000, tx)?);
        open.dsl().sync_task(|_, _| Ok(()), lose).expect("lost");
    }

    /// If this fails, a pool whose error log is lost calls itself free of errors.
    #[test]
    fn an_error_log_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        let open = OpenPool::in_memory();
        let before = pool_report(&open, true, &|_| None);
        assert_eq!((before.error_count, before.errors_unavailable), (0, None));
        lose(&open, "errlog_last");
        assert!(pool_report(&open, true, &|_| None).errors_unavailable.is_some());
        assert!(pool_report(&open, false, &|_| None).errors_unavailable.is_some());
    }

    /// If this fails, a pool whose properties are lost shows defaults as if somebody had chosen them.
    #[test]
    fn properties_that_cannot_be_read_are_not_shown_as_defaults() {
        let open = OpenPool::in_memory();
        open.pool().set_prop("autotrim", "on").expect("set");
        let before = pool_report(&open, false, &|_| None);
        assert!(
            before.properties.iter().any(|property| property.name == "autotrim" && property.value == control_api::Value::Text("on".into()))
        );
        assert_eq!(before.properties_unavailable, None);
        lose(&open, "pool_props");
        let after = pool_report(&open, false, &|_| None);
        assert!(after.properties_unavailable.is_some());
        assert!(!after.properties.iter().any(|property| property.name == "autotrim" || property.name == "failmode"));
        assert!(after.properties.iter().any(|property| property.name == "size"), "what is known is still shown");
    }

    /// If this fails, an administrator whose pool stopped or waits is not told for which block of what, or not what to do.
    #[test]
    fn a_pool_that_stopped_or_waits_says_for_which_block_and_what_to_do() {
        let open = OpenPool::in_memory();
        let mut status = open.pool().status();
        assert_eq!(words(&status, false, None), None);
        assert_eq!(words(&status, true, None), Some((Some(FROZEN.to_string()), Some(FROZEN_ACTION.to_string()), None)));
        let broken = |metaslab| pool::BrokenMetaslab { vdev: ondisk::VdevId(0), metaslab, why: "its map is lost".to_string() };
        status.broken_metaslabs = vec![broken(3), broken(5)];
        let (said, todo, _) = words(&status, false, None).expect("something is wrong");
        assert_eq!(todo.as_deref(), Some(pool::BROKEN_ACTION));
        let lines = "Nothing is allocated any more in vdev 0, metaslab 3: its map is lost.\n\t\
                     Nothing is allocated any more in vdev 0, metaslab 5: its map is lost.";
        assert_eq!(said.as_deref(), Some(lines));
        status.broken_metaslabs.clear();
        status.failed_logs = vec![dsl::FailedLog { dataset: "tank/db".to_string(), error: dmu::BlockError::NoSpace }];
        let line = "The intent log of 'tank/db' cannot be written: no space for a block; what is to be durable waits for a txg.";
        assert_eq!(words(&status, false, None), Some((Some(line.to_string()), Some(LOG_ACTION.to_string()), None)));
        status.failed_logs.clear();
        status.suspended_for = Some("device I/O failed (objset 54 object 2 level 0 block 1) of 'tank/fs'".to_string());
        let suspended = Diagnosis { message_id: Some("ZFS-8000-HC"), status: "Faulted.", action: zio::SUSPENDED_ACTION, is_remark: false };
        let (said, todo, number) = words(&status, false, Some(&suspended)).expect("something is wrong");
        assert_eq!((todo.as_deref(), number.as_deref()), (Some(zio::SUSPENDED_ACTION), Some("ZFS-8000-HC")), "OpenZFS's words stay");
        assert!(said.is_some_and(|said| said.starts_with("Faulted.\n\t") && said.ends_with("level 0 block 1) of 'tank/fs'.")));

        let lost = zio::Fault::Meta { object_type: None, error: zio::FaultError::Checksum };
        open.pool().zio().inject(1, lost, 0);
        open.pool().cache().clear();
        let create = CreateDataset { kind: ObjsetType::OTHER, properties: Vec::new(), init: Box::new(|_, _| Ok(())) };
        assert!(open.dsl().create_dataset("tank/fs", create).is_err() && open.pool().set_prop("comment", "words").is_err());
        let failure = open.pool().status().sync_failure.expect("no sync goes on without its metadata");
        let report = pool_report(&open, false, &|_| None);
        assert_eq!((report.status, report.action), (Some(failure.status()), Some(pool::SyncFailure::ACTION.to_string())));
        assert!(failure.status().contains("for want of a block of the pool's own metadata:") && failure.block.is_some());
    }
}
