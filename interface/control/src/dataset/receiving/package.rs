//! Packages: a list of datasets with their snapshots and properties, then their streams (OpenZFS: `zfs_receive_package`).

use super::{RECEIVE, Receiving, names};
use crate::failure::{self, because};
use crate::pool::OpenPool;
use control_api::{DatasetRename, ErrorKind, Failure};
use dsl::DslError;
use nvlist::{NvList, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stream::{Begin, Record, begin_list};

/// List of a package, as far as its streams need it.
pub(super) struct Part {
    /// Name of the dataset that was sent.
    pub top: String,
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

    /// True for a stream of the dataset that the package is of.
    pub(super) fn is_top(&self, begin: &Begin) -> bool {
        let sent = begin.toname.to_string();
        sent.split('@').next() == Some(self.top.as_str())
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
        if self.request.target.contains('@') {
            let why = "can not specify snapshot name for multi-snapshot stream";
            return Err(because(ErrorKind::Invalid, RECEIVE, why));
        }
        match self.next_record()? {
            Some(Record::End(_)) => {}
            _ => return Err(because(ErrorKind::Invalid, RECEIVE, "invalid stream (malformed nvlist)")),
        }
        let part = Part { top, datasets: list.get_nvlist("fss").cloned().unwrap_or_default() };
        let is_recursive = !list.get_flag("not_recursive");
        if list.contains("fromsnap") && is_recursive {
            self.rename_moved(&sent, &part)?;
            if self.request.force {
                self.destroy_absent(&sent, &part)?;
            }
        }
        loop {
            match self.next_record()? {
                // What closes the package, or the end of the source.
                Some(Record::End(_)) | None => return Ok(()),
                Some(Record::Begin(begin)) => {
                    let list =
                        begin_list(&self.payload).map_err(|_| because(ErrorKind::Invalid, RECEIVE, "invalid stream (bad nvlist)"))?;
                    self.substream(&begin, &list, Some(&part))?;
                }
                Some(_) => return Err(because(ErrorKind::Invalid, RECEIVE, "invalid backup stream")),
            }
        }
    }

    /// Looks at what is there of a package; None where nothing is.
    fn there(&self, sent: &str, part: &Part) -> Result<Option<There>, Failure> {
        let full = names::destination(self.request, sent, &part.top)?;
        let here = full.split('@').next().unwrap_or(&full).to_string();
        let pool = self.datasets.pools.pool_of(&here, "open")?;
        if pool.dsl().hold(&here).is_err() {
            return Ok(None);
        }
        There::look(pool, here.clone()).map(Some).map_err(|error| failure::dataset("receive", &here, &error))
    }

    /// Gives datasets the names that they have where they come from; they are known by their snapshots (OpenZFS:
    /// `recv_incremental_replication`).
    fn rename_moved(&mut self, sent: &str, part: &Part) -> Result<(), Failure> {
        for (name, guids) in part.members() {
            // One may lie in another one that just moved.
            let Some(there) = self.there(sent, part)? else { return Ok(()) };
            let wanted = name.replacen(&part.top, &there.name, 1);
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
        // What lies deepest goes first, and the snapshots of a dataset before it.
        absent.sort_by(|a, b| b.cmp(a));
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
