//! `zdb -d` of one object set: its line, and from `-dd` on its objects (OpenZFS: `dump_objset` in `zdb.c`).

use crate::dump::Dump;
use crate::object::Shown;
use crate::tree::{Tree, WalkError};
use dmu::{DmuError, Objset};
use dsl::DslError;
use ondisk::{
    Bookmark, BpobjPhys, DNODE_SLOT_BYTES, DeadlistPhys, DnodePhys, DslDatasetPhys, GROUPUSED_OBJECT, ObjectId, ObjectType, ObjsetPhys,
    ObjsetType, PROJECTUSED_OBJECT, USERUSED_OBJECT,
};
use std::fmt;
use std::sync::Arc;
use zap::Zap;

/// Range of objects to show: `START[:END[:FLAGS]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Number of the first object.
    pub start: i64,
    /// Number of the last object.
    pub end: i64,
    /// Types of those objects that are shown.
    pub kinds: Kinds,
}

/// Types of objects that are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    files: bool,
    directories: bool,
    maps: bool,
    zaps: bool,
    others: bool,
}

impl Kinds {
    const ALL: Kinds = Kinds { files: true, directories: true, maps: true, zaps: true, others: true };
    const NONE: Kinds = Kinds { files: false, directories: false, maps: false, zaps: false, others: false };

    /// Reads letters: `A`ll, `d`irectories, `f`iles, space `m`aps, `z`aps; `-` before one takes it away.
    fn parse(letters: &str) -> Result<Kinds, &'static str> {
        let (mut kinds, mut wanted) = (Kinds::NONE, true);
        for letter in letters.chars() {
            match letter {
                '-' if !wanted => return Err("Invalid flag"),
                '-' => {
                    wanted = false;
                    continue;
                }
                'A' => kinds = if wanted { Kinds::ALL } else { Kinds::NONE },
                'd' => kinds.directories = wanted,
                'f' => kinds.files = wanted,
                'm' => kinds.maps = wanted,
                'z' => kinds.zaps = wanted,
                _ => return Err("Invalid flag"),
            }
            wanted = true;
        }
        if letters.is_empty() || !wanted { Err("Invalid trailing flag") } else { Ok(kinds) }
    }

    /// True when objects of a type are selected (OpenZFS: `match_object_type`).
    fn has(self, kind: ObjectType) -> bool {
        match kind {
            ObjectType::DIRECTORY_CONTENTS => self.directories,
            ObjectType::PLAIN_FILE_CONTENTS => self.files,
            ObjectType::SPACE_MAP => self.maps,
            other if other.listing_name() == "zap" => self.zaps,
            _ => self.others,
        }
    }
}

impl Range {
    /// Range of one object.
    pub fn one(object: u64) -> Range {
        Range { start: object as i64, end: object as i64, kinds: Kinds::ALL }
    }

    /// Reads a range as OpenZFS's `parse_object_range` does.
    pub fn parse(text: &str) -> Result<Range, &'static str> {
        let number = |text: &str| -> Option<i64> {
            let parsed = text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| i64::from_str_radix(hex, 16).ok());
            parsed.or_else(|| text.parse::<u64>().ok().map(|number| number as i64))
        };
        let Some((start, end)) = text.split_once(':') else {
            let start = number(text).ok_or("Invalid characters in object ID")?;
            return Ok(Range { start, end: start, kinds: Kinds::ALL });
        };
        if start.is_empty() {
            return Err("Invalid leading colon");
        }
        let (end, kinds) = match end.split_once(':') {
            Some((_, "")) => return Err("Invalid trailing colon"),
            Some((end, letters)) => (end, Kinds::parse(letters)?),
            None => (end, Kinds::ALL),
        };
        if end.is_empty() {
            return Err("Invalid trailing colon");
        }
        let start = number(start).ok_or("Invalid characters in start object ID")?;
        let end = number(end).ok_or("Invalid characters in end object ID")?;
        let end = if end == -1 { i64::MAX } else { end };
        if start <= end { Ok(Range { start, end, kinds }) } else { Err("Start object ID may not exceed end object ID") }
    }
}

/// Reason why an object set cannot be shown.
#[derive(Debug)]
pub enum ObjsetError {
    /// Root cannot be read.
    Walk(WalkError),
    /// Root is no object set.
    Root(ondisk::ObjsetError),
    /// Object of it cannot be read.
    Dmu(DmuError),
    /// Dataset cannot be read.
    Dsl(DslError),
}

