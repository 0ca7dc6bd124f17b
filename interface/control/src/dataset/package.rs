//! Packages: what stands in front of several streams, or of one with properties — names, snapshots, properties, holds (OpenZFS:
//! `gather_nvlist`, `send_prelim_records`).

use crate::dataset::sending::{below, snapshots_of};
use crate::failure::{self, because};
use crate::mount::mounts::is_within;
use crate::pool::OpenPool;
use control_api::{ErrorKind, Failure, SendRequest};
use dsl::prop::table;
use dsl::{DatasetHandle, DslError, PropSource, PropValue, ReceivedValue};
use nvlist::NvList;
use ondisk::ObjsetType;
use std::collections::BTreeSet;
use stream::{Begin, Features, HeaderType, StreamName};

/// First version of file systems with system attributes (OpenZFS: `ZPL_VERSION_SA`).
const VERSION_WITH_ATTRIBUTES: u64 = 5;

/// Datasets of a package: those at and below a name that have the snapshot. Newer ones than the snapshot are left out, older ones only
/// where that was asked for.
pub(super) fn members(
    pool: &OpenPool,
    (filesystem, snapshot): (&str, &str),
    request: &SendRequest,
    warnings: &mut Vec<String>,
) -> Result<Vec<String>, Failure> {
    let top = format!("{filesystem}@{snapshot}");
    let taken = opened(pool, &top)?.creation_txg();
    let (mut found, mut skipped) = (Vec::new(), Vec::<String>::new());
    let is_excluded = |name: &str| request.excluded.iter().any(|excluded| is_within(name, excluded));
    for name in below(pool, filesystem, request.replicate)? {
        if is_excluded(&name) {
            continue;
        }
        if skipped.iter().any(|above| name.starts_with(&format!("{above}/"))) {
            continue;
        }
        if snapshots_of(pool, &name)?.iter().any(|known| known == snapshot) {
            found.push(name);
        } else if opened(pool, &name)?.creation_txg() > taken {
            skipped.push(name);
        } else if request.skip_missing {
            warnings.push(format!("WARNING: skipping dataset {name} and its children: snapshot {snapshot} does not exist"));
            skipped.push(name);
        } else {
            let what = format!("cannot send {top} recursively: snapshot {name}@{snapshot} does not exist");
            let why = format!("warning: cannot send '{top}': backup failed");
            return Err(because(ErrorKind::NotFound, format!("{what}\n{why}"), ""));
        }
    }
    Ok(found)
}

/// Datasets in the order in which they are sent: clones behind what they are of.
pub(super) fn in_order(pool: &OpenPool, names: &[String]) -> Result<Vec<String>, Failure> {
    let all: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let (mut ordered, mut left) = (Vec::<String>::new(), names.to_vec());
    while !left.is_empty() {
        let before = left.len();
        let mut later = Vec::new();
        for name in left {
            let origin = opened(pool, &name)?.origin().map_err(|error| failure::dataset("open", &name, &error))?;
            let of = origin.as_deref().and_then(|origin| origin.split('@').next());
            let waits = of.is_some_and(|of| all.contains(of) && !ordered.iter().any(|done| done == of));
            if waits { later.push(name) } else { ordered.push(name) }
        }
        // A circle of origins is damage, which the streams themselves will meet.
        if later.len() == before {
            ordered.append(&mut later);
        }
        left = later;
    }
    Ok(ordered)
}

/// First record of a package, with its list.
pub(super) fn head(
    pool: &OpenPool,
    names: &[String],
    (from, to): (Option<&str>, &str),
    request: &SendRequest,
) -> Result<(Begin, NvList), Failure> {
    let mut list = NvList::new();
    if let Some(from) = from {
        list.add("fromsnap", from);
    }
    list.add("tosnap", to);
    if !request.replicate {
        list.add_boolean("not_recursive");
    }
    if request.raw {
        list.add_boolean("raw");
    }
    let mut members = NvList::new();
    let mut bases: Vec<(String, u64)> = Vec::new();
    for name in names {
        let above = name.rsplit_once('/').map_or("", |(above, _)| above);
        let parent = bases.iter().find(|(known, _)| known == above).map_or(0, |(_, guid)| *guid);
        let handle = opened(pool, name)?;
        let gather = Member { pool, name, handle: &handle, from, to, request };
        let (list, guid) = gather.list(parent).map_err(|error| failure::dataset("open", name, &error))?;
        bases.push((name.clone(), guid));
        members.add(format!("{:#x}", handle.guid()).as_str(), list);
    }
    list.add("fss", members);
    let top = names.first().map(String::as_str).unwrap_or_default();
    let is_new = opened(pool, top).is_ok_and(|handle| has_attributes(&handle));
    let features = Features::default().with_if(is_new, Features::SA_SPILL).with_if(request.holds, Features::HOLDS);
    let toname = StreamName::new(&format!("{top}@{to}"));
    let toname = toname.ok_or_else(|| because(ErrorKind::Invalid, format!("warning: cannot send '{top}@{to}'"), "name is too long"))?;
    Ok((Begin { versioninfo: features.versioninfo(HeaderType::Compound), toname, ..Begin::default() }, list))
}

