//! Bookmarks that count what is freed behind them, beside the sets of blocks that were there.

use super::model::Random;
use super::{Blocks, TestPool, filesystem, sum, write};
use crate::{BookmarkSpace, DslError, PoolServices, features};
use std::collections::BTreeMap;

/// Blocks of each snapshot that ever was, by its guid.
type Known = BTreeMap<u64, Blocks>;

fn blocks(pool: &TestPool, object: u64) -> Blocks {
    pool.reachable(object, &pool.dsl.tree.dataset(object).expect("loads").phys().ds_bp)
}

fn take(pool: &TestPool, known: &mut Known, name: &str) {
    pool.dsl.snapshot(&[name.to_string()], Vec::new()).expect("snapshots");
    let handle = pool.dsl.hold(name).expect("exists");
    known.insert(handle.guid(), blocks(pool, handle.object()));
}

fn destroy(pool: &TestPool, snapshot: &str) -> Result<(), DslError> {
    pool.dsl.destroy_snapshots(&[snapshot.to_string()], false)
}

fn refs(pool: &TestPool) -> [u64; 3] {
    [features::BOOKMARKS, features::BOOKMARK_V2, features::BOOKMARK_WRITTEN].map(|guid| pool.services.feature_refs(guid))
}

/// The dataset of a snapshot.
fn of(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// Every bookmark tells what each head and later snapshot has that was not there at its time; gives how many there were to tell.
fn compare(pool: &TestPool, known: &Known) -> usize {
    let mut told = 0;
    for (name, object) in pool.all_datasets() {
        let own = blocks(pool, object);
        let handle = pool.dsl.hold(&name).expect("exists");
        for mark in pool.dsl.bookmarks(of(&name)).expect("lists") {
            let Some(space) = mark.space else { continue };
            let before = &known[&mark.guid];
            assert_eq!(space.referenced, sum(before.values()).used as u64, "{} of {name}", mark.name);
            let written = sum(own.iter().filter(|(at, _)| !before.contains_key(*at)).map(|(_, block)| block)).used as u64;
            let is_later = !handle.is_snapshot() || handle.creation_txg() > mark.creation_txg;
            let expected = if is_later { Ok(written) } else { Err(DslError::NotFound) };
            assert_eq!(handle.written_since_bookmark(&mark.name), expected, "{name} since {}", mark.name);
            told += 1;
        }
    }
    told
}

fn step(pool: &TestPool, known: &mut Known, random: &mut Random, (object, serial): (u64, u64)) {
    let all: Vec<String> = pool.all_datasets().into_iter().map(|(name, _)| name).filter(|name| name != "tank").collect();
    let (snapshots, heads): (Vec<String>, Vec<String>) = all.into_iter().partition(|name| name.contains('@'));
    let (head, snapshot) = (random.pick(&heads).to_string(), random.pick(&snapshots).to_string());
    let marks = pool.dsl.bookmarks(&head).expect("lists");
    let mark = (!marks.is_empty()).then(|| format!("{head}#{}", marks[random.below(marks.len() as u64) as usize].name));
    match random.below(30) {
        0..=7 => {
            let bytes = vec![random.below(256) as u8; 1 + random.below(20_000) as usize];
            write(pool, &head, object, random.below(40) * 1024, &bytes).expect("writes");
            pool.sync();
        }
        8..=11 => take(pool, known, &format!("{head}@s{serial}")),
        12..=15 if snapshots.len() > 1 => drop(destroy(pool, &snapshot)),
        16..=20 => pool.dsl.create_bookmark(&format!("{}#m{serial}", of(&snapshot)), &snapshot).expect("makes a bookmark"),
        21..=23 => {
            if let Some(mark) = mark {
                let copy = || pool.dsl.create_bookmark(&format!("{head}#m{serial}"), &mark);
                let done = if random.below(3) == 0 { copy() } else { pool.dsl.destroy_bookmark(&mark) };
                done.expect("is possible");
            }
        }
        24 => pool.dsl.clone_snapshot(&format!("tank/c{serial}"), &snapshot, Vec::new()).expect("clones"),
        25..=26 => drop(pool.dsl.promote(&head)),
        27..=28 => drop(pool.dsl.rollback(&snapshot)),
        _ if heads.len() > 1 => drop(pool.dsl.destroy_dataset(&head)),
        _ => {}
    }
}

/// If this fails, `written#BOOKMARK` is wrong, and so is what a backup that begins at the bookmark is said to send.
#[test]
fn bookmarks_tell_what_was_written_since() {
    let mut told = 0;
    for seed in 0..6 {
        let mut random = Random(seed);
        let mut pool = TestPool::create(seed);
        let mut known = Known::new();
        pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
        let object = write(&pool, "tank/a", 0, 0, &[9; 30_000]).expect("writes");
        take(&pool, &mut known, "tank/a@first");
        for serial in 0..120 {
            step(&pool, &mut known, &mut random, (object, serial));
            told += compare(&pool, &known);
            if serial % 12 == 11 {
                pool = pool.reopen();
                told += compare(&pool, &known);
                pool.drain();
                pool.check();
                pool.check_features();
            }
        }
    }
    assert!(told > 1000, "{told} are few");
}

/// If this fails, OpenZFS finds another number of bookmarks of the feature than there are, or keys of deadlists that nothing needs.
#[test]
fn what_counts_leaves_nothing_behind() {
    let mut pool = TestPool::create(81);
    let mut known = Known::new();
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let object = write(&pool, "tank/a", 0, 0, &[9; 30_000]).expect("writes");
    for name in ["tank/a@one", "tank/a@two", "tank/a@three"] {
        write(&pool, "tank/a", object, 0, name.as_bytes()).expect("writes");
        take(&pool, &mut known, name);
    }
    let space = pool.dsl.hold("tank/a@two").expect("exists").space();
    pool.dsl.create_bookmark("tank/a#two", "tank/a@two").expect("makes a bookmark");
    let mark = pool.dsl.bookmarks("tank/a").expect("lists").remove(0);
    let BookmarkSpace { referenced, uncompressed, .. } = mark.space.expect("counts");
    assert_eq!((referenced, uncompressed), (space.referenced, space.logical_referenced));
    pool.dsl.clone_snapshot("tank/c", "tank/a@three", Vec::new()).expect("clones");
    pool.dsl.create_bookmark("tank/c#old", "tank/a@two").expect("makes a bookmark");
    pool.dsl.create_bookmark("tank/c#older", "tank/a#two").expect("makes a bookmark");
    assert_eq!(refs(&pool), [2, 1, 1], "those of what a clone came from count nothing");
    assert_eq!(pool.dsl.hold("tank/c").expect("exists").written_since_bookmark("old"), Err(DslError::Unsupported));
    assert_eq!(pool.dsl.hold("tank/c").expect("exists").written_since_bookmark("tank/a#two"), Err(DslError::NotFound));
    assert_eq!(destroy(&pool, "tank/a@two"), Ok(()));
    pool.dsl.create_bookmark("tank/a#copy", "tank/a#two").expect("copies");
    assert_eq!(refs(&pool), [2, 2, 2]);
    for name in ["tank/a#two", "tank/a#copy"] {
        pool = pool.reopen();
        compare(&pool, &known);
        pool.drain();
        pool.check();
        assert_eq!(pool.dsl.destroy_bookmark(name), Ok(()), "{name}");
    }
    assert_eq!(refs(&pool), [1, 0, 0]);
    pool.drain();
    pool.check();
    pool.check_features();
    pool.dsl.create_bookmark("tank/a#one", "tank/a@one").expect("makes a bookmark");
    pool.dsl.destroy_dataset("tank/c").expect("destroys");
    for name in ["tank/a@one", "tank/a@three"] {
        assert_eq!(destroy(&pool, name), Ok(()), "{name}");
    }
    assert_eq!(pool.dsl.destroy_dataset("tank/a"), Ok(()), "bookmarks keep nothing");
    assert_eq!(refs(&pool), [0, 0, 0]);
    pool.drain();
    pool.check();
}
