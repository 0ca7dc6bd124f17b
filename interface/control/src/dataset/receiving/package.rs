//! Packages: a list of datasets with their snapshots and properties, then their streams (OpenZFS: `zfs_receive_package`).

use super::{RECEIVE, Receiving, names};
use crate::failure::{self, because};
use control_api::{ErrorKind, Failure};
use nvlist::{NvList, Value};
use std::collections::BTreeSet;
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

    /// Guids of all snapshots that the package knows, and names of its datasets.
    fn known(&self) -> (BTreeSet<u64>, BTreeSet<String>) {
        let (mut guids, mut datasets) = (BTreeSet::new(), BTreeSet::new());
        for (_, dataset) in self.datasets.iter() {
            let Value::NvList(dataset) = dataset else { continue };
            datasets.extend(dataset.get_str("name").map(str::to_string));
            let snapshots = dataset.get_nvlist("snaps").into_iter().flat_map(NvList::iter);
            guids.extend(snapshots.filter_map(|(_, value)| if let Value::Uint64(guid) = value { Some(*guid) } else { None }));
        }
        (guids, datasets)
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
        if self.request.force && list.contains("fromsnap") && is_recursive {
            self.destroy_absent(&sent, &part)?;
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

    /// Destroys snapshots that the sender has no more, of datasets that a package with `-F` replaces, and datasets that it lacks (OpenZFS:
    /// `recv_incremental_replication`).
    fn destroy_absent(&mut self, sent: &str, part: &Part) -> Result<(), Failure> {
        let full = names::destination(self.request, sent, &part.top)?;
        let here = full.split('@').next().unwrap_or(&full).to_string();
        let pool = self.datasets.pools.pool_of(&here, "open")?;
        if pool.dsl().hold(&here).is_err() {
            return Ok(());
        }
        let (guids, datasets) = part.known();
        let failed = |error: dsl::DslError| failure::dataset("receive", &here, &error);
        let (mut absent, mut waiting) = (Vec::new(), vec![here.clone()]);
        while let Some(name) = waiting.pop() {
            let snapshots = pool.dsl().snapshots(&name).map_err(failed)?;
            for snapshot in &snapshots {
                let guid = pool.dsl().hold_object(snapshot.object).map_err(failed)?.guid();
                if !guids.contains(&guid) {
                    absent.push(format!("{name}@{}", snapshot.name));
                }
            }
            let there = name.replacen(&here, &part.top, 1);
            if !datasets.contains(&there) && name != here {
                absent.push(name.clone());
            }
            waiting.extend(pool.dsl().children(&name).map_err(failed)?.into_iter().map(|child| format!("{name}/{child}")));
        }
        // What lies deepest goes first, and the snapshots of a dataset before it.
        absent.sort_by(|a, b| b.cmp(a));
        let word = if self.request.dry_run { "would destroy" } else { "attempting destroy" };
        absent.iter().for_each(|name| self.say(format!("{word} {name}")));
        if self.request.dry_run {
            return Ok(());
        }
        self.datasets.destroy_all(&pool, &absent, None, (RECEIVE.to_string(), self.request.force_unmount))
    }
}
