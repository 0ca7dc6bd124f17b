//! Holds and bookmarks: what holds keep, what bookmarks outlive, and that nothing of either is left behind.

use super::model::Random;
use super::{TestPool, filesystem, with_props, write};
use crate::marks::own_table;
use crate::{DslError, DslPool, PoolServices, PropValue, features};
use dmu::Tx;
use dmu::testing::MemBlockIo;
use ondisk::ObjectType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use zap::{NormFlags, Value};

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// A pool with a file system that has a snapshot, and whose bookmarks count nothing.
fn pool_with_snapshot(seed: u64) -> TestPool {
    let pool = TestPool::create_without(MemBlockIo::inline(seed), &[features::BOOKMARK_WRITTEN]);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    write(&pool, "tank/a", 0, 0, &[7; 9000]).expect("writes");
    pool.dsl.snapshot(&strings(&["tank/a@s"]), Vec::new()).expect("snapshots");
    pool
}

fn tags(pool: &TestPool, snapshot: &str) -> Vec<String> {
    pool.dsl.user_holds(snapshot).expect("lists").into_iter().map(|hold| hold.tag).collect()
}

fn value(pool: &TestPool, snapshot: &str, property: &str) -> PropValue {
    pool.dsl.hold(snapshot).expect("exists").prop(property).expect("a property").value
}

/// Names and texts of the history since the `seen` first events.
fn history(pool: &TestPool, seen: usize) -> Vec<(String, String)> {
    pool.services.events.lock().iter().skip(seen).map(|event| (format!("{} {}", event.name, event.dataset), event.text.clone())).collect()
}

/// Changes the MOS as other software would have.
pub(super) fn change(pool: &TestPool, sync: impl FnOnce(&Arc<DslPool>, &Tx) -> Result<(), DslError> + Send + 'static) {
    pool.dsl.sync_task(|_, _| Ok(()), move |dsl, (), tx| sync(dsl, tx)).expect("changes");
}

/// If this fails, a snapshot that a backup relies on is destroyed under it, or one that everybody gave up stays for ever.
#[test]
fn a_held_snapshot_stays_until_the_last_release() {
    let mut pool = pool_with_snapshot(51);
    let (names, seen) = (strings(&["tank/a@s"]), pool.services.events.lock().len());
    assert_eq!(pool.dsl.hold_snapshots(&names, "one"), Ok(()));
    assert_eq!(pool.dsl.hold_snapshots(&names, "one"), Err(DslError::TagExists));
    assert_eq!(pool.dsl.hold_snapshots(&names, "two"), Ok(()));
    let taken = pool.dsl.user_holds("tank/a@s").expect("lists")[0].time;
    let created = pool.dsl.hold("tank/a@s").expect("exists").creation_time();
    assert!((created..=dmu::BlockIo::exec(&pool.io).wall_clock().0 as u64).contains(&taken) && taken > 0, "the time at which it was taken");
    pool = pool.reopen();
    assert_eq!((tags(&pool, "tank/a@s"), value(&pool, "tank/a@s", "userrefs")), (strings(&["one", "two"]), PropValue::Number(2)));
    assert_eq!(pool.dsl.destroy_snapshots(&names, false), Err(DslError::Held));
    assert_eq!(pool.dsl.destroy_dataset("tank/a"), Err(DslError::HasSnapshots));
    assert_eq!(value(&pool, "tank/a@s", "defer_destroy"), PropValue::Text("off".into()));
    assert_eq!(pool.dsl.destroy_snapshots(&names, true), Ok(()), "it is marked");
    assert_eq!(value(&pool, "tank/a@s", "defer_destroy"), PropValue::Text("on".into()));
    assert_eq!(pool.dsl.release_snapshots(&names, "three"), Err(DslError::NoSuchTag));
    assert_eq!(pool.dsl.release_snapshots(&names, "one"), Ok(()));
    pool = pool.reopen();
    let handle = pool.dsl.hold("tank/a@s").expect("exists");
    assert_eq!(pool.dsl.release_snapshots(&names, "two"), Err(DslError::Busy), "somebody reads it");
    assert_eq!(tags(&pool, "tank/a@s"), ["two"], "nothing was released");
    drop(handle);
    assert_eq!(pool.dsl.release_snapshots(&names, "two"), Ok(()));
    assert_eq!(pool.dsl.hold("tank/a@s").map(|_| ()), Err(DslError::NotFound), "it went with the last hold");
    assert_eq!(pool.dsl.release_snapshots(&names, "two"), Err(DslError::NotFound));
    let told = history(&pool, seen);
    let text = |at: usize| (told[at].0.as_str(), told[at].1.as_str());
    assert_eq!((text(0), text(1)), (("hold tank/a@s", "tag=one temp=0 refs=1"), ("hold tank/a@s", "tag=two temp=0 refs=2")));
    assert_eq!((text(2).0, text(3)), ("defer_destroy tank/a@s", ("release tank/a@s", "tag=one refs=1")));
    assert_eq!((text(4), text(5).0), (("release tank/a@s", "tag=two refs=0"), "destroy tank/a@s"));
    pool.drain();
    pool.check();
}

