//! Livelists of clones: they have the clone's own blocks and nothing else, whatever becomes of it, and what goes with them comes back whole.

use super::lists::Lists;
use super::references::change;
use super::{TestPool, filesystem, write};
use crate::deadlist::Deadlist;
use crate::livelist::live_blocks;
use crate::{DslError, PoolServices, features};
use dmu::testing::MemBlockIo;
use ondisk::{BlockPtr, Checksum, Dva, ObjectType, Txg, VdevId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A pool with `tank/a`, which has a file of 400 KB, its snapshot, and a clone of that, `tank/b`; gives the file's object.
fn with_clone(io: Arc<MemBlockIo>, without: &'static [&'static str]) -> (TestPool, u64) {
    let pool = TestPool::create_without(io, without);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    let object = write(&pool, "tank/a", 0, 0, &[1; 400_000]).expect("writes");
    pool.dsl.snapshot(&["tank/a@s".to_string()], Vec::new()).expect("snapshots");
    pool.dsl.clone_snapshot("tank/b", "tank/a@s", Vec::new()).expect("clones");
    (pool, object)
}

fn livelist(pool: &TestPool, name: &str) -> u64 {
    pool.dsl.tree.find(name).expect("exists").livelist()
}

fn refs(pool: &TestPool) -> u64 {
    pool.services.feature_refs(features::LIVELIST)
}

fn sublists(pool: &TestPool, name: &str) -> usize {
    Deadlist::open(&pool.dsl.tree.meta, livelist(pool, name)).expect("opens").entries().len()
}

/// Way in which the last dataset that was destroyed goes, as its history says.
fn way(pool: &TestPool) -> String {
    let events = pool.services.events.lock();
    let text = events.iter().rev().find(|event| event.name == "destroy").map(|event| event.text.clone()).expect("was destroyed");
    text.split(',').next().unwrap_or_default().trim_start_matches('(').to_string()
}

/// A block that nobody has.
fn nobodys() -> BlockPtr {
    let mut bp = BlockPtr::HOLE;
    bp.set_dva(0, Dva { vdev: VdevId(0), offset: 1 << 40, asize: 4096, gang: false });
    bp.set_psize(4096);
    bp.set_lsize(4096);
    bp.set_checksum_kind(Checksum::FLETCHER_4);
    bp.set_object_type(ObjectType::PLAIN_FILE_CONTENTS);
    bp.set_birth(Txg(9), Txg(9));
    bp
}

/// If this fails, a block that is shared by deduplication or cloning is freed under somebody who has it, or never.
#[test]
fn a_block_is_live_as_often_as_it_was_born_and_not_freed() {
    for seed in 0..20 {
        let mut lists = Lists::create(seed, &[]);
        lists.services.feature_add(features::LIVELIST, 1, &lists.tx()).expect("counts");
        let pointers: Vec<BlockPtr> = lists.pointers(12).into_iter().filter(|bp| !bp.is_embedded()).collect();
        let list = lists.list(&[]);
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..200 {
            let bp = pointers[lists.random.below(pointers.len())];
            let times = model.entry(bp.dva(0).offset).or_default();
            let mut open = crate::bpobj::Bpobj::open(&lists.meta, list).expect("opens");
            if *times > 0 && lists.random.below(2) == 0 {
                *times -= 1;
                open.enqueue_freed(&lists.meta, &[bp], &lists.tx()).expect("frees");
            } else {
                *times += 1;
                open.enqueue(&lists.meta, &[bp], &lists.tx()).expect("is born");
            }
        }
        lists.reopen();
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        let live = live_blocks(&lists.meta, list).expect("reads");
        live.iter().for_each(|bp| *found.entry(bp.dva(0).offset).or_default() += 1);
        model.retain(|_, times| *times > 0);
        assert_eq!(found, model, "seed {seed}");
        assert!(live.iter().all(|bp| bp.0[11] == 0), "no mark is left on what is freed");
    }
}