impl fmt::Display for ObjsetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjsetError::Walk(error) => write!(f, "{error}"),
            ObjsetError::Root(error) => write!(f, "{error}"),
            ObjsetError::Dmu(error) => write!(f, "{error}"),
            ObjsetError::Dsl(error) => write!(f, "{error}"),
        }
    }
}

macro_rules! from {
    ($($error:ty => $variant:ident),*) => {$(
        impl From<$error> for ObjsetError {
            fn from(error: $error) -> ObjsetError {
                ObjsetError::$variant(error)
            }
        }
    )*};
}
from!(WalkError => Walk, ondisk::ObjsetError => Root, DmuError => Dmu, DslError => Dsl);

/// Object set to show, with what its dataset says.
pub struct Subject {
    /// Object set itself.
    pub objset: Arc<Objset>,
    /// True for one that is encrypted, without its key.
    pub is_locked: bool,
    /// Full name of the dataset; `mos` for the meta object set.
    pub name: String,
    /// Bytes that it refers to.
    pub bytes: u64,
    /// Txg of its creation.
    pub created: u64,
    /// Record of the dataset; None for the meta object set.
    pub dataset: Option<DslDatasetPhys>,
}

fn type_name(kind: ObjsetType) -> &'static str {
    ["NONE", "META", "ZPL", "ZVOL", "OTHER", "ANY"].get(kind.0 as usize).copied().unwrap_or("UNKNOWN")
}

/// Counts of the objects of a whole object set.
#[derive(Default)]
struct Slots {
    used: u64,
    last: u64,
}

/// Shows an object set: its line, and the objects in `ranges` or, without any, what the verbosity asks for.
pub fn dump(dump: &mut Dump<'_>, mos: &Arc<Objset>, subject: &Subject, ranges: &[Range]) -> Result<(), ObjsetError> {
    const INCONSISTENT: u64 = 1;
    let objset = &subject.objset;
    let root = objset.root_bp();
    let pointer = if dump.datasets >= 4 { format!(", rootbp {root}") } else { String::new() };
    let inconsistent = subject.dataset.as_ref().is_some_and(|phys| phys.ds_flags & INCONSISTENT != 0);
    let note = if inconsistent { " (inconsistent)" } else { "" };
    let (kind, bytes) = (type_name(objset.kind()), dump.number(subject.bytes));
    dump.line(format_args!(
        "Dataset {} [{kind}], ID {}, cr_txg {}, {bytes}, {} objects{pointer}{note}",
        subject.name,
        objset.id(),
        subject.created,
        root.fill()
    ));
    let mut shown = Shown::new(objset.clone(), subject.is_locked);
    if !ranges.is_empty() {
        for range in ranges {
            dump_range(dump, &mut shown, *range)?;
        }
        dump.line(format_args!(""));
        return Ok(());
    }
    if dump.datasets >= 2 {
        dump_intent_log(dump, objset);
    }
    if let Some(phys) = &subject.dataset {
        dump_deadlist(dump, mos, phys.ds_deadlist_obj, "Deadlist");
        let livelist = Zap::hold(mos, ObjectId(phys.ds_dir_obj)).and_then(|dir| dir.try_lookup_u64("com.delphix:livelist"));
        if let (Ok(Some(list)), 0) = (livelist, phys.ds_next_snap_obj) {
            dump_deadlist(dump, mos, list, "Livelist");
        }
    }
    if dump.datasets < 2 || root.is_hole() {
        return Ok(());
    }
    dump_all(dump, &mut shown)
}

fn read_root(shown: &Shown) -> Result<ObjsetPhys, ObjsetError> {
    let objset = &shown.objset;
    let bookmark = Bookmark { objset: objset.id(), ..Bookmark::default() };
    let root = objset.io().read(&objset.root_bp(), &bookmark).map_err(WalkError::Block)?;
    Ok(ObjsetPhys::decode(&root.to_vec())?)
}