/// If this fails, `zfs hold -r` leaves some snapshots without the hold and does not say so.
#[test]
fn many_snapshots_are_held_all_or_none() {
    let pool = pool_with_snapshot(52);
    pool.dsl.snapshot(&strings(&["tank@s"]), Vec::new()).expect("snapshots");
    let all = strings(&["tank@s", "tank/a@s", "tank/a@s", "tank/a@missing"]);
    pool.dsl.hold_snapshots(&all[1..2], "tag").expect("holds");
    assert_eq!(pool.dsl.hold_snapshots(&all, "tag"), Err(DslError::TagExists));
    assert_eq!(tags(&pool, "tank@s"), strings(&[]), "none");
    assert_eq!(pool.dsl.hold_snapshots(&all, "other"), Ok(()), "each once, and who is not there is passed over");
    assert_eq!(pool.dsl.release_snapshots(&all, "tag"), Ok(()), "who has none is passed over");
    assert_eq!((tags(&pool, "tank@s"), tags(&pool, "tank/a@s")), (strings(&["other"]), strings(&["other"])));
    assert_eq!(pool.dsl.hold_snapshots(&all[3..], "tag"), Err(DslError::NotFound));
    assert_eq!(pool.dsl.hold_snapshots(&strings(&["tank/a"]), "tag"), Err(DslError::NotSnapshot));
    assert_eq!(pool.dsl.user_holds("tank/a"), Err(DslError::NotSnapshot));
    let longest = "x".repeat(255);
    assert_eq!(pool.dsl.hold_snapshots(&all[..1], &format!("{longest}x")), Err(DslError::TagTooLong));
    assert_eq!(pool.dsl.release_snapshots(&all[..1], &format!("{longest}x")), Err(DslError::NoSuchTag));
    assert_eq!(pool.dsl.hold_snapshots(&all[..1], ""), Err(DslError::BadName));
    assert_eq!(pool.dsl.hold_snapshots(&all[..1], &longest), Ok(()));
    assert_eq!(pool.dsl.release_snapshots(&all[..1], &longest), Ok(()));
    // A name that is given twice is destroyed once.
    pool.dsl.release_snapshots(&all, "other").expect("releases");
    assert_eq!(pool.dsl.destroy_snapshots(&all, false), Ok(()));
    pool.drain();
    pool.check();
}

/// If this fails, OpenZFS releases a hold, when it imports the pool next, that somebody took under the same name since.
#[test]
fn a_temporary_hold_of_openzfs_is_released_whole() {
    let pool = pool_with_snapshot(53);
    pool.dsl.hold_snapshots(&strings(&["tank/a@s"]), ".send-1").expect("holds");
    let object = pool.dsl.hold("tank/a@s").expect("exists").object();
    change(&pool, move |dsl, tx| {
        let meta = &dsl.tree.meta;
        let table = meta.create_zap(ObjectType::USERREFS, tx)?;
        meta.directory()?.add_u64("tmp_userrefs", table, tx)?;
        meta.zap(table)?.add_u64(format!("{object:x}-.send-1"), 1, tx)?;
        Ok(meta.zap(table)?.add_u64("ff-.send-1", 1, tx)?)
    });
    pool.dsl.release_snapshots(&strings(&["tank/a@s"]), ".send-1").expect("releases");
    let meta = &pool.dsl.tree.meta;
    let table = meta.directory().expect("opens").lookup_u64("tmp_userrefs").expect("is there");
    let table = meta.zap(table).expect("opens");
    assert_eq!((table.count(), table.contains("ff-.send-1")), (1, Ok(true)));
}