/// If this fails, destroying a clone takes as long as reading it, or a restart in between loses its space or frees it twice.
#[test]
fn a_destroyed_clone_goes_by_its_livelist() {
    let (mut pool, object) = with_clone(MemBlockIo::inline(71), &[]);
    pool.dsl.tune_livelists(12, 0);
    pool.drain();
    pool.check();
    let objects = pool.dsl.mos().object_count();
    for round in 0..3u64 {
        if round > 0 {
            pool.dsl.clone_snapshot("tank/b", "tank/a@s", Vec::new()).expect("clones");
        }
        for index in 0..12u64 {
            write(&pool, "tank/b", object, index % 9 * 4096, &[round as u8 + 2; 6000]).expect("writes");
            pool.sync();
            if index == 5 && round > 0 {
                pool.dsl.snapshot(&["tank/b@own".to_string()], Vec::new()).expect("snapshots");
            }
        }
        if round > 0 {
            assert_eq!(pool.dsl.destroy_dataset("tank/b"), Err(DslError::HasSnapshots));
            pool.dsl.destroy_snapshots(&["tank/b@own".to_string()], false).expect("destroys");
        }
        pool.drain();
        pool.check();
        assert!(sublists(&pool, "tank/b") > 1, "there is more than one txg's work");
        pool.services.frees_max.store(0, Ordering::Relaxed);
        pool.dsl.destroy_dataset("tank/b").expect("destroys");
        assert_eq!((way(&pool).as_str(), refs(&pool)), ("livelist", 1));
        pool.services.frees_max.store(1, Ordering::Relaxed);
        let mut steps = 0;
        while pool.dsl.has_frees() {
            pool = pool.reopen();
            let mut queued = 0;
            let count = |bp: &BlockPtr| {
                queued += dmu::BlockIo::dsize(&pool.io, bp);
                Ok(())
            };
            pool.dsl.for_each_queued(&mut { count }).expect("reads");
            assert_eq!(pool.dsl.freeing_bytes(), queued, "as zpool get freeing says");
            pool.sync();
            steps += 1;
        }
        assert!(steps > 1, "a sublist a txg");
        pool.dsl.tune_livelists(12, 0);
        pool.drain();
        pool.check();
        assert_eq!((refs(&pool), pool.dsl.leaked_bytes()), (0, Ok(0)));
    }
    pool.dsl.clone_snapshot("tank/b", "tank/a@s", Vec::new()).expect("clones");
    pool.drain();
    assert_eq!(pool.dsl.mos().object_count(), objects, "as much as before");
}

/// If this fails, the livelist of a clone that is written to for years is as long as all that was ever written.
#[test]
fn what_was_freed_again_leaves_the_livelist() {
    let (pool, object) = with_clone(MemBlockIo::inline(72), &[]);
    pool.dsl.tune_livelists(8, 0);
    let mut most = 0;
    for round in 0..40u8 {
        write(&pool, "tank/b", object, 0, &[round; 4096]).expect("writes");
        pool.sync();
        most = most.max(sublists(&pool, "tank/b"));
        if round % 8 == 7 {
            pool.drain();
            pool.check();
        }
    }
    assert!((2..=5).contains(&most), "{most} sublists");
}

/// If this fails, blocks that the other dataset has are freed with a clone that was promoted or went back, or OpenZFS refuses the pool.
#[test]
fn livelists_are_given_up_where_they_would_not_be_true_or_of_use() {
    let (pool, object) = with_clone(MemBlockIo::inline(73), &[]);
    assert!(livelist(&pool, "tank/b") != 0 && livelist(&pool, "tank/a") == 0);
    // The metadata of so small a clone is more than three quarters of it.
    pool.dsl.tune_livelists(500_000, -1);
    write(&pool, "tank/b", object, 0, &[2; 200_000]).expect("writes");
    pool.sync();
    assert_ne!(livelist(&pool, "tank/b"), 0, "nobody asks how much it shares");
    pool.dsl.destroy_dataset("tank/b").expect("destroys");
    pool.drain();
    pool.dsl.clone_snapshot("tank/b", "tank/a@s", Vec::new()).expect("clones");
    pool.dsl.tune_livelists(500_000, 15);
    write(&pool, "tank/b", object, 0, &[3; 5000]).expect("writes");
    pool.sync();
    assert_ne!(livelist(&pool, "tank/b"), 0, "it shares enough");
    write(&pool, "tank/b", object, 0, &[3; 200_000]).expect("writes");
    pool.sync();
    assert_eq!((livelist(&pool, "tank/b"), refs(&pool)), (0, 0), "too much of it is its own");
    pool.dsl.destroy_dataset("tank/b").expect("destroys");
    assert_eq!(way(&pool), "bptree");
    // A clone's clone takes the place of what it was made from.
    pool.dsl.clone_snapshot("tank/b", "tank/a@s", Vec::new()).expect("clones");
    write(&pool, "tank/b", object, 0, &[4; 5000]).expect("writes");
    pool.dsl.snapshot(&["tank/b@own".to_string()], Vec::new()).expect("snapshots");
    pool.dsl.clone_snapshot("tank/c", "tank/b@own", Vec::new()).expect("clones");
    pool.dsl.clone_snapshot("tank/d", "tank/a@s", Vec::new()).expect("clones");
    assert_eq!(refs(&pool), 3);
    pool.dsl.promote("tank/c").expect("promotes");
    assert_eq!((livelist(&pool, "tank/b"), livelist(&pool, "tank/c"), refs(&pool)), (0, 0, 1));
    pool.dsl.destroy_dataset("tank/b").expect("destroys");
    pool.drain();
    pool.check();
    write(&pool, "tank/d", object, 0, &[4; 5000]).expect("writes");
    pool.dsl.snapshot(&["tank/d@t".to_string()], Vec::new()).expect("snapshots");
    write(&pool, "tank/d", object, 9000, &[5; 5000]).expect("writes");
    pool.dsl.rollback("tank/d@t").expect("goes back");
    assert_eq!((livelist(&pool, "tank/d"), refs(&pool)), (0, 0));
    pool.dsl.destroy_snapshots(&["tank/d@t".to_string()], false).expect("destroys");
    pool.dsl.destroy_dataset("tank/d").expect("destroys");
    pool.drain();
    pool.check();
}

