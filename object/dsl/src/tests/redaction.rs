//! Bookmarks that redact: their lists, what keeps them, and that nothing of them is left behind.

use super::references::change;
use super::{TestPool, filesystem, write};
use crate::marks::own_table;
use crate::redaction;
use crate::{DslError, PoolServices, RedactedRun, Redaction, features};
use dmu::testing::MemBlockIo;
use zap::Value;

/// A pool with a file system that has a snapshot.
fn pool_with_snapshot(seed: u64, without: &'static [&'static str]) -> TestPool {
    let pool = TestPool::create_without(MemBlockIo::inline(seed), without);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    write(&pool, "tank/a", 0, 0, &[7; 9000]).expect("writes");
    pool.dsl.snapshot(&["tank/a@s".to_string()], Vec::new()).expect("snapshots");
    pool
}

fn runs(count: u64) -> Vec<RedactedRun> {
    (0..count).map(|index| RedactedRun { object: 2 + index / 3, block: index % 3 * 10, count: index % 3 + 1, block_bytes: 4096 }).collect()
}

fn refs(pool: &TestPool) -> [u64; 3] {
    [features::REDACTION_BOOKMARKS, features::REDACTION_LIST_SPILL, features::BOOKMARKS].map(|guid| pool.services.feature_refs(guid))
}

fn facts(pool: &TestPool, dataset: &str) -> Vec<Option<Redaction>> {
    pool.dsl.bookmarks(dataset).expect("lists").into_iter().map(|mark| mark.redaction).collect()
}

/// Object of the list of the bookmark `r` of `tank/a`.
fn list_object(pool: &TestPool) -> u64 {
    let own = own_table(&pool.dsl.tree.meta, pool.dsl.tree.find("tank/a").expect("exists").object).expect("opens").expect("a table");
    let table = pool.dsl.tree.meta.zap(own.lookup_u64("com.delphix:bookmarks").expect("is named")).expect("opens");
    match table.lookup("r").expect("is there") {
        Value::U64(words) => words[3],
        other => panic!("{other:?}"),
    }
}

/// If this fails, blocks that are not for others are sent to them, or a list that nobody can reach any more stays in the pool for ever.
#[test]
fn a_list_is_kept_and_goes_with_its_bookmark() {
    for (seed, snapshots, count) in [(81, 2, 5), (82, 1, 0), (83, 36, 7), (84, 37, 7), (85, 500, 66_000)] {
        let mut pool = pool_with_snapshot(seed, &[]);
        pool.drain();
        let objects = pool.dsl.mos().object_count();
        let guids: Vec<u64> = (100..100 + snapshots).collect();
        assert_eq!(pool.dsl.create_redaction("tank/a@s", "r", &guids, runs(count)), Ok(()));
        assert_eq!(pool.dsl.create_redaction("tank/a@s", "r", &guids, runs(count)), Err(DslError::Exists));
        pool = pool.reopen();
        let expected = Redaction { snapshots: guids.clone(), is_whole: true, runs: count };
        assert_eq!(facts(&pool, "tank/a"), [Some(expected.clone())], "{snapshots} snapshots");
        assert_eq!(refs(&pool), [1, u64::from(snapshots > 36), 1]);
        let list = pool.dsl.redaction_list("tank/a#r").expect("opens").expect("redacts");
        assert_eq!((list.facts(), list.runs(0, u64::MAX)), (&expected, Ok(runs(count))));
        assert_eq!(list.runs(count.saturating_sub(1), 5).map(|tail| tail.len() as u64), Ok(count.min(1)));
        assert_eq!(pool.dsl.destroy_bookmark("tank/a#r"), Err(DslError::Busy), "somebody reads it");
        drop(list);
        assert_eq!(pool.dsl.destroy_bookmark("tank/a#r"), Ok(()));
        pool.drain();
        assert_eq!((refs(&pool), pool.dsl.mos().object_count()), ([0, 0, 0], objects));
        pool.check();
        pool.check_features();
    }
}

/// If this fails, what goes on beside a bookmark takes its list away.
#[test]
fn a_list_outlives_snapshots_and_changes_hands() {
    let mut pool = pool_with_snapshot(86, &[]);
    pool.dsl.create_redaction("tank/a@s", "r", &[1, 2], runs(4)).expect("makes a bookmark");
    pool.dsl.create_bookmark("tank/a#plain", "tank/a#r").expect("copies");
    pool.dsl.rollback("tank/a@s").expect("goes back");
    pool.dsl.clone_snapshot("tank/b", "tank/a@s", Vec::new()).expect("clones");
    pool.dsl.promote("tank/b").expect("promotes");
    pool = pool.reopen();
    let with_list = facts(&pool, "tank/b").into_iter().flatten().collect::<Vec<_>>();
    assert_eq!(with_list, [Redaction { snapshots: vec![1, 2], is_whole: true, runs: 4 }], "a copy has none");
    pool.dsl.destroy_dataset("tank/a").expect("destroys");
    pool.dsl.destroy_snapshots(&["tank/b@s".to_string()], false).expect("destroys");
    let list = pool.dsl.redaction_list("tank/b#r").expect("opens").expect("redacts");
    assert_eq!(list.runs(0, 9), Ok(runs(4)));
    assert_eq!(pool.dsl.destroy_dataset("tank/b"), Err(DslError::Busy));
    drop(list);
    assert_eq!(pool.dsl.destroy_dataset("tank/b"), Ok(()));
    assert_eq!(refs(&pool), [0, 0, 0]);
    pool.drain();
    pool.check();
    pool.check_features();
}

