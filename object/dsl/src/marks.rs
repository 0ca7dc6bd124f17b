//! Records of bookmarks: how a dataset's table keeps them, and what those have that count what is freed behind them (OpenZFS: `dsl_bookmark.c`).
//!
//! A bookmark of the feature `bookmark_written` knows how much its snapshot referred to, and how much of that was freed before the next snapshot,
//! or until now when there is none. What was freed later is on the deadlists of the snapshots after that, which keep a key for its txg.

use crate::meta::{Meta, Usage, bump, damaged};
use crate::{DslError, features};
use dmu::Tx;
use ondisk::{DslBookmarkPhys, ObjectType};
use std::collections::BTreeSet;
use zap::{Value, Zap};

/// Name of the table in a dataset's ZAP (OpenZFS: `DS_FIELD_BOOKMARK_NAMES`).
pub(crate) const TABLE: &str = "com.delphix:bookmarks";
/// Number of words of a record of the first version.
pub(crate) const WORDS_V1: usize = DslBookmarkPhys::BYTES_V1 / 8;
/// OpenZFS: `ZBM_FLAG_HAS_FBN`.
const COUNTS_FREED: u64 = 1;
/// OpenZFS: `ZBM_FLAG_SNAPSHOT_EXISTS`.
const SNAPSHOT_EXISTS: u64 = 2;

/// A bookmark as its table has it.
pub(crate) struct Stored {
    /// Name as it is written there.
    pub(crate) name: Vec<u8>,
    pub(crate) record: DslBookmarkPhys,
    /// Number of words of the record.
    pub(crate) words: usize,
}

impl Stored {
    /// True for a bookmark that counts what is freed.
    pub(crate) fn counts_freed(&self) -> bool {
        counts_freed(&self.record)
    }

    /// Txg of the bookmark's snapshot.
    pub(crate) fn txg(&self) -> u64 {
        self.record.zbm_creation_txg
    }

    /// True while the bookmark's snapshot is there, as far as bookmarks that count know.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.record.zbm_flags & SNAPSHOT_EXISTS != 0
    }

    /// The bookmark's snapshot is gone.
    pub(crate) fn lose_snapshot(&mut self) {
        self.record.zbm_flags &= !SNAPSHOT_EXISTS;
    }

    /// Adds what was freed before the next snapshot.
    pub(crate) fn add_freed(&mut self, usage: Usage) {
        bump(&mut self.record.zbm_referenced_freed_before_next_snap, usage.used);
        bump(&mut self.record.zbm_compressed_freed_before_next_snap, usage.comp);
        bump(&mut self.record.zbm_uncompressed_freed_before_next_snap, usage.uncomp);
    }
}

/// True for the record of a bookmark that counts what is freed.
pub(crate) fn counts_freed(record: &DslBookmarkPhys) -> bool {
    record.zbm_flags & COUNTS_FREED != 0
}

/// Has a record count what is freed, of a snapshot that is there: it refers to `contents`, of which `freed` is gone before the next one
/// (OpenZFS: `dsl_bookmark_set_phys`).
pub(crate) fn count(record: &mut DslBookmarkPhys, contents: Usage, freed: Usage) {
    record.zbm_flags |= COUNTS_FREED | SNAPSHOT_EXISTS;
    record.zbm_referenced_bytes_refd = contents.used.max(0) as u64;
    record.zbm_compressed_bytes_refd = contents.comp.max(0) as u64;
    record.zbm_uncompressed_bytes_refd = contents.uncomp.max(0) as u64;
    record.zbm_referenced_freed_before_next_snap = freed.used.max(0) as u64;
    record.zbm_compressed_freed_before_next_snap = freed.comp.max(0) as u64;
    record.zbm_uncompressed_freed_before_next_snap = freed.uncomp.max(0) as u64;
}

/// Record of the same place in history that counts nothing.
pub(crate) fn plain(record: &DslBookmarkPhys) -> DslBookmarkPhys {
    DslBookmarkPhys {
        zbm_guid: record.zbm_guid,
        zbm_creation_txg: record.zbm_creation_txg,
        zbm_creation_time: record.zbm_creation_time,
        zbm_ivset_guid: record.zbm_ivset_guid,
        ..DslBookmarkPhys::default()
    }
}

/// All words of a record.
pub(crate) fn words(record: &DslBookmarkPhys) -> Vec<u64> {
    record.encode().as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Decodes an entry of a table of bookmarks.
pub(crate) fn stored(table: &Zap, name: Vec<u8>, value: &Value) -> Result<Stored, DslError> {
    let Value::U64(words) = value else { return Err(damaged(table.object().0, "a bookmark has no words")) };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let record = DslBookmarkPhys::decode_value(&bytes).map_err(|_| damaged(table.object().0, "a bookmark is short"))?;
    Ok(Stored { name, record, words: words.len() })
}

/// Writes a bookmark that counts what is freed in the place of what its table has.
pub(crate) fn update(table: &Zap, bookmark: &Stored, tx: &Tx) -> Result<(), DslError> {
    Ok(table.update(&bookmark.name, &Value::U64(words(&bookmark.record)), tx)?)
}

/// The ZAP of a dataset's object itself, when it has one.
pub(crate) fn own_table(meta: &Meta, head: u64) -> Result<Option<Zap>, DslError> {
    if meta.hold(head)?.info()?.kind == ObjectType::OTN_ZAP_METADATA { Ok(Some(meta.zap(head)?)) } else { Ok(None) }
}

/// The table of the bookmarks of the dataset with this object, if it has some.
pub(crate) fn table(meta: &Meta, head: u64) -> Result<Option<Zap>, DslError> {
    let Some(own) = own_table(meta, head)? else { return Ok(None) };
    own.try_lookup_u64(TABLE)?.map(|object| meta.zap(object)).transpose()
}

/// Every bookmark of a table.
pub(crate) fn all(table: &Zap) -> Result<Vec<Stored>, DslError> {
    let mut names = Vec::new();
    table.for_each(|entry| {
        names.push(entry.name.clone());
        Ok(())
    })?;
    let found = names.into_iter().map(|name| {
        let value = table.lookup(&name)?;
        stored(table, name, &value)
    });
    found.collect()
}

/// Txgs, from this one on, of the bookmarks of a dataset that count what is freed.
pub(crate) fn counted_from(meta: &Meta, head: u64, txg: u64) -> Result<BTreeSet<u64>, DslError> {
    if meta.services.feature_refs(features::BOOKMARK_WRITTEN) == 0 {
        return Ok(BTreeSet::new());
    }
    let Some(table) = table(meta, head)? else { return Ok(BTreeSet::new()) };
    Ok(all(&table)?.iter().filter(|stored| stored.counts_freed() && stored.txg() >= txg).map(Stored::txg).collect())
}

/// Adds what a sync freed of that which was there in these txgs to the bookmarks of a dataset (OpenZFS: `dsl_bookmark_sync_done`).
pub(crate) fn add_freed(meta: &Meta, head: u64, freed: &[(u64, Usage)], tx: &Tx) -> Result<(), DslError> {
    let Some(table) = table(meta, head)? else { return Ok(()) };
    for mut stored in all(&table)?.into_iter().filter(Stored::counts_freed) {
        if let Some((_, usage)) = freed.iter().find(|(txg, _)| *txg == stored.txg()) {
            stored.add_freed(*usage);
            update(&table, &stored, tx)?;
        }
    }
    Ok(())
}
