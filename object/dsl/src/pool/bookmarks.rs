//! Bookmarks: what is remembered of a snapshot without keeping any of its blocks (OpenZFS: `dsl_bookmark.c`).
//!
//! A dataset's bookmarks are a ZAP that its own names. With the feature `bookmark_written` their records count what is freed behind them
//! ([`crate::marks`]); without it they are of the first version, three words, unless they are of an encrypted snapshot, whose set of IVs they
//! name, or were copied from a longer one.
//!
//! Only bookmarks of a dataset's own snapshots count. OpenZFS has those of a clone's origin count too, but follows neither the origin's
//! snapshots that go nor the keys of deadlists for them.

use super::list_keys;
use super::redaction::{HeldLists, RedactionList};
use super::tree::Tree;
use crate::dataset::Dataset;
use crate::deadlist::Deadlist;
use crate::dir::Dir;
use crate::marks::{self, Stored, TABLE, WORDS_V1};
use crate::meta::Usage;
use crate::redaction::{self, RedactedRun, Redaction};
use crate::{DslError, features, keys, names};
use dmu::Tx;
use ondisk::{DslBookmarkPhys, ObjectType, ds_flags};
use std::sync::Arc;
use zap::{CreateOptions, Match, NormFlags, Value, Zap};

/// A bookmark in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookmarkEntry {
    /// The part behind `#`.
    pub name: String,
    /// Globally unique id of the snapshot that it is of.
    pub guid: u64,
    /// Txg in which that snapshot was taken.
    pub creation_txg: u64,
    /// Seconds since the epoch at which it was taken.
    pub creation_time: u64,
    /// Space that the snapshot referred to, where the bookmark knows it.
    pub space: Option<BookmarkSpace>,
    /// Name of the snapshot's set of IVs, by which raw streams know it; 0 when it had none.
    pub ivs: u64,
    /// List of what was redacted, of a bookmark that has one.
    pub redaction: Option<Redaction>,
}

/// Space that a bookmark's snapshot referred to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BookmarkSpace {
    /// Bytes on disk.
    pub referenced: u64,
    /// Bytes after compression, before copies and parity.
    pub compressed: u64,
    /// Bytes before compression.
    pub uncompressed: u64,
}

impl BookmarkSpace {
    /// Ratio of compression, in hundredths.
    pub fn compress_ratio(&self) -> u64 {
        crate::space::ratio(self.uncompressed, self.compressed)
    }
}

/// A bookmark that is to be made.
pub(super) struct NewBookmark {
    head: Arc<Dataset>,
    name: String,
    record: DslBookmarkPhys,
    /// Words of the history about its source.
    source: String,
    /// Guids by which its snapshot was redacted, which it gets a list of; None when that lacks nothing.
    redacted: Option<Vec<u64>>,
}

/// A bookmark with a redaction list that is to be made.
pub(super) struct NewRedaction {
    guids: Vec<u64>,
    place: ListPlace,
}

/// Place of a bookmark's list.
enum ListPlace {
    /// Into a bookmark that is made for it.
    New(NewBookmark),
    /// Anew into the list with this object, which was not finished.
    Unfinished(u64),
}

/// A bookmark that is to go, and the dataset that has it.
pub(super) struct OldBookmark {
    head: Arc<Dataset>,
    stored: Stored,
}

/// Bookmarks, with the part of the pool that they need.
pub(crate) struct Bookmarks {
    tree: Arc<Tree>,
    lists: Arc<HeldLists>,
}

impl Bookmarks {
    pub(super) fn new(tree: Arc<Tree>) -> Bookmarks {
        Bookmarks { tree, lists: Arc::default() }
    }

    /// The table of a dataset's bookmarks, if it has some.
    fn table(&self, head: &Dataset) -> Result<Option<Zap>, DslError> {
        marks::table(&self.tree.meta, head.object)
    }

