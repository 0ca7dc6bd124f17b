//! Packages: a list of datasets with their snapshots and properties, then their streams (OpenZFS: `zfs_receive_package`).

use super::{RECEIVE, Receiving, names};
use crate::failure::{self, because};
use crate::pool::OpenPool;
use control_api::{DatasetPromote, DatasetRename, ErrorKind, Failure};
use dsl::DslError;
use nvlist::{NvList, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stream::{Begin, Features, Record, begin_list};

/// List of a package, as far as its streams need it.
pub(super) struct Part {
    /// Name of the dataset that was sent.
    pub top: String,
    /// True for one of everything below it, too.
    pub is_recursive: bool,
    /// Part behind `@` of the snapshot that it leads to.
    last: String,
    /// True for one that was sent with holds.
    has_holds: bool,
    /// True for one of raw streams.
    is_raw: bool,
    /// Datasets by the guids of their heads.
    datasets: NvList,
}

impl Part {
    /// The dataset of which a snapshot with this guid is sent, and the snapshot's name.
    fn of_snapshot(&self, guid: u64) -> Option<(&NvList, &str)> {
        self.datasets.iter().find_map(|(_, dataset)| {
            let Value::NvList(dataset) = dataset else { return None };
            let is_it = |value: &Value| matches!(value, Value::Uint64(found) if *found == guid);
            let (name, _) = dataset.get_nvlist("snaps")?.iter().find(|(_, value)| is_it(value))?;
            Some((dataset, name.to_str()?))
        })
    }

    /// Properties of the dataset of which a snapshot with this guid is sent.
    pub(super) fn properties(&self, guid: u64) -> Option<NvList> {
        self.of_snapshot(guid)?.0.get_nvlist("props").cloned()
    }

    /// Properties of the snapshot with this guid.
    pub(super) fn snapshot_properties(&self, guid: u64) -> Option<NvList> {
        let (dataset, name) = self.of_snapshot(guid)?;
        dataset.get_nvlist("snapprops")?.get_nvlist(name).cloned()
    }

    /// Tags of the holds on the snapshot with this guid.
    pub(super) fn holds(&self, guid: u64) -> Vec<String> {
        let held = self.of_snapshot(guid).filter(|_| self.has_holds);
        let tags = held.and_then(|(dataset, name)| dataset.get_nvlist("snapholds")?.get_nvlist(name));
        tags.into_iter().flat_map(NvList::iter).filter_map(|(tag, _)| tag.to_str().map(str::to_string)).collect()
    }

    /// True for a stream of the dataset that the package is of.
    pub(super) fn is_top(&self, begin: &Begin) -> bool {
        let sent = begin.toname.to_string();
        sent.split('@').next() == Some(self.top.as_str())
    }

    /// True for a stream of the last snapshot of its dataset.
    pub(super) fn is_last(&self, begin: &Begin) -> bool {
        begin.toname.to_string().split_once('@').is_none_or(|(_, snapshot)| snapshot == self.last)
    }

    /// Names of the datasets of the package that have another one's key, sorted: what lies deeper behind what it lies in.
    fn below_roots(&self) -> BTreeSet<String> {
        let lists = self.datasets.iter().filter_map(|(_, dataset)| if let Value::NvList(dataset) = dataset { Some(dataset) } else { None });
        let others = lists.filter(|dataset| !dataset.get_flag("is_encroot"));
        others.filter_map(|dataset| dataset.get_str("name").map(str::to_string)).collect()
    }

    /// Names of the datasets of the package, sorted, with the guids of all snapshots that it knows of each.
    fn members(&self) -> BTreeMap<String, BTreeSet<u64>> {
        let mut members = BTreeMap::new();
        for (_, dataset) in self.datasets.iter() {
            let Value::NvList(dataset) = dataset else { continue };
            let snapshots = dataset.get_nvlist("snaps").into_iter().flat_map(NvList::iter);
            let guids = snapshots.filter_map(|(_, value)| if let Value::Uint64(guid) = value { Some(*guid) } else { None });
            members.extend(dataset.get_str("name").map(|name| (name.to_string(), guids.collect())));
        }
        members
    }
}

/// Dataset that a package is received at, and all that is there.
struct There {
    pool: Arc<OpenPool>,
    name: String,
    /// Full names, what lies deeper behind what it lies in, with the names and guids of their snapshots.
    datasets: Vec<(String, Vec<(String, u64)>)>,
}

/// Guids and full names of the snapshots of a dataset.
fn full_names(name: &str, snapshots: &[(String, u64)]) -> Vec<(u64, String)> {
    snapshots.iter().map(|(snapshot, guid)| (*guid, format!("{name}@{snapshot}"))).collect()
}

/// Name here of a dataset that a package names; None for one that is not in what the package is of, whatever its list says.
fn name_here(name: &str, top: &str, here: &str) -> Option<String> {
    let rest = name.strip_prefix(top)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{here}{rest}"))
}

impl There {
    fn look(pool: Arc<OpenPool>, name: String) -> Result<There, DslError> {
        let (mut datasets, mut waiting) = (Vec::new(), vec![name.clone()]);
        while let Some(name) = waiting.pop() {
            let mut snapshots = Vec::new();
            for snapshot in pool.dsl().snapshots(&name)? {
                snapshots.push((snapshot.name, pool.dsl().hold_object(snapshot.object)?.guid()));
            }
            waiting.extend(pool.dsl().children(&name)?.into_iter().rev().map(|child| format!("{name}/{child}")));
            datasets.push((name, snapshots));
        }
        Ok(There { pool, name, datasets })
    }

    /// Name of a clone, of those that were not promoted just now, that has another origin than where it comes from: none, or a newer snapshot.
    fn clone_to_promote(&self, part: &Part, promoted: &BTreeSet<String>) -> Result<Option<String>, DslError> {
        let dsl = self.pool.dsl();
        let known: Vec<(u64, String)> = self.datasets.iter().flat_map(|(name, snapshots)| full_names(name, snapshots)).collect();
        for (name, snapshots) in self.datasets.iter().filter(|(name, _)| !promoted.contains(name)) {
            let sent = snapshots.iter().find_map(|(_, guid)| part.of_snapshot(*guid));
            let (Some((sent, _)), Some(origin)) = (sent, dsl.hold(name)?.origin()?) else { continue };
            let origin = dsl.hold(&origin)?;
            let wanted = sent.get_u64("origin").unwrap_or(0);
            let newer = known.iter().find(|(guid, _)| *guid == wanted).map(|(_, full)| dsl.hold(full)).transpose()?;
            let is_newer = newer.is_some_and(|newer| newer.creation_txg() > origin.creation_txg());
            if wanted == 0 || wanted != origin.guid() && is_newer {
                return Ok(Some(name.clone()));
            }
        }
        Ok(None)
    }

    /// Names in an order in which they can be destroyed: what lies deepest first, snapshots before their dataset, clones before what they are of.
    /// What is in use by something that stays is left out, and stays as well (OpenZFS: `recv_incremental_replication`).
    fn in_order(&self, mut left: Vec<String>) -> Result<Vec<String>, DslError> {
        let (mut ordered, mut going) = (Vec::new(), BTreeSet::new());
        left.sort_by(|a, b| b.cmp(a));
        loop {
            let (mut later, before) = (Vec::new(), left.len());
            for name in left {
                if self.users(&name)?.iter().all(|user| going.contains(user)) {
                    going.insert(name.clone());
                    ordered.push(name);
                } else {
                    later.push(name);
                }
            }
            if later.len() == before {
                return Ok(ordered);
            }
            left = later;
        }
    }

    /// Full names of what has to go before this: clones of a snapshot, snapshots of a dataset and what lies in it.
    fn users(&self, name: &str) -> Result<Vec<String>, DslError> {
        if name.contains('@') {
            return self.pool.dsl().hold(name)?.clones();
        }
        let inside = format!("{name}/");
        let own = self.datasets.iter().filter(|(dataset, _)| dataset == name).flat_map(|(_, snapshots)| snapshots);
        let below = self.datasets.iter().filter(|(dataset, _)| dataset.starts_with(&inside)).map(|(dataset, _)| dataset.clone());
        Ok(own.map(|(snapshot, _)| format!("{name}@{snapshot}")).chain(below).collect())
    }

    /// Name of the dataset that has one of these snapshots.
    fn with_snapshot(&self, guids: &BTreeSet<u64>) -> Option<&str> {
        let has_one = |(_, snapshots): &&(String, Vec<(String, u64)>)| snapshots.iter().any(|(_, guid)| guids.contains(guid));
        self.datasets.iter().find(has_one).map(|(name, _)| name.as_str())
    }
}

impl Receiving<'_> {
    /// Receives the streams of a package with this head and list.
    pub(super) fn package(&mut self, begin: &Begin, list: &NvList) -> Result<(), Failure> {
        let sent = begin.toname.to_string();
        let top = sent.split('@').next().unwrap_or(&sent).to_string();
        let is_recursive = !list.get_flag("not_recursive");
        if is_recursive && self.request.target.contains('@') {
            let why = "can not specify snapshot name for multi-snapshot stream";
            return Err(because(ErrorKind::Invalid, RECEIVE, why));
        }
        match self.next_record()? {
            Some(Record::End(_)) => {}
            _ => return Err(because(ErrorKind::Invalid, RECEIVE, "invalid stream (malformed nvlist)")),
        }
        let has_holds = Features::of_versioninfo(begin.versioninfo).has(Features::HOLDS);
        let last = list.get_str("tosnap").unwrap_or_default().to_string();
        let is_raw = list.get_flag("raw");
        let part = Part { top, is_recursive, last, has_holds, is_raw, datasets: list.get_nvlist("fss").cloned().unwrap_or_default() };
        if list.contains("fromsnap") && is_recursive {
            self.promote_moved(&sent, &part)?;
            self.rename_moved(&sent, &part)?;
            if self.request.force {
                self.destroy_absent(&sent, &part)?;
            }
        }
        loop {
            match self.next_record()? {
                // What closes the package, or the end of the source.
                Some(Record::End(_)) | None => return self.adopt(&sent, &part),
                Some(Record::Begin(begin)) => {
                    let list =
                        begin_list(&self.payload).map_err(|_| because(ErrorKind::Invalid, RECEIVE, "invalid stream (bad nvlist)"))?;
                    self.substream(&begin, &list, Some(&part))?;
                }
                Some(_) => return Err(because(ErrorKind::Invalid, RECEIVE, "invalid backup stream")),
            }
        }
    }

    /// Makes what was no encryption root where it comes from one of the dataset above it again: each came with keys of its own (OpenZFS:
    /// `recv_fix_encryption_hierarchy`). What has another key here than that by now stays as it is.
    fn adopt(&mut self, sent: &str, part: &Part) -> Result<(), Failure> {
        if !part.is_raw || !part.is_recursive || self.request.dry_run {
            return Ok(());
        }
        let Some(there) = self.there(sent, part)? else { return Ok(()) };
        for name in part.below_roots() {
            let Some(here) = name_here(&name, &part.top, &there.name).filter(|here| *here != there.name) else { continue };
            match there.pool.dsl().adopt_key(&here) {
                Ok(()) | Err(DslError::NotEncryptionRoot { .. } | DslError::NotEncrypted | DslError::NotFound) => {}
                Err(DslError::OtherRoot) => self.warn(format!("'{here}' stays an encryption root: what is above it has another key")),
                Err(error) => return Err(failure::dataset("receive", &here, &error)),
            }
        }
        Ok(())
    }

    /// Looks at what is there of a package; None where nothing is.
    fn there(&self, sent: &str, part: &Part) -> Result<Option<There>, Failure> {
        let full = names::destination(self.request, sent, &part.top)?;
        let here = full.split('@').next().unwrap_or(&full).to_string();
        let pool = self.datasets.pools.pool_of(&here, "open")?;
        let Ok(handle) = pool.dsl().hold(&here) else { return Ok(None) };
        let failed = |error: DslError| failure::dataset("receive", &here, &error);
        // Before anything there is renamed or destroyed for a stream that is refused then. Raw ones ask for no key.
        if !part.is_raw && handle.is_locked().map_err(failed)? {
            return Err(because(ErrorKind::Permission, RECEIVE, DslError::NoKey));
        }
        drop(handle);
        There::look(pool, here.clone()).map(Some).map_err(failed)
    }

    /// Promotes clones that were promoted where they come from: there they started from something else than here, or from nothing (OpenZFS:
    /// `recv_incremental_replication`).
    fn promote_moved(&mut self, sent: &str, part: &Part) -> Result<(), Failure> {
        let mut promoted = BTreeSet::new();
        while let Some(there) = self.there(sent, part)? {
            let found = there.clone_to_promote(part, &promoted).map_err(|error| failure::dataset("receive", &there.name, &error))?;
            let Some(name) = found else { return Ok(()) };
            self.say(format!("promoting {name}"));
            promoted.insert(name.clone());
            if !self.request.dry_run {
                let _alone = self.asker.map(|_| there.pool.delegated());
                if let Some(asker) = self.asker {
                    asker.about(format!("cannot promote '{name}'")).check_promote(&there.pool, &name)?;
                }
                self.datasets.promote(&DatasetPromote { name })?;
            }
        }
        Ok(())
    }

    /// Gives datasets the names that they have where they come from; they are known by their snapshots (OpenZFS:
    /// `recv_incremental_replication`).
    fn rename_moved(&mut self, sent: &str, part: &Part) -> Result<(), Failure> {
        for (name, guids) in part.members() {
            // One may lie in another one that just moved.
            let Some(there) = self.there(sent, part)? else { return Ok(()) };
            let Some(wanted) = name_here(&name, &part.top, &there.name) else { continue };
            let parent = wanted.rsplit_once('/').map_or("", |(parent, _)| parent);
            let is_possible = there.pool.dsl().hold(&wanted).is_err() && there.pool.dsl().hold(parent).is_ok();
            let Some(found) = there.with_snapshot(&guids).filter(|_| is_possible) else { continue };
            let from = found.to_string();
            self.say(format!("attempting rename {from} to {wanted}"));
            if !self.request.dry_run {
                let _alone = self.asker.map(|_| there.pool.delegated());
                if let Some(asker) = self.asker {
                    let asker = asker.about(format!("cannot rename '{from}'"));
                    asker.check_rename(&there.pool, &from, &wanted, false)?;
                    asker.check_unmounted(&there.pool, &from)?;
                }
                let force = self.request.force_unmount;
                let rename = DatasetRename { from, to: wanted, parents: false, recursive: false, force, no_unmount: false };
                self.datasets.rename(&rename)?;
            }
        }
        Ok(())
    }

    /// Destroys snapshots that the sender has no more, of datasets that a package with `-F` replaces, and datasets that it lacks (OpenZFS:
    /// `recv_incremental_replication`).
    fn destroy_absent(&mut self, sent: &str, part: &Part) -> Result<(), Failure> {
        let Some(there) = self.there(sent, part)? else { return Ok(()) };
        let members = part.members();
        let is_known = |guid: u64| members.values().any(|guids| guids.contains(&guid));
        let mut absent = Vec::new();
        for (name, snapshots) in &there.datasets {
            absent.extend(snapshots.iter().filter(|(_, guid)| !is_known(*guid)).map(|(snapshot, _)| format!("{name}@{snapshot}")));
            if *name != there.name && !members.contains_key(&name.replacen(&there.name, &part.top, 1)) {
                absent.push(name.clone());
            }
        }
        let absent = there.in_order(absent).map_err(|error| failure::dataset("receive", &there.name, &error))?;
        let word = if self.request.dry_run { "would destroy" } else { "attempting destroy" };
        absent.iter().for_each(|name| self.say(format!("{word} {name}")));
        if self.request.dry_run {
            return Ok(());
        }
        let _alone = self.asker.map(|_| there.pool.delegated());
        self.asker.map_or(Ok(()), |asker| asker.check_destroy(&there.pool, &absent))?;
        self.datasets.destroy_all(&there.pool, &absent, None, (RECEIVE.to_string(), self.request.force_unmount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a package that somebody made up moves datasets out of the place that it is received at.
    #[test]
    fn names_of_a_package_stay_where_it_is_received() {
        let here = |name: &str| name_here(name, "tank/home", "backup/x");
        assert_eq!(here("tank/home").as_deref(), Some("backup/x"));
        assert_eq!(here("tank/home/a/b").as_deref(), Some("backup/x/a/b"));
        for outside in ["backup/other", "tank/homes", "tank", "x/tank/home/a", "", "backup/tank/home"] {
            assert_eq!(here(outside), None, "{outside}");
        }
    }
}