/// If this fails, software that knows bookmarks of the first version only cannot read the pool, or zdb finds features counted wrong.
#[test]
fn bookmarks_are_as_short_as_they_can_be() {
    let mut pool = pool_with_snapshot(54);
    let refs = |pool: &TestPool| (pool.services.feature_refs(features::BOOKMARKS), pool.services.feature_refs(features::BOOKMARK_V2));
    let (guid, txg, seen) = {
        let snapshot = pool.dsl.hold("tank/a@s").expect("exists");
        (snapshot.guid(), snapshot.creation_txg(), pool.services.events.lock().len())
    };
    assert_eq!(pool.dsl.create_bookmark("tank/a#m", "tank/a@s"), Ok(()));
    assert_eq!(pool.dsl.create_bookmark("tank/a#m", "tank/a@s"), Err(DslError::Exists));
    assert_eq!(pool.dsl.create_bookmark("tank/a#copy", "tank/a#m"), Ok(()));
    assert_eq!(refs(&pool), (1, 0));
    pool.dsl.destroy_snapshots(&strings(&["tank/a@s"]), false).expect("a bookmark keeps nothing");
    pool.dsl.rename("tank/a", "tank/b").expect("renames");
    pool = pool.reopen();
    let known: Vec<_> =
        pool.dsl.bookmarks("tank/b").expect("lists").into_iter().map(|mark| (mark.name, mark.guid, mark.creation_txg)).collect();
    assert_eq!(known, [("copy".to_string(), guid, txg), ("m".to_string(), guid, txg)]);
    let head = pool.dsl.tree.find("tank/b").expect("exists");
    let own = own_table(&pool.dsl.tree.meta, head.object).expect("opens").expect("a table of its own");
    let table = own.lookup_u64("com.delphix:bookmarks").expect("is named");
    let zap = pool.dsl.tree.meta.zap(table).expect("opens");
    assert_eq!((zap.length("m"), zap.norm_flags()), (Ok((8, 3)), NormFlags::TOUPPER));
    assert_eq!(zap.dnode().info().expect("known").kind, ObjectType::OTN_ZAP_METADATA);
    // One of an encrypted dataset, as OpenZFS has it.
    change(&pool, move |dsl, tx| {
        let words = vec![guid, txg, 3, 0, 0, 0, 0, 0, 0, 0, 0, 77];
        dsl.tree.meta.services.feature_add(features::BOOKMARK_V2, 1, tx)?;
        Ok(dsl.tree.meta.zap(table)?.add("long", &Value::U64(words), tx)?)
    });
    assert_eq!(pool.dsl.create_bookmark("tank/b#longer", "tank/b#long"), Ok(()));
    assert_eq!((zap.length("longer"), refs(&pool)), (Ok((8, 12)), (1, 2)));
    assert_eq!(zap.lookup("longer"), zap.lookup("long"));
    drop(zap);
    for name in ["long", "m", "copy"] {
        assert_eq!(pool.dsl.destroy_bookmark(&format!("tank/b#{name}")), Ok(()), "{name}");
    }
    assert_eq!((pool.dsl.destroy_bookmark("tank/b#m"), refs(&pool)), (Err(DslError::NotFound), (1, 1)));
    assert_eq!(pool.dsl.destroy_bookmark("tank/b#longer"), Ok(()));
    assert_eq!((own.contains("com.delphix:bookmarks"), refs(&pool)), (Ok(false), (0, 0)), "the table goes with the last");
    let told = history(&pool, seen);
    assert!(told[0].0 == "bookmark tank/a" && told[0].1.starts_with(&format!("name=m creation_txg={txg} target_snap=")), "{:?}", told[0]);
    assert_eq!(told[1], ("bookmark tank/a".to_string(), format!("name=copy creation_txg={txg} source_guid={guid}")));
    assert_eq!(told.last(), Some(&("remove bookmark tank/b".to_string(), "name=longer".to_string())));
    pool.drain();
    pool.check();
    pool.check_features();
}

/// If this fails, a dataset with bookmarks leaves their table and the counts of their features behind when it goes.
#[test]
fn bookmarks_go_with_their_dataset() {
    let pool = TestPool::create(55);
    pool.drain();
    let objects = pool.dsl.mos().object_count();
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    pool.dsl.snapshot(&strings(&["tank/a@s"]), Vec::new()).expect("snapshots");
    pool.dsl.create_bookmark("tank/a#m", "tank/a@s").expect("makes a bookmark");
    change(&pool, |dsl, tx| {
        let head = dsl.tree.find("tank/a")?;
        let own = own_table(&dsl.tree.meta, head.object)?.ok_or(DslError::NotFound)?;
        dsl.tree.meta.services.feature_add(features::BOOKMARK_V2, 1, tx)?;
        let table = dsl.tree.meta.zap(own.lookup_u64("com.delphix:bookmarks")?)?;
        Ok(table.add("long", &Value::U64(vec![1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 77]), tx)?)
    });
    pool.dsl.destroy_snapshots(&strings(&["tank/a@s"]), false).expect("destroys");
    assert_eq!(pool.dsl.destroy_dataset("tank/a"), Ok(()));
    pool.drain();
    pool.check();
    let refs = |guid| pool.services.feature_refs(guid);
    assert_eq!((pool.dsl.mos().object_count(), refs(features::BOOKMARKS), refs(features::BOOKMARK_V2)), (objects, 0, 0));
}