/// Calls `each` for every object of the meta dnode in order, with its dnode; false stops.
fn for_each(shown: &Shown, root: &ObjsetPhys, each: &mut dyn FnMut(u64, &DnodePhys) -> bool) -> Result<(), ObjsetError> {
    let objset = shown.objset.clone();
    let tree = Tree { io: objset.io().as_ref(), objset: objset.id(), object: ObjectId(0), phys: &root.meta_dnode };
    let mut failed = None;
    let mut stopped = false;
    tree.walk(&mut |level, block, bp| {
        if stopped || failed.is_some() {
            return false;
        }
        if level > 0 || bp.is_hole() {
            return true;
        }
        let data = match tree.read(0, block, bp) {
            Ok(data) => data,
            Err(error) => {
                failed = Some(error);
                return false;
            }
        };
        let per_block = (data.len() / DNODE_SLOT_BYTES) as u64;
        let mut slot = 0;
        while slot < per_block && !stopped {
            let decoded = DnodePhys::decode(&data[slot as usize * DNODE_SLOT_BYTES..]);
            let Ok(Some(phys)) = decoded else {
                slot += 1;
                continue;
            };
            let object = block * per_block + slot;
            stopped = object != 0 && !each(object, &phys);
            slot += phys.slots() as u64;
        }
        true
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn dump_special(dump: &mut Dump<'_>, shown: &mut Shown, root: &ObjsetPhys, wanted: impl Fn(i64) -> bool) {
    let special =
        [(USERUSED_OBJECT, &root.userused_dnode), (GROUPUSED_OBJECT, &root.groupused_dnode), (PROJECTUSED_OBJECT, &root.projectused_dnode)];
    for (object, phys) in special {
        if let (Some(phys), true) = (phys, wanted(object.0 as i64)) {
            shown.object(dump, object, phys);
        }
    }
}

fn dump_range(dump: &mut Dump<'_>, shown: &mut Shown, range: Range) -> Result<(), ObjsetError> {
    let root = read_root(shown)?;
    if range.start <= 0 && range.end >= 0 && range.kinds.others {
        shown.object(dump, ObjectId(0), &root.meta_dnode);
    }
    let inside = |object: i64| object >= range.start && object <= range.end;
    dump_special(dump, shown, &root, |object| range.kinds.others && inside(object));
    let mut found = Vec::new();
    for_each(shown, &root, &mut |object, phys| {
        if inside(object as i64) && range.kinds.has(phys.object_type) {
            found.push((object, phys.clone()));
        }
        (object as i64) < range.end
    })?;
    if found.is_empty() && range.start == range.end && range.start > 0 {
        return Err(ObjsetError::Dmu(DmuError::NoSuchObject));
    }
    for (object, phys) in found {
        shown.object(dump, ObjectId(object), &phys);
    }
    Ok(())
}

fn dump_all(dump: &mut Dump<'_>, shown: &mut Shown) -> Result<(), ObjsetError> {
    let root = read_root(shown)?;
    shown.object(dump, ObjectId(0), &root.meta_dnode);
    dump_special(dump, shown, &root, |_| true);
    let mut slots = Slots::default();
    // The walk borrows what is shown; its object set does not change meanwhile.
    let walked = Shown::new(shown.objset.clone(), shown.is_locked);
    for_each(&walked, &root, &mut |object, phys| {
        shown.object(dump, ObjectId(object), phys);
        slots.used += phys.slots() as u64;
        slots.last = object + phys.slots() as u64 - 1;
        true
    })?;
    let empty = slots.last.saturating_sub(slots.used) as f64 * 100.0 / slots.last as f64;
    dump.line(format_args!("\n    Dnode slots:"));
    dump.line(format_args!("\tTotal used:    {:10}", slots.used));
    dump.line(format_args!("\tMax used:      {:10}", slots.last));
    dump.line(format_args!("\tPercent empty: {empty:10.6}\n"));
    if shown.leaked > 0 {
        dump.line(format_args!("{} potentially leaked objects detected", shown.leaked));
    }
    Ok(())
}

fn dump_intent_log(dump: &mut Dump<'_>, objset: &Objset) {
    let header = objset.zil_header();
    if header.zh_log.is_hole() {
        return;
    }
    dump.text(format_args!("\n    ZIL header: claim_txg {}, ", header.zh_claim_txg));
    dump.text(format_args!("claim_blk_seq {}, claim_lr_seq {}", header.zh_claim_blk_seq, header.zh_claim_lr_seq));
    dump.line(format_args!(" replay_seq {}, flags 0x{:x}", header.zh_replay_seq, header.zh_flags));
}

/// Shows the deadlist of a dataset (OpenZFS: `dump_blkptr_list`).
pub fn dump_deadlist(dump: &mut Dump<'_>, mos: &Arc<Objset>, object: u64, name: &str) {
    if dump.datasets < 3 {
        return;
    }
    let Ok(dnode) = mos.hold(ObjectId(object)) else {
        return dump.damage(format_args!("the deadlist, object {object}, cannot be read"));
    };
    let Ok(bonus) = dnode.bonus() else { return };
    let Ok(zap) = Zap::open(dnode) else {
        return dump_bpobj(dump, mos, object, "old-format deadlist");
    };
    let Ok(phys) = DeadlistPhys::decode(&bonus) else {
        return dump.damage(format_args!("the deadlist, object {object}, has no header"));
    };
    let mut entries = Vec::new();
    let listed = zap.for_each(|entry| {
        let name = std::str::from_utf8(&entry.name).unwrap_or_default();
        entries.push((u64::from_str_radix(name, 16).unwrap_or(0), entry.first_integer));
        Ok(())
    });
    entries.sort_unstable();
    let (bytes, comp, uncomp) = (dump.number(phys.dl_used), dump.number(phys.dl_comp), dump.number(phys.dl_uncomp));
    let count = dump.number(entries.len() as u64);
    dump.line(format_args!("\n    {name}: {bytes} ({comp}/{uncomp} comp), {count} entries"));
    if let Err(error) = listed {
        dump.damage(format_args!("the deadlist, object {object}: {error}"));
    }
    if dump.datasets < 4 {
        return;
    }
    dump.line(format_args!(""));
    for (txg, list) in entries {
        if dump.datasets >= 5 {
            dump_bpobj(dump, mos, list, &format!("mintxg {txg} -> obj {list}"));
        } else {
            dump.line(format_args!("mintxg {txg} -> obj {list}"));
        }
    }
}

/// Shows a list of block pointers with its sums (OpenZFS: `dump_full_bpobj`).
pub fn dump_bpobj(dump: &mut Dump<'_>, mos: &Arc<Objset>, object: u64, name: &str) {
    let bonus = mos.hold(ObjectId(object)).and_then(|dnode| dnode.bonus()).ok();
    let Some((phys, bonus_bytes)) = bonus.and_then(|bonus| Some((BpobjPhys::decode_bonus(&bonus).ok()?, bonus.len()))) else {
        return dump.damage(format_args!("the list of blocks, object {object}, cannot be read"));
    };
    let (bytes, comp, uncomp) = (dump.number(phys.bpo_bytes), dump.number(phys.bpo_comp), dump.number(phys.bpo_uncomp));
    let count = phys.bpo_num_blkptrs;
    let freed = if bonus_bytes >= BpobjPhys::SIZE { format!("{} freed, ", phys.bpo_num_freed) } else { String::new() };
    if phys.bpo_num_subobjs > 0 {
        let (lists, subobjs) = (phys.bpo_num_subobjs, phys.bpo_subobjs);
        dump.text(format_args!("    {name}: object {object}, {count} local blkptrs, {freed}{lists} subobjs in object {subobjs}, "));
        dump.line(format_args!("{bytes} ({comp}/{uncomp} comp)"));
    } else {
        dump.line(format_args!("    {name}: object {object}, {count} blkptrs, {freed}{bytes}"));
    }
    if dump.datasets >= 5 {
        crate::viewer::block_pointers(dump, mos, ObjectId(object), &mut (0..count).rev());
        dump.line(format_args!(""));
    }
}

#[cfg(test)]
mod tests {
    use super::{Kinds, Range};

    #[test]
    fn ranges_read_as_openzfs_reads_them() {
        let range = |start, end| Ok(Range { start, end, kinds: Kinds::ALL });
        let kinds = |text: &str| Range::parse(text).map(|range| range.kinds);
        assert_eq!(Range::parse("7"), range(7, 7));
        assert_eq!(Range::parse("0x10"), range(16, 16));
        assert_eq!(Range::parse("-2"), range(-2, -2));
        assert_eq!(Range::parse("3:9"), range(3, 9));
        assert_eq!(Range::parse("3:-1"), range(3, i64::MAX));
        assert_eq!(Range::parse("x"), Err("Invalid characters in object ID"));
        assert_eq!(Range::parse(":4"), Err("Invalid leading colon"));
        assert_eq!(Range::parse("4:"), Err("Invalid trailing colon"));
        assert_eq!(kinds("0:-1:df"), Ok(Kinds { files: true, directories: true, ..Kinds::NONE }));
        assert_eq!(kinds("0:-1:A-m-z"), Ok(Kinds { maps: false, zaps: false, ..Kinds::ALL }));
        for bad in ["0:1:", "0:1:x", "0:1:A-", "0:1:A--f", "0:1:f:f", "0::f"] {
            assert!(kinds(bad).is_err(), "{bad}");
        }
        assert_eq!(Range::parse("9:3"), Err("Start object ID may not exceed end object ID"));
    }
}