/// If this fails, a list that a crash cut off is taken for a whole one: more is sent than may be.
#[test]
fn an_unfinished_list_is_made_anew() {
    let pool = pool_with_snapshot(87, &[]);
    pool.dsl.create_redaction("tank/a@s", "r", &[1, 2], runs(6)).expect("makes a bookmark");
    let object = list_object(&pool);
    change(&pool, move |dsl, tx| redaction::append(&dsl.tree.meta, object, (0, &runs(2)), false, tx));
    assert_eq!(facts(&pool, "tank/a"), [Some(Redaction { snapshots: vec![1, 2], is_whole: false, runs: 2 })]);
    assert_eq!(pool.dsl.create_redaction("tank/a@s", "r", &[1, 3], runs(6)), Err(DslError::OtherRedaction));
    assert_eq!(pool.dsl.create_redaction("tank/a@s", "r", &[1], runs(6)), Err(DslError::OtherRedaction));
    let list = pool.dsl.redaction_list("tank/a#r").expect("opens").expect("redacts");
    assert_eq!(pool.dsl.create_redaction("tank/a@s", "r", &[2, 1], runs(6)), Err(DslError::Busy));
    drop(list);
    assert_eq!(pool.dsl.create_redaction("tank/a@s", "r", &[2, 1], runs(6)), Ok(()));
    assert_eq!(facts(&pool, "tank/a"), [Some(Redaction { snapshots: vec![1, 2], is_whole: true, runs: 6 })]);
    pool.drain();
    pool.check();
    pool.check_features();
}

/// If this fails, lists are made that the pool's other software cannot read.
#[test]
fn lists_that_cannot_be_are_refused() {
    let redact = |pool: &TestPool, snapshot: &str, name: &str, guids: u64| {
        pool.dsl.create_redaction(snapshot, name, &(1..=guids).collect::<Vec<u64>>(), Vec::new())
    };
    let pool = pool_with_snapshot(88, &[features::REDACTION_LIST_SPILL]);
    pool.dsl.create_bookmark("tank/a#plain", "tank/a@s").expect("makes a bookmark");
    assert_eq!(redact(&pool, "tank/a@s", "plain", 1), Err(DslError::Exists));
    assert_eq!(redact(&pool, "tank/a", "r", 1), Err(DslError::NotSnapshot));
    assert_eq!(redact(&pool, "tank/a@missing", "r", 1), Err(DslError::NotFound));
    assert_eq!(redact(&pool, "tank/a@s", "a#b", 1), Err(DslError::BadName));
    assert_eq!(redact(&pool, "tank/a@s", "r", 37), Err(DslError::TooManySnapshots));
    assert_eq!(redact(&pool, "tank/a@s", "r", 36), Ok(()));
    let pool = pool_with_snapshot(89, &[]);
    assert_eq!(redact(&pool, "tank/a@s", "r", 16_381), Err(DslError::TooManySnapshots));
    let pool = pool_with_snapshot(90, &[features::REDACTION_BOOKMARKS]);
    assert_eq!(redact(&pool, "tank/a@s", "r", 1), Err(DslError::Unsupported));
    assert_eq!(pool.dsl.bookmarks("tank/a"), Ok(Vec::new()));
}

/// If this fails, destroying a damaged bookmark frees whatever object its record names.
#[test]
fn a_list_that_is_none_is_damage() {
    let pool = pool_with_snapshot(91, &[]);
    pool.dsl.create_bookmark("tank/a#m", "tank/a@s").expect("makes a bookmark");
    change(&pool, |dsl, tx| {
        let own = own_table(&dsl.tree.meta, dsl.tree.find("tank/a")?.object)?.ok_or(DslError::NotFound)?;
        let words = vec![1, 2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        Ok(dsl.tree.meta.zap(own.lookup_u64("com.delphix:bookmarks")?)?.add("odd", &Value::U64(words), tx)?)
    });
    let is_damage = |error: Option<DslError>| matches!(error, Some(DslError::Corrupt { .. }));
    assert!(is_damage(pool.dsl.bookmarks("tank/a").err()), "listed");
    assert!(is_damage(pool.dsl.redaction_list("tank/a#odd").err()), "read");
    assert!(is_damage(pool.dsl.destroy_bookmark("tank/a#odd").err()), "destroyed");
    assert_eq!(pool.dsl.create_bookmark("tank/a#copy", "tank/a#odd"), Ok(()), "without the list");
    assert_eq!(pool.dsl.destroy_snapshots(&["tank/a@s".to_string()], false), Ok(()), "that needs no list");
    assert!(is_damage(pool.dsl.destroy_dataset("tank/a").err()), "with its dataset");
}