/// If this fails, a backup cannot go on where a clone took the place of what it was made from, or zdb finds features counted wrong.
#[test]
fn bookmarks_change_hands_with_the_snapshots_before_them() {
    let mut pool = pool_with_snapshot(61);
    let txg = pool.dsl.hold("tank/a@s").expect("exists").creation_txg();
    let refs = |pool: &TestPool| (pool.services.feature_refs(features::BOOKMARKS), pool.services.feature_refs(features::BOOKMARK_V2));
    let names =
        |pool: &TestPool, name: &str| pool.dsl.bookmarks(name).expect("lists").into_iter().map(|mark| mark.name).collect::<Vec<_>>();
    pool.dsl.create_bookmark("tank/a#old", "tank/a@s").expect("makes a bookmark");
    pool.dsl.clone_snapshot("tank/b", "tank/a@s", Vec::new()).expect("clones");
    pool.dsl.snapshot(&strings(&["tank/a@t"]), Vec::new()).expect("snapshots");
    pool.dsl.create_bookmark("tank/a#new", "tank/a@t").expect("makes a bookmark");
    pool.dsl.create_bookmark("tank/b#old", "tank/a@s").expect("makes a bookmark");
    assert_eq!(pool.dsl.promote("tank/b"), Err(DslError::Conflict { name: "old".to_string() }));
    assert_eq!((names(&pool, "tank/a"), names(&pool, "tank/b")), (strings(&["old", "new"]), strings(&["old"])), "nothing changed");
    pool.dsl.destroy_bookmark("tank/b#old").expect("destroys");
    pool.dsl.hold_snapshots(&strings(&["tank/a@s"]), "tag").expect("holds");
    let words = vec![1, txg, 3, 0, 0, 0, 0, 0, 0, 0, 0, 77];
    let long = Value::U64(words.clone());
    change(&pool, move |dsl, tx| {
        let own = own_table(&dsl.tree.meta, dsl.tree.find("tank/a")?.object)?.ok_or(DslError::NotFound)?;
        dsl.tree.meta.services.feature_add(features::BOOKMARK_V2, 1, tx)?;
        Ok(dsl.tree.meta.zap(own.lookup_u64("com.delphix:bookmarks")?)?.add("long", &long, tx)?)
    });
    assert_eq!(refs(&pool), (1, 1));
    assert_eq!(pool.dsl.promote("tank/b"), Ok(()));
    pool = pool.reopen();
    assert_eq!((names(&pool, "tank/a"), names(&pool, "tank/b")), (strings(&["new"]), strings(&["long", "old"])));
    assert_eq!((refs(&pool), tags(&pool, "tank/b@s")), ((2, 1), strings(&["tag"])), "a hold is the snapshot's");
    let object = pool.dsl.tree.find("tank/b").expect("exists").object;
    let own = own_table(&pool.dsl.tree.meta, object).expect("opens").expect("a table of its own");
    let table = pool.dsl.tree.meta.zap(own.lookup_u64("com.delphix:bookmarks").expect("is named")).expect("opens");
    assert_eq!(table.lookup("long"), Ok(Value::U64(words)), "not a word less");
    drop((table, own));
    assert_eq!(pool.dsl.promote("tank/a"), Ok(()));
    assert_eq!((names(&pool, "tank/a"), names(&pool, "tank/b")), (strings(&["long", "old", "new"]), strings(&[])));
    assert_eq!(refs(&pool), (1, 1), "no empty table is left");
    pool.drain();
    pool.check();
    pool.check_features();
}