    /// The bookmark of this name, as a dataset that ignores case or not finds it.
    fn find(&self, head: &Dataset, name: impl AsRef<[u8]>) -> Result<Option<Stored>, DslError> {
        let Some(table) = self.table(head)? else { return Ok(None) };
        let ignores_case = head.phys().ds_flags & ds_flags::CI_DATASET != 0;
        match table.lookup_norm(name, if ignores_case { Match::Normalize } else { Match::Exact }) {
            Ok(found) => Ok(Some(marks::stored(&table, found.name, &found.value)?)),
            Err(zap::ZapError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Every bookmark of a dataset.
    fn all(&self, head: &Dataset) -> Result<Vec<Stored>, DslError> {
        self.table(head)?.map_or(Ok(Vec::new()), |table| marks::all(&table))
    }

    /// The bookmarks of a dataset, oldest first. Names that no bookmark may have come from hostile or damaged pools, and are left out.
    pub(super) fn list(&self, head: &Dataset) -> Result<Vec<BookmarkEntry>, DslError> {
        let mut entries = Vec::new();
        for Stored { name, record, .. } in self.all(head)? {
            let name = String::from_utf8_lossy(&name).into_owned();
            if names::check_component(&name).is_err() {
                continue;
            }
            entries.push(BookmarkEntry {
                name,
                guid: record.zbm_guid,
                creation_txg: record.zbm_creation_txg,
                creation_time: record.zbm_creation_time,
                ivs: record.zbm_ivset_guid,
                redaction: list_of(&record).map(|list| redaction::read(&self.tree.meta, list)).transpose()?,
                space: marks::counts_freed(&record).then_some(BookmarkSpace {
                    referenced: record.zbm_referenced_bytes_refd,
                    compressed: record.zbm_compressed_bytes_refd,
                    uncompressed: record.zbm_uncompressed_bytes_refd,
                }),
            });
        }
        entries.sort_by(|a, b| (a.creation_txg, &a.name).cmp(&(b.creation_txg, &b.name)));
        Ok(entries)
    }

    /// A look that the bookmarks of a dataset can be read: what is damaged is found here, where it is the caller's error.
    pub(super) fn check_all(&self, head: &Dataset) -> Result<(), DslError> {
        self.all(head).map(drop)
    }

    /// A look that all bookmarks of a dataset can go with it.
    pub(super) fn check_destroy_all(&self, head: &Dataset) -> Result<(), DslError> {
        self.all(head)?.iter().try_for_each(|stored| self.check_list(&stored.record))
    }

    /// A look that the redaction list of a bookmark, if it has one, can go.
    fn check_list(&self, record: &DslBookmarkPhys) -> Result<(), DslError> {
        let Some(list) = list_of(record) else { return Ok(()) };
        redaction::read(&self.tree.meta, list)?;
        if self.lists.has(list) { Err(DslError::Busy) } else { Ok(()) }
    }

    /// Redaction list of the bookmark of this full name, held; None for a bookmark without one.
    pub(super) fn hold_list(&self, name: &str) -> Result<Option<RedactionList>, DslError> {
        let (dataset, name) = names::split_bookmark(name)?;
        let head = self.tree.find(dataset)?;
        let stored = self.find(&head, name)?.ok_or(DslError::NotFound)?;
        list_of(&stored.record).map(|list| RedactionList::hold(&self.tree, &self.lists, list)).transpose()
    }

    /// A look that a dataset can go back to what it was in this txg: no bookmark is of anything later (OpenZFS: `dsl_bookmark_latest_txg`).
    pub(super) fn check_none_after(&self, head: &Dataset, txg: u64) -> Result<(), DslError> {
        if self.all(head)?.iter().any(|stored| stored.txg() > txg) { Err(DslError::Exists) } else { Ok(()) }
    }

    /// The bookmarks of `from` that stand for what it was up to a txg, after a look that `to` can have them (OpenZFS: `dsl_dataset_promote_check`).
    pub(super) fn check_move(&self, from: &Dataset, to: &Dataset, until: u64) -> Result<Vec<Stored>, DslError> {
        self.check_all(to)?;
        let room = names::NAME_BYTES_MAX.saturating_sub(to.dir.full_name().len() + 1);
        let mut moving = self.all(from)?;
        moving.retain(|stored| stored.record.zbm_creation_txg <= until);
        for stored in &moving {
            if stored.name.len() >= room {
                return Err(DslError::NameTooLong);
            }
            if self.find(to, &stored.name)?.is_some() {
                return Err(DslError::Conflict { name: String::from_utf8_lossy(&stored.name).into_owned() });
            }
        }
        Ok(moving)
    }

    /// A look that a bookmark of this full name can be made of a snapshot or of another bookmark.
    pub(super) fn check_create(&self, bookmark: &str, source_name: &str) -> Result<NewBookmark, DslError> {
        if !self.tree.meta.services.feature_enabled(features::BOOKMARKS) {
            return Err(DslError::Unsupported);
        }
        let (dataset, name) = names::split_bookmark(bookmark)?;
        let head = self.tree.find(dataset)?;
        if self.find(&head, name)?.is_some() {
            return Err(DslError::Exists);
        }
        let (of, record, source) = self.source(source_name, &head.dir)?;
        if !self.is_before(&head.dir, &of, record.zbm_creation_txg)? {
            return Err(DslError::NotAncestor);
        }
        let redacted = self.redacted_by(source_name)?;
        Ok(NewBookmark { head, name: name.to_string(), record, source, redacted })
    }

    /// A look that a snapshot (full name) can have a bookmark of this name with a redaction list by snapshots of these guids, or has one that was not
    /// finished (OpenZFS: `dmu_redact_snap`, `dsl_bookmark_create_redacted_check`).
    pub(super) fn check_redaction(&self, snapshot: &str, name: &str, guids: Vec<u64>) -> Result<NewRedaction, DslError> {
        let meta = &self.tree.meta;
        let (dataset, of) = names::split(snapshot)?;
        of.ok_or(DslError::NotSnapshot)?;
        let bookmark = format!("{dataset}#{name}");
        names::split_bookmark(&bookmark)?;
        let found = self.tree.find(snapshot)?;
        if found.features() & features::bit(features::REDACTED_DATASETS) != 0 {
            return Err(DslError::Redacted);
        }
        let place = match self.find(&*self.tree.find(dataset)?, name)? {
            Some(stored) => {
                let list = list_of(&stored.record).ok_or(DslError::Exists)?;
                let facts = redaction::read(meta, list)?;
                match redaction::same_snapshots(&facts.snapshots, &guids) {
                    false => return Err(DslError::OtherRedaction),
                    true if facts.is_whole => return Err(DslError::Exists),
                    true if self.lists.has(list) => return Err(DslError::Busy),
                    true if !redaction::can_grow(meta, list)? => return Err(DslError::Unsupported),
                    true => ListPlace::Unfinished(list),
                }
            }
            None if !meta.services.feature_enabled(features::REDACTION_BOOKMARKS) => return Err(DslError::Unsupported),
            None if guids.len() > redaction::snapshots_max(meta) => return Err(DslError::TooManySnapshots),
            None => ListPlace::New(self.check_create(&bookmark, snapshot)?),
        };
        Ok(NewRedaction { guids, place })
    }

    /// Makes a bookmark with an empty redaction list, or empties that which was not finished, and holds the list.
    pub(super) fn create_redaction(&self, new: NewRedaction, tx: &Tx) -> Result<RedactionList, DslError> {
        let object = match new.place {
            ListPlace::Unfinished(object) => object,
            ListPlace::New(mut bookmark) => {
                let object = redaction::create(&self.tree.meta, &new.guids, tx)?;
                bookmark.record.zbm_redaction_obj = object;
                self.create(&bookmark, tx)?;
                object
            }
        };
        RedactionList::hold(&self.tree, &self.lists, object)
    }

    /// Writes runs into a held list behind the `first` ones; with the last of them it is whole.
    pub(super) fn append(&self, list: u64, runs: (u64, &[RedactedRun]), is_last: bool, tx: &Tx) -> Result<(), DslError> {
        redaction::append(&self.tree.meta, list, runs, is_last, tx)
    }

    /// Guids by which the snapshot of this name was redacted, where bookmarks of it have lists; None of a bookmark, and of what lacks nothing.
    fn redacted_by(&self, source: &str) -> Result<Option<Vec<u64>>, DslError> {
        let meta = &self.tree.meta;
        if source.contains('#') || !meta.services.feature_enabled(features::REDACTION_BOOKMARKS) {
            return Ok(None);
        }
        match self.tree.find(source)?.redacted_by(meta)? {
            Some(guids) if guids.len() > redaction::snapshots_max(meta) => Err(DslError::TooManySnapshots),
            guids => Ok(guids),
        }
    }

    /// Record that a bookmark of `source` in directory `at` gets, the directory of the source, and the history's words about it.
    fn source(&self, source: &str, at: &Dir) -> Result<(Arc<Dir>, DslBookmarkPhys, String), DslError> {
        if source.contains('#') {
            let (dataset, name) = names::split_bookmark(source)?;
            let head = self.tree.find(dataset)?;
            let record = self.find(&head, name)?.ok_or(DslError::NotFound)?.record;
            // What was redacted of the one is not known of the other.
            let is_own = head.dir.object == at.object;
            let record = if is_own { DslBookmarkPhys { zbm_redaction_obj: 0, ..record } } else { marks::plain(&record) };
            let text = format!("source_guid={}", record.zbm_guid);
            return Ok((head.dir.clone(), record, text));
        }
        if names::split(source)?.1.is_none() {
            return Err(DslError::NotSnapshot);
        }
        let snapshot = self.tree.find(source)?;
        let phys = snapshot.phys();
        let mut record = DslBookmarkPhys {
            zbm_guid: phys.ds_guid,
            zbm_creation_txg: phys.ds_creation_txg,
            zbm_creation_time: phys.ds_creation_time,
            zbm_ivset_guid: keys::ivs_of(&self.tree.meta, &snapshot)?,
            ..DslBookmarkPhys::default()
        };
        if snapshot.dir.object == at.object && self.are_counted() {
            marks::count(&mut record, snapshot.contents(), self.died_after(&snapshot)?);
        }
        Ok((snapshot.dir.clone(), record, format!("target_snap={}", snapshot.object)))
    }

    /// True when bookmarks that are made count what is freed behind them.
    fn are_counted(&self) -> bool {
        [features::BOOKMARK_WRITTEN, features::BOOKMARK_V2].iter().all(|guid| self.tree.meta.services.feature_enabled(guid))
    }

    /// Space of what was freed between a snapshot and the next one, or until now.
    fn died_after(&self, snapshot: &Dataset) -> Result<Usage, DslError> {
        let next = self.tree.dataset(snapshot.phys().ds_next_snap_obj)?;
        Deadlist::usage_of(&self.tree.meta, next.phys().ds_deadlist_obj)
    }

    /// Bytes that `dataset` has and that were not there at a bookmark (full name) of the same file system.
    pub(crate) fn written_since(&self, dataset: &Dataset, name: &str) -> Result<u64, DslError> {
        let (of, name) = names::split_bookmark(name)?;
        let head = self.tree.find(of)?;
        if head.dir.object != dataset.dir.object {
            return Err(DslError::NotFound);
        }
        let stored = self.find(&head, name)?.ok_or(DslError::NotFound)?;
        if stored.counts_freed() { self.tree.written_since_bookmark(dataset, &stored.record) } else { Err(DslError::Unsupported) }
    }

    /// True when what `earlier` was in this txg is an earlier point of what `dir` is now (OpenZFS: `dsl_dataset_is_before`).
    pub(super) fn is_before(&self, dir: &Arc<Dir>, earlier: &Dir, txg: u64) -> Result<bool, DslError> {
        if dir.object == earlier.object {
            return Ok(true);
        }
        let (mut dir, mut newest) = (dir.clone(), u64::MAX);
        while self.tree.is_clone(&dir) {
            let origin = self.tree.dataset(dir.phys().dd_origin_obj)?;
            let created = origin.phys().ds_creation_txg;
            // An origin is older than what began there, but in damaged pools.
            if txg > created || created >= newest {
                return Ok(false);
            }
            if origin.dir.object == earlier.object {
                return Ok(true);
            }
            (dir, newest) = (origin.dir.clone(), created);
        }
        Ok(false)
    }

    /// Makes a bookmark.
    pub(super) fn create(&self, new: &NewBookmark, tx: &Tx) -> Result<(), DslError> {
        let NewBookmark { head, name, source, redacted, .. } = new;
        let mut record = new.record.clone();
        if let Some(guids) = redacted {
            // Whoever has the snapshot lacks these blocks already: there are none to be listed (OpenZFS: `dsl_bookmark_create_sync_impl_snap`).
            record.zbm_redaction_obj = redaction::create(&self.tree.meta, guids, tx)?;
            redaction::append(&self.tree.meta, record.zbm_redaction_obj, (0, &[]), true, tx)?;
        }
        let table = self.table_or_new(head, tx)?;
        let services = &self.tree.meta.services;
        let counts_freed = marks::counts_freed(&record);
        let mut words = marks::words(&record);
        // As short as it can be, for software that knows the first version only.
        let is_long = record.zbm_ivset_guid != 0 || record.zbm_redaction_obj != 0 || counts_freed;
        if is_long && services.feature_enabled(features::BOOKMARK_V2) {
            services.feature_add(features::BOOKMARK_V2, 1, tx)?;
        } else {
            words.truncate(WORDS_V1);
        }
        table.add(name, &Value::U64(words), tx)?;
        if counts_freed {
            services.feature_add(features::BOOKMARK_WRITTEN, 1, tx)?;
            head.follow_bookmarks(&self.tree.meta)?;
        }
        let list = if source.starts_with("target_snap") { format!(" redact_obj={}", record.zbm_redaction_obj) } else { String::new() };
        self.tree.log("bookmark", head.object, format!("name={name} creation_txg={} {source}{list}", record.zbm_creation_txg), tx)
    }

    /// Moves bookmarks to another dataset, as they are; with the last one the table of the first goes (OpenZFS: `dsl_dataset_promote_sync`).
    pub(super) fn move_all(&self, moving: &[Stored], from: &Dataset, to: &Dataset, tx: &Tx) -> Result<(), DslError> {
        if moving.is_empty() {
            return Ok(());
        }
        let Some(source) = self.table(from)? else { return Err(DslError::NotFound) };
        let target = self.table_or_new(to, tx)?;
        for Stored { name, .. } in moving {
            target.add(name, &source.lookup(name)?, tx)?;
            source.remove(name, tx)?;
        }
        self.free_if_empty(from, &source, tx)
    }

    /// The table of a dataset's bookmarks, which it gets if it has none.
    fn table_or_new(&self, head: &Dataset, tx: &Tx) -> Result<Zap, DslError> {
        if let Some(table) = self.table(head)? {
            return Ok(table);
        }
        let meta = &self.tree.meta;
        let options = CreateOptions { norm: NormFlags::TOUPPER, ..CreateOptions::new(ObjectType::OTN_ZAP_METADATA) };
        let table = zap::create_with(&meta.objset, options, tx)?.0;
        meta.services.feature_add(features::BOOKMARKS, 1, tx)?;
        meta.zapify(&meta.hold(head.object)?, tx)?;
        meta.zap(head.object)?.add_u64(TABLE, table, tx)?;
        meta.zap(table)
    }

    /// The bookmark of this full name, after a look that it can be destroyed.
    pub(super) fn check_destroy(&self, name: &str) -> Result<OldBookmark, DslError> {
        let (dataset, name) = names::split_bookmark(name)?;
        let head = self.tree.find(dataset)?;
        let stored = self.find(&head, name)?.ok_or(DslError::NotFound)?;
        self.check_list(&stored.record)?;
        Ok(OldBookmark { head, stored })
    }

    /// Destroys a bookmark; with the last one its dataset's table goes (OpenZFS: `dsl_bookmark_destroy_sync_impl`).
    pub(super) fn destroy(&self, OldBookmark { head, stored }: &OldBookmark, tx: &Tx) -> Result<(), DslError> {
        let Some(table) = self.table(head)? else { return Err(DslError::NotFound) };
        table.remove(&stored.name, tx)?;
        self.uncount_long(std::slice::from_ref(stored), tx)?;
        self.free_lists(std::slice::from_ref(stored), tx)?;
        if stored.counts_freed() {
            self.release_key(head, stored, &table, tx)?;
        }
        self.free_if_empty(head, &table, tx)?;
        self.tree.log("remove bookmark", head.object, format!("name={}", String::from_utf8_lossy(&stored.name)), tx)
    }

    /// Destroys all bookmarks of a dataset that goes itself.
    pub(super) fn destroy_all(&self, head: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let Some(table) = self.table(head)? else { return Ok(()) };
        let all = self.all(head)?;
        self.uncount_long(&all, tx)?;
        self.free_lists(&all, tx)?;
        self.free_table(&table, tx)
    }

    /// Frees the redaction lists of bookmarks that go.
    fn free_lists(&self, bookmarks: &[Stored], tx: &Tx) -> Result<(), DslError> {
        let meta = &self.tree.meta;
        for list in bookmarks.iter().filter_map(|stored| list_of(&stored.record)) {
            let spilled = u64::from(redaction::is_spilled(meta, list)?);
            self.uncount([(features::REDACTION_BOOKMARKS, 1), (features::REDACTION_LIST_SPILL, spilled)], tx)?;
            redaction::free(meta, list, tx)?;
        }
        Ok(())
    }

    /// Takes those of the bookmarks that have longer records, and that count what is freed, off the counts of their features.
    fn uncount_long(&self, bookmarks: &[Stored], tx: &Tx) -> Result<(), DslError> {
        let long = bookmarks.iter().filter(|stored| stored.words > WORDS_V1).count() as u64;
        let counting = bookmarks.iter().filter(|stored| stored.counts_freed()).count() as u64;
        self.uncount([(features::BOOKMARK_V2, long), (features::BOOKMARK_WRITTEN, counting)], tx)
    }

    /// Takes so many users off the counts of features, which damaged pools have too low.
    fn uncount(&self, gone: [(&'static str, u64); 2], tx: &Tx) -> Result<(), DslError> {
        let services = &self.tree.meta.services;
        for (guid, count) in gone {
            let count = count.min(services.feature_refs(guid));
            if count > 0 {
                services.feature_add(guid, -(count as i64), tx)?;
            }
        }
        Ok(())
    }

    /// Removes the key of a bookmark that is gone from deadlists, if nothing else is of its txg (OpenZFS: `dsl_bookmark_destroy_sync_impl`).
    fn release_key(&self, head: &Dataset, gone: &Stored, table: &Zap, tx: &Tx) -> Result<(), DslError> {
        head.follow_bookmarks(&self.tree.meta)?;
        let has_others = marks::all(table)?.iter().any(|stored| stored.counts_freed() && stored.txg() == gone.txg());
        let phys = head.phys();
        if gone.has_snapshot() || has_others || gone.txg() >= phys.ds_prev_snap_txg {
            return Ok(());
        }
        list_keys::remove_of_bookmark(&self.tree, (&head.dir, phys.ds_deadlist_obj), gone.txg(), tx)
    }

    /// The counting bookmarks of a head, with their table, where there are some.
    fn counting(&self, head: &Dataset) -> Result<Option<(Zap, Vec<Stored>)>, DslError> {
        if self.tree.meta.services.feature_refs(features::BOOKMARK_WRITTEN) == 0 {
            return Ok(None);
        }
        let Some(table) = self.table(head)? else { return Ok(None) };
        let mut counting = marks::all(&table)?;
        counting.retain(Stored::counts_freed);
        Ok(Some((table, counting)))
    }

    /// A snapshot is about to go: what was freed behind the bookmarks before it, up to the next snapshot, is theirs to tell from now on. True
    /// when there are bookmarks of the snapshot itself, which need its keys of deadlists (OpenZFS: `dsl_bookmark_ds_destroyed`).
    pub(super) fn snapshot_destroyed(&self, snapshot: &Dataset, tx: &Tx) -> Result<bool, DslError> {
        let phys = snapshot.phys();
        let Some((table, counting)) = self.counting(&*self.tree.head(&snapshot.dir)?)? else { return Ok(false) };
        let next = self.tree.dataset(phys.ds_next_snap_obj)?;
        let died = Deadlist::open(&self.tree.meta, next.phys().ds_deadlist_obj)?;
        let mut is_marked = false;
        for mut stored in counting {
            let txg = stored.txg();
            if txg == phys.ds_creation_txg {
                stored.lose_snapshot();
                is_marked = true;
            } else if (phys.ds_prev_snap_txg..phys.ds_creation_txg).contains(&txg) {
                stored.add_freed(died.usage_between(0, txg)?);
            } else {
                continue;
            }
            marks::update(&table, &stored, tx)?;
        }
        Ok(is_marked)
    }

    /// Has the bookmarks of a snapshot count anew, since another dataset comes after it from now on (OpenZFS:
    /// `dsl_bookmark_next_changed`).
    pub(super) fn next_changed(&self, head: &Dataset, snapshot: &Dataset, tx: &Tx) -> Result<(), DslError> {
        let Some((table, counting)) = self.counting(head)? else { return Ok(()) };
        for mut stored in counting.into_iter().filter(|stored| stored.txg() == snapshot.phys().ds_creation_txg) {
            marks::count(&mut stored.record, snapshot.contents(), self.died_after(snapshot)?);
            marks::update(&table, &stored, tx)?;
        }
        Ok(())
    }

    /// Frees the table of a dataset whose last bookmark is gone.
    fn free_if_empty(&self, head: &Dataset, table: &Zap, tx: &Tx) -> Result<(), DslError> {
        if table.count() > 0 {
            return Ok(());
        }
        self.tree.meta.zap(head.object)?.remove(TABLE, tx)?;
        self.free_table(table, tx)
    }

    fn free_table(&self, table: &Zap, tx: &Tx) -> Result<(), DslError> {
        self.tree.meta.services.feature_add(features::BOOKMARKS, -1, tx)?;
        self.tree.meta.free_object(table.object().0, tx)
    }
}

/// Object of the redaction list of a bookmark that has one.
fn list_of(record: &DslBookmarkPhys) -> Option<u64> {
    (record.zbm_redaction_obj != 0).then_some(record.zbm_redaction_obj)
}