/// If this fails, a pool gets a feature that it was made without, so that older software cannot write to it any more.
#[test]
fn pools_without_the_feature_have_none() {
    for without in [&[features::LIVELIST][..], &[features::EXTENSIBLE_DATASET]] {
        let (pool, object) = with_clone(MemBlockIo::inline(74), without);
        write(&pool, "tank/b", object, 0, &[3; 5000]).expect("writes");
        pool.sync();
        assert_eq!((livelist(&pool, "tank/b"), refs(&pool)), (0, 0));
        pool.dsl.destroy_dataset("tank/b").expect("destroys");
        assert_eq!(way(&pool), "bptree");
        pool.drain();
        pool.check();
    }
}

/// If this fails, a damaged livelist stops the pool, or has blocks freed that somebody else has; the clone itself is whole.
#[test]
fn a_livelist_that_is_not_true_is_not_believed() {
    let (pool, object) = with_clone(MemBlockIo::inline(75), &[]);
    pool.dsl.tune_livelists(500_000, 0);
    write(&pool, "tank/b", object, 0, &[3; 5000]).expect("writes");
    pool.sync();
    let list = livelist(&pool, "tank/b");
    change(&pool, move |dsl, tx| Deadlist::open(&dsl.tree.meta, list)?.insert(&[nobodys()], tx));
    pool.dsl.destroy_dataset("tank/b").expect("destroys");
    assert_eq!(way(&pool), "bptree", "it has more than the clone");
    pool.drain();
    pool.check();
    // One whose table is gone.
    pool.dsl.clone_snapshot("tank/b", "tank/a@s", Vec::new()).expect("clones");
    let list = livelist(&pool, "tank/b");
    change(&pool, move |dsl, tx| dsl.tree.meta.free_object(list, tx));
    write(&pool, "tank/b", object, 0, &[3; 5000]).expect("writes");
    pool.sync();
    assert_eq!((livelist(&pool, "tank/b"), refs(&pool)), (0, 0));
    pool.drain();
    pool.check();
}

/// If this fails, damage of what waits to be freed has blocks freed twice, or stops the pool for good; it may cost their space alone.
#[test]
fn a_sublist_that_cannot_be_told_is_given_up() {
    let (pool, object) = with_clone(MemBlockIo::inline(76), &[]);
    pool.dsl.tune_livelists(500_000, 0);
    write(&pool, "tank/b", object, 0, &[3; 5000]).expect("writes");
    pool.sync();
    let list = livelist(&pool, "tank/b");
    pool.services.frees_max.store(0, Ordering::Relaxed);
    pool.dsl.destroy_dataset("tank/b").expect("destroys");
    assert_eq!(way(&pool), "livelist");
    let waiting = pool.dsl.freeing_bytes();
    assert!(waiting > 5000);
    let before = pool.io.live_blocks();
    change(&pool, move |dsl, tx| {
        // Nobody's block is freed, and the sums are as they were.
        let mut open = Deadlist::open(&dsl.tree.meta, list)?;
        open.insert(&[nobodys()], tx)?;
        open.insert_freed(&[nobodys()], tx)?;
        let mut other = nobodys();
        other.set_psize(512);
        open.insert(&[other], tx)?;
        open.insert_freed(&[nobodys()], tx)
    });
    pool.services.frees_max.store(100, Ordering::Relaxed);
    let pool = pool.reopen();
    pool.drain();
    assert_eq!(pool.io.violations(), Vec::<&str>::new());
    assert_eq!((pool.dsl.freeing_bytes(), pool.dsl.leaked_bytes(), refs(&pool)), (0, Ok(waiting), 0));
    let lost = before.intersection(&pool.io.live_blocks()).count();
    assert!(lost > 0, "what cannot be told stays");
}