/// If this fails, a bookmark stands for a moment that its dataset never had.
#[test]
fn what_goes_back_has_no_bookmarks_of_what_came_later() {
    let pool = pool_with_snapshot(62);
    pool.dsl.create_bookmark("tank/a#s", "tank/a@s").expect("makes a bookmark");
    pool.dsl.snapshot(&strings(&["tank/a@t"]), Vec::new()).expect("snapshots");
    pool.dsl.create_bookmark("tank/a#t", "tank/a@t").expect("makes a bookmark");
    assert_eq!(pool.dsl.rollback("tank/a@t"), Ok(()), "that is not newer");
    pool.dsl.destroy_snapshots(&strings(&["tank/a@t"]), false).expect("destroys");
    assert_eq!(pool.dsl.rollback("tank/a@s"), Err(DslError::Exists));
    pool.dsl.destroy_bookmark("tank/a#t").expect("destroys");
    pool.dsl.hold_snapshots(&strings(&["tank/a@s"]), "tag").expect("holds");
    assert_eq!(pool.dsl.rollback("tank/a@s"), Ok(()));
    let names: Vec<String> = pool.dsl.bookmarks("tank/a").expect("lists").into_iter().map(|mark| mark.name).collect();
    assert_eq!((names, tags(&pool, "tank/a@s")), (strings(&["s"]), strings(&["tag"])));
    pool.drain();
    pool.check();
    pool.check_features();
}

/// If this fails, a snapshot is freed under whoever reads it, with the last clone of it.
#[test]
fn a_marked_snapshot_that_is_read_keeps_its_last_clone() {
    let pool = pool_with_snapshot(63);
    for clone in ["tank/b", "tank/c"] {
        pool.dsl.clone_snapshot(clone, "tank/a@s", Vec::new()).expect("clones");
    }
    assert_eq!(pool.dsl.destroy_snapshots(&strings(&["tank/a@s"]), true), Ok(()), "it is marked");
    let handle = pool.dsl.hold("tank/a@s").expect("exists");
    assert_eq!(pool.dsl.destroy_dataset("tank/c"), Ok(()), "another clone is left");
    assert_eq!(pool.dsl.destroy_dataset("tank/b"), Err(DslError::Busy));
    drop(handle);
    assert_eq!(pool.dsl.destroy_dataset("tank/b"), Ok(()));
    assert_eq!(pool.dsl.hold("tank/a@s").map(|_| ()), Err(DslError::NotFound));
    pool.drain();
    pool.check();
}

/// If this fails, bookmarks are made of what is no snapshot, or where they cannot be.
#[test]
fn bookmarks_that_cannot_be_are_refused() {
    let pool = TestPool::create(57);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    pool.dsl.snapshot(&strings(&["tank@s"]), Vec::new()).expect("snapshots");
    assert_eq!(pool.dsl.create_bookmark("tank/a#m", "tank@s"), Err(DslError::NotAncestor));
    assert_eq!(pool.dsl.create_bookmark("tank/a#m", "tank/a@s"), Err(DslError::NotFound));
    assert_eq!(pool.dsl.create_bookmark("tank/missing#m", "tank@s"), Err(DslError::NotFound));
    assert_eq!(pool.dsl.create_bookmark("tank#m", "tank#missing"), Err(DslError::NotFound));
    assert_eq!(pool.dsl.create_bookmark("tank#m", "tank"), Err(DslError::NotSnapshot));
    assert_eq!(pool.dsl.create_bookmark("tank@m", "tank@s"), Err(DslError::BadName));
    let pool = TestPool::create_without(MemBlockIo::inline(58), &[features::BOOKMARKS]);
    pool.dsl.snapshot(&strings(&["tank@s"]), Vec::new()).expect("snapshots");
    assert_eq!(pool.dsl.create_bookmark("tank#m", "tank@s"), Err(DslError::Unsupported));
}

/// If this fails, a damaged pool takes the daemon down, or a snapshot goes that nobody could look after.
#[test]
fn damaged_bookmarks_give_errors() {
    for value in [Value::U64(vec![1]), Value::U64(vec![1, 2]), Value::U8(vec![0; 24])] {
        let pool = pool_with_snapshot(60);
        pool.dsl.create_bookmark("tank/a#m", "tank/a@s").expect("makes a bookmark");
        change(&pool, move |dsl, tx| {
            let own = own_table(&dsl.tree.meta, dsl.tree.find("tank/a")?.object)?.ok_or(DslError::NotFound)?;
            let table = dsl.tree.meta.zap(own.lookup_u64("com.delphix:bookmarks")?)?;
            table.add("a/b", &Value::U64(vec![1, 2, 3]), tx)?;
            Ok(table.update("m", &value, tx)?)
        });
        let is_damage = |error: Option<DslError>| matches!(error, Some(DslError::Corrupt { .. }));
        assert!(is_damage(pool.dsl.bookmarks("tank/a").err()), "listed");
        assert!(is_damage(pool.dsl.create_bookmark("tank/a#n", "tank/a#m").err()), "copied");
        assert!(is_damage(pool.dsl.destroy_bookmark("tank/a#m").err()), "destroyed");
        assert!(is_damage(pool.dsl.destroy_snapshots(&strings(&["tank/a@s"]), false).err()), "beside a snapshot");
        change(&pool, move |dsl, tx| {
            let own = own_table(&dsl.tree.meta, dsl.tree.find("tank/a")?.object)?.ok_or(DslError::NotFound)?;
            Ok(dsl.tree.meta.zap(own.lookup_u64("com.delphix:bookmarks")?)?.remove("m", tx)?)
        });
        assert_eq!(pool.dsl.bookmarks("tank/a"), Ok(Vec::new()), "no bookmark may have the other one's name");
        assert_eq!(pool.dsl.destroy_snapshots(&strings(&["tank/a@s"]), false), Ok(()));
        assert_eq!(pool.dsl.destroy_dataset("tank/a"), Ok(()));
        pool.drain();
        pool.check();
        pool.check_features();
    }
}