fn has_attributes(handle: &DatasetHandle) -> bool {
    let is_files = handle.kind().is_ok_and(|kind| kind == ObjsetType::ZFS);
    is_files && handle.prop_u64("version").is_ok_and(|(version, _)| version >= VERSION_WITH_ATTRIBUTES)
}

fn opened(pool: &OpenPool, name: &str) -> Result<DatasetHandle, Failure> {
    pool.dsl().hold(name).map_err(|error| failure::dataset("open", name, &error))
}

/// Dataset whose part of a package's list is made.
struct Member<'a> {
    pool: &'a OpenPool,
    name: &'a str,
    handle: &'a DatasetHandle,
    from: Option<&'a str>,
    to: &'a str,
    request: &'a SendRequest,
}

impl Member<'_> {
    /// Part of the list, and the guid of its base, of its own snapshot where it has no base.
    fn list(&self, parent: u64) -> Result<(NvList, u64), DslError> {
        let mut list = NvList::new().with("name", self.name).with("parentfromsnap", parent);
        if let Some(origin) = self.handle.origin()? {
            list.add("origin", self.pool.dsl().hold(&origin)?.guid());
        }
        if self.request.raw && self.is_root()? {
            list.add_boolean("is_encroot");
        }
        if self.request.props || self.request.backup || self.request.replicate {
            list.add("props", self.props(self.handle)?);
        }
        let (mut guids, mut props, mut holds, mut base) = (NvList::new(), NvList::new(), NvList::new(), 0);
        for entry in self.snapshots()? {
            let full = format!("{}@{entry}", self.name);
            let snapshot = self.pool.dsl().hold(&full)?;
            guids.add(entry.as_str(), snapshot.guid());
            if self.from == Some(entry.as_str()) || base == 0 && entry == self.to {
                base = snapshot.guid();
            }
            let mut own = self.props(&snapshot)?;
            if self.request.replicate && !snapshot.clones()?.is_empty() {
                own.add_boolean("is_clone_origin");
            }
            props.add(entry.as_str(), own);
            if self.request.holds {
                let mut tags = NvList::new();
                for hold in self.pool.dsl().user_holds(&full)? {
                    tags.add(hold.tag.as_str(), hold.time);
                }
                holds.add(entry.as_str(), tags);
            }
        }
        list.add("snaps", guids).add("snapprops", props);
        if self.request.holds {
            list.add("snapholds", holds);
        }
        Ok((list, base))
    }

    /// True for an encryption root.
    fn is_root(&self) -> Result<bool, DslError> {
        Ok(matches!(self.handle.prop("encryptionroot")?.value, PropValue::Text(root) if root == self.name))
    }

    /// Snapshots that the list names, oldest first: of a replica all, or the receiver takes them for destroyed.
    fn snapshots(&self) -> Result<Vec<String>, DslError> {
        let known: Vec<String> = self.pool.dsl().snapshots(self.name)?.into_iter().map(|snapshot| snapshot.name).collect();
        let place = |name: &str| known.iter().position(|known| known == name);
        let last = place(self.to).map_or(0, |last| last + 1);
        let first = match self.from.and_then(place) {
            _ if self.request.replicate => 0,
            Some(first) => first,
            None if self.request.all => 0,
            None => last.saturating_sub(1),
        };
        Ok(known[first..last.max(first)].to_vec())
    }

    /// Properties that were set on a dataset or snapshot itself, or came with a receive; of a backup all that came with a receive, also what
    /// a setting covers, and nothing else (OpenZFS: `send_iterate_prop`).
    fn props(&self, handle: &DatasetHandle) -> Result<NvList, DslError> {
        let mut list = NvList::new();
        let is_limit = |name: &str| matches!(name, "quota" | "reservation" | "refquota" | "refreservation");
        // A place that keys come from is no other host's.
        let is_left_out = |name: &str| matches!(name, "volsize" | "keylocation") || is_limit(name) && handle.is_snapshot();
        if self.request.backup {
            for (name, value) in handle.received_props()?.into_iter().filter(|(name, _)| !is_left_out(name)) {
                match value {
                    ReceivedValue::Number(number) => list.add(name.as_str(), number),
                    ReceivedValue::Text(text) => list.add(name.as_str(), text),
                };
            }
            return Ok(list);
        }
        for entry in handle.props()? {
            let is_own = matches!(entry.source, PropSource::Local | PropSource::Received);
            if !is_own || is_left_out(&entry.name) {
                continue;
            }
            // Words that stand for numbers travel as these.
            let is_number = table::native(&entry.name).is_some_and(|known| !matches!(known.kind, table::Kind::Text(_)));
            if is_number {
                list.add(entry.name.as_str(), handle.prop_u64(&entry.name)?.0);
            } else {
                list.add(entry.name.as_str(), handle.prop_text(&entry.name)?.0);
            }
        }
        Ok(list)
    }
}