/// If this fails, bookmarks of a file system that ignores case are there twice, or are not found.
#[test]
fn a_dataset_that_ignores_case_does_so_for_bookmarks() {
    for (case, finds) in [("insensitive", true), ("sensitive", false)] {
        let pool = TestPool::create(59);
        pool.dsl.create_dataset("tank/a", with_props(&[("casesensitivity", case)])).expect("creates");
        pool.dsl.snapshot(&strings(&["tank/a@s"]), Vec::new()).expect("snapshots");
        pool.dsl.create_bookmark("tank/a#One", "tank/a@s").expect("makes a bookmark");
        let again = pool.dsl.create_bookmark("tank/a#ONE", "tank/a@s");
        assert_eq!(again, if finds { Err(DslError::Exists) } else { Ok(()) }, "{case}");
        assert_eq!(pool.dsl.destroy_bookmark("tank/a#one"), if finds { Ok(()) } else { Err(DslError::NotFound) }, "{case}");
        assert_eq!(pool.dsl.bookmarks("tank/a").expect("lists").len(), if finds { 0 } else { 2 }, "{case}");
    }
}

/// A snapshot that is expected.
struct Snapshot {
    txg: u64,
    guid: u64,
    tags: BTreeSet<String>,
    is_marked: bool,
}

/// Expected datasets, snapshots and bookmarks by full name.
#[derive(Default)]
struct Model {
    /// Heads, with the snapshots that clones began as.
    heads: BTreeMap<String, Option<String>>,
    snapshots: BTreeMap<String, Snapshot>,
    /// Txgs and guids.
    bookmarks: BTreeMap<String, (u64, u64)>,
    serial: u64,
}

impl Model {
    fn fresh(&mut self, prefix: &str) -> String {
        self.serial += 1;
        format!("{prefix}{}", self.serial)
    }

    fn is_origin(&self, snapshot: &str) -> bool {
        self.heads.values().any(|origin| origin.as_deref() == Some(snapshot))
    }

    /// A snapshot that is marked goes once nothing keeps it.
    fn settle(&mut self, name: &str) {
        let is_given_up = self.snapshots.get(name).is_some_and(|known| known.is_marked && known.tags.is_empty());
        if is_given_up && !self.is_origin(name) {
            self.snapshots.remove(name);
        }
    }

    /// Heads that a head was once, with the last txg of each that it has seen.
    fn past(&self, head: &str) -> BTreeMap<String, u64> {
        let mut past = BTreeMap::from([(head.to_string(), u64::MAX)]);
        let mut at = head.to_string();
        while let Some(Some(origin)) = self.heads.get(&at) {
            let above = of(origin).to_string();
            past.insert(above.clone(), self.snapshots[origin].txg);
            at = above;
        }
        past
    }
}

/// The dataset of a snapshot or bookmark.
fn of(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or(name)
}

fn step(pool: &TestPool, model: &mut Model, random: &mut Random) {
    let heads: Vec<String> = model.heads.keys().cloned().collect();
    let snapshots: Vec<String> = model.snapshots.keys().cloned().collect();
    let bookmarks: Vec<String> = model.bookmarks.keys().cloned().collect();
    let (head, snapshot) = (random.pick(&heads).to_string(), random.pick(&snapshots).to_string());
    let tag = ["x", "y z", "\u{e9}"][random.below(3) as usize];
    match random.below(22) {
        0..=2 => {
            write(pool, &head, 0, 0, &[1 + random.below(255) as u8; 5000]).expect("writes");
        }
        3 => take(pool, model, &head),
        4..=5 => hold(pool, model, &snapshot, tag),
        6..=7 => release(pool, model, &snapshot, tag),
        8..=9 => destroy(pool, model, &snapshot, random.below(2) == 0),
        10..=11 => bookmark(pool, model, &head, &snapshot),
        12 if !bookmarks.is_empty() => bookmark(pool, model, &head, random.pick(&bookmarks)),
        13 if !bookmarks.is_empty() => {
            let name = random.pick(&bookmarks);
            assert_eq!(pool.dsl.destroy_bookmark(name), Ok(()));
            model.bookmarks.remove(name);
        }
        14..=15 if model.heads[&head].is_some() => destroy_clone(pool, model, &head),
        14 if !model.snapshots[&snapshot].is_marked => {
            let name = format!("tank/{}", model.fresh("c"));
            pool.dsl.clone_snapshot(&name, &snapshot, Vec::new()).expect("clones");
            model.heads.insert(name, Some(snapshot));
        }
        16 => rename(pool, model, &head),
        17..=19 => {
            let clones: Vec<String> = heads.into_iter().filter(|name| model.heads[name].is_some()).collect();
            let clone = if clones.is_empty() { head } else { random.pick(&clones).to_string() };
            promote(pool, model, &clone);
        }
        20..=21 => roll_back(pool, model, &snapshot),
        _ => {}
    }
}

fn take(pool: &TestPool, model: &mut Model, head: &str) {
    let name = format!("{head}@{}", model.fresh("s"));
    pool.dsl.snapshot(std::slice::from_ref(&name), Vec::new()).expect("snapshots");
    let handle = pool.dsl.hold(&name).expect("exists");
    let taken = Snapshot { txg: handle.creation_txg(), guid: handle.guid(), tags: BTreeSet::new(), is_marked: false };
    model.snapshots.insert(name, taken);
}

fn hold(pool: &TestPool, model: &mut Model, name: &str, tag: &str) {
    let is_new = model.snapshots.get_mut(name).expect("known").tags.insert(tag.to_string());
    let expected = if is_new { Ok(()) } else { Err(DslError::TagExists) };
    assert_eq!(pool.dsl.hold_snapshots(&strings(&[name]), tag), expected, "{name}");
}

fn release(pool: &TestPool, model: &mut Model, name: &str, tag: &str) {
    let was_there = model.snapshots.get_mut(name).expect("known").tags.remove(tag);
    let expected = if was_there { Ok(()) } else { Err(DslError::NoSuchTag) };
    assert_eq!(pool.dsl.release_snapshots(&strings(&[name]), tag), expected, "{name}");
    if was_there {
        model.settle(name);
    }
}

fn destroy(pool: &TestPool, model: &mut Model, name: &str, defer: bool) {
    let expected = match model.snapshots[name].tags.is_empty() {
        _ if defer => Ok(()),
        false => Err(DslError::Held),
        true if model.is_origin(name) => Err(DslError::HasClones),
        true => Ok(()),
    };
    assert_eq!(pool.dsl.destroy_snapshots(&strings(&[name]), defer), expected, "{name}");
    if expected.is_ok() {
        model.snapshots.get_mut(name).expect("known").is_marked = true;
        model.settle(name);
    }
}

fn bookmark(pool: &TestPool, model: &mut Model, head: &str, source: &str) {
    let name = format!("{head}#{}", model.fresh("m"));
    let (txg, guid) = match model.snapshots.get(source) {
        Some(snapshot) => (snapshot.txg, snapshot.guid),
        None => model.bookmarks[source],
    };
    let is_past = model.past(head).get(of(source)).is_some_and(|last| txg <= *last);
    let expected = if is_past { Ok(()) } else { Err(DslError::NotAncestor) };
    assert_eq!(pool.dsl.create_bookmark(&name, source), expected, "{name} of {source}");
    if is_past {
        model.bookmarks.insert(name, (txg, guid));
    }
}

fn destroy_clone(pool: &TestPool, model: &mut Model, head: &str) {
    let has_snapshots = model.snapshots.keys().any(|name| of(name) == head);
    let expected = if has_snapshots { Err(DslError::HasSnapshots) } else { Ok(()) };
    assert_eq!(pool.dsl.destroy_dataset(head), expected, "{head}");
    if !has_snapshots {
        model.bookmarks.retain(|name, _| of(name) != head);
        if let Some(Some(origin)) = model.heads.remove(head) {
            model.settle(&origin);
        }
    }
}

/// Has a clone take the snapshots up to its origin and the bookmarks up to then, and what it was made from become its clone.
fn promote(pool: &TestPool, model: &mut Model, clone: &str) {
    let Some(origin) = model.heads[clone].clone() else {
        assert_eq!(pool.dsl.promote(clone), Err(DslError::NotClone), "{clone}");
        return;
    };
    assert_eq!(pool.dsl.promote(clone), Ok(()), "{clone} of {origin}");
    let (other, last) = (of(&origin), model.snapshots[&origin].txg);
    let moved = |name: &str, txg: u64| if of(name) == other && txg <= last { name.replacen(other, clone, 1) } else { name.to_string() };
    for began in model.heads.values_mut().flatten() {
        let txg = model.snapshots[began.as_str()].txg;
        *began = moved(began.as_str(), txg);
    }
    model.snapshots = std::mem::take(&mut model.snapshots).into_iter().map(|(name, known)| (moved(&name, known.txg), known)).collect();
    model.bookmarks = std::mem::take(&mut model.bookmarks).into_iter().map(|(name, known)| (moved(&name, known.0), known)).collect();
    let above = model.heads.insert(other.to_string(), Some(moved(&origin, last))).flatten();
    model.heads.insert(clone.to_string(), above);
}

/// Has a head go back to a snapshot, which has to be newer than all others and than what is remembered.
fn roll_back(pool: &TestPool, model: &Model, name: &str) {
    let txg = model.snapshots[name].txg;
    let is_newer = |other: &str, its: u64| of(other) == of(name) && its > txg;
    let has_newer = model.snapshots.iter().any(|(other, known)| is_newer(other, known.txg))
        || model.bookmarks.iter().any(|(other, known)| is_newer(other, known.0));
    let expected = if has_newer { Err(DslError::Exists) } else { Ok(()) };
    assert_eq!(pool.dsl.rollback(name), expected, "{name}");
}

fn rename(pool: &TestPool, model: &mut Model, head: &str) {
    let to = format!("tank/{}", model.fresh("r"));
    assert_eq!(pool.dsl.rename(head, &to), Ok(()));
    let moved = |name: String| if of(&name) == head { name.replacen(head, &to, 1) } else { name };
    model.heads = std::mem::take(&mut model.heads).into_iter().map(|(name, origin)| (moved(name), origin.map(&moved))).collect();
    model.snapshots = std::mem::take(&mut model.snapshots).into_iter().map(|(name, known)| (moved(name), known)).collect();
    model.bookmarks = std::mem::take(&mut model.bookmarks).into_iter().map(|(name, known)| (moved(name), known)).collect();
}

fn compare(pool: &TestPool, model: &Model) {
    for head in model.heads.keys() {
        let mut found: Vec<String> =
            pool.dsl.snapshots(head).expect("lists").into_iter().map(|entry| format!("{head}@{}", entry.name)).collect();
        found.sort();
        let expected: Vec<&String> = model.snapshots.keys().filter(|name| of(name) == head).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "snapshots of {head}");
        let found: BTreeMap<String, (u64, u64)> = pool
            .dsl
            .bookmarks(head)
            .expect("lists")
            .into_iter()
            .map(|entry| (format!("{head}#{}", entry.name), (entry.creation_txg, entry.guid)))
            .collect();
        let expected: BTreeMap<String, (u64, u64)> =
            model.bookmarks.iter().filter(|(name, _)| of(name) == head).map(|(name, known)| (name.clone(), *known)).collect();
        assert_eq!(found, expected, "bookmarks of {head}");
    }
    for (name, snapshot) in &model.snapshots {
        assert_eq!(tags(pool, name), snapshot.tags.iter().cloned().collect::<Vec<_>>(), "holds on {name}");
        assert_eq!(value(pool, name, "userrefs"), PropValue::Number(snapshot.tags.len() as u64), "{name}");
        let marked = if snapshot.is_marked { "on" } else { "off" };
        assert_eq!(value(pool, name, "defer_destroy"), PropValue::Text(marked.to_string()), "{name}");
    }
}

/// If this fails, snapshots that somebody holds are lost, given up ones stay, or bookmarks name what they are not of.
#[test]
fn random_programs_keep_what_is_held_and_remember_what_is_marked() {
    for seed in 0..4 {
        let mut random = Random(seed);
        let mut pool = TestPool::create(seed);
        let mut model = Model::default();
        for name in ["tank/a", "tank/b"] {
            pool.dsl.create_dataset(name, filesystem()).expect("creates");
            model.heads.insert(name.to_string(), None);
            take(&pool, &mut model, name);
        }
        // One is always there.
        let first = model.snapshots.keys().next().expect("a snapshot").clone();
        hold(&pool, &mut model, &first, "for ever");
        for index in 0..120 {
            step(&pool, &mut model, &mut random);
            if index % 15 == 14 {
                pool = pool.reopen();
                compare(&pool, &model);
                pool.drain();
                pool.check();
                pool.check_features();
            }
        }
    }
}
