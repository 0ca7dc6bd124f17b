//! Damaged records in the MOS: every use must end, with an error or without, and never with a panic.

use super::{Syncer, TestPool, filesystem, start, write};
use crate::pool::Mos;
use crate::traverse::Walk;
use crate::{DslPool, TxSpace};
use dmu::{ObjsetProps, Tx};
use ondisk::{BlockId, BlockPtr, ObjectId, ObjectType};
use std::sync::Arc;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit.max(1)
    }
}

fn populated(seed: u64) -> TestPool {
    let pool = TestPool::create(seed);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("creates");
    let mut object = 0;
    for index in 0..3u8 {
        object = write(&pool, "tank/a", object, 0, &[index + 1; 9000]).expect("writes");
        pool.dsl.snapshot(&[format!("tank/a@{index}"), format!("tank@{index}")], Vec::new()).expect("snapshots");
    }
    pool.dsl.clone_snapshot("tank/c", "tank/a@1", Vec::new()).expect("clones");
    pool.drain();
    pool
}

/// Overwrites bytes of some objects of the MOS, in bonus or contents.
fn damage(pool: &TestPool, random: &mut Random) {
    let mos = pool.dsl.mos().clone();
    let mut objects = vec![ObjectId(1)];
    while let Some(next) = mos.next_object(*objects.last().expect("one")).expect("walks") {
        objects.push(next);
    }
    let picks: Vec<(ObjectId, u64, u64, u8)> = (0..1 + random.below(3))
        .map(|_| (objects[random.below(objects.len() as u64) as usize], random.below(2), random.below(4096), random.below(256) as u8))
        .collect();
    let change = move |_: &Arc<DslPool>, (), tx: &Tx| {
        for (object, place, at, value) in picks {
            let dnode = mos.hold(object)?;
            let mut bonus = dnode.bonus()?.to_vec();
            if place == 0 && !bonus.is_empty() {
                let at = at as usize % bonus.len();
                // Whole words: numbers of other objects, or absurd sizes.
                bonus[at] = value;
                if value > 200 {
                    let word = at / 8 * 8;
                    bonus[word..(word + 8).min(at / 8 * 8 + 8)].fill(0xFF);
                }
                dnode.set_bonus(&bonus, tx)?;
            } else {
                let limit = dnode.info()?.block_size as u64;
                dnode.modify_block(BlockId(0), tx, |bytes| bytes[(at % limit.min(600)) as usize] = value)?;
            }
        }
        Ok(())
    };
    // The pool may notice at once.
    let _ = pool.dsl.sync_task(|_, _| Ok(()), change);
}

/// Does a bit of everything; errors are fine.
fn exercise(dsl: &Arc<DslPool>) {
    for name in ["tank", "tank/a", "tank/a/b", "tank/c", "tank/a@0", "tank/a@1", "tank@2"] {
        let _ = (dsl.children(name), dsl.snapshots(name), dsl.bookmarks(name), dsl.user_holds(name));
        let Ok(handle) = dsl.hold(name) else { continue };
        let _ = (handle.name(), handle.space(), handle.props());
        if let Ok(tx) = handle.assign(TxSpace::Writes(1000))
            && let Ok(objset) = handle.objset()
            && let Ok(Some(object)) = objset.next_object(ObjectId(1))
            && let Ok(dnode) = objset.hold(object)
        {
            let _ = dnode.write(0, &[3; 100], &tx);
        }
        drop(handle);
    }
    let _ = dsl.snapshot(&["tank/a@new".to_string()], Vec::new());
    let _ = dsl.rename("tank/a/b", "tank/moved");
    let _ = (dsl.create_bookmark("tank/c#m", "tank/a@1"), dsl.create_bookmark("tank/a#m", "tank/a@0"));
    let held = ["tank/a@2".to_string()];
    let _ = (dsl.hold_snapshots(&held, "tag"), dsl.destroy_snapshots(&held, true), dsl.release_snapshots(&held, "tag"));
    for name in ["tank/a@0", "tank/a@2", "tank@1"] {
        let _ = dsl.destroy_snapshots(&[name.to_string()], false);
    }
    let _ = (dsl.destroy_dataset("tank/c"), dsl.destroy_dataset("tank/moved"), dsl.create_dataset("tank/x", filesystem()));
    let _ = dsl.txgs().wait_synced(dsl.txgs().open_txg());
}

/// A hostile image must not take the daemon down.
#[test]
fn damaged_records_give_errors() {
    for seed in 0..std::env::var("DSL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60) {
        let pool = populated(seed);
        damage(&pool, &mut Random(seed));
        let synced = pool.txgs.open_txg();
        let _ = pool.txgs.stop();
        let root = pool.dsl.mos().root_bp();
        let txgs = start(&pool.io, synced);
        let Ok(mos) = Mos::open(Arc::new(pool.io.clone()), root, ObjsetProps::mos()) else { continue };
        let Ok(dsl) = DslPool::open(mos, pool.services.clone(), txgs.clone()) else { continue };
        txgs.start(Arc::new(Syncer(dsl.clone(), pool.services.clone())));
        exercise(&dsl);
        let _ = txgs.stop();
    }
}

/// If this fails, space that damage made unreachable vanishes from the books: `used` is less than what is allocated.
#[test]
fn what_a_destroyed_dataset_could_not_free_is_charged_to_the_leak_directory() {
    let pool = TestPool::create(3);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    write(&pool, "tank/a", 0, 0, &[7; 4096 * 60]).expect("writes");
    pool.drain();
    let root = pool.dsl.tree.find("tank/a").expect("exists").phys().ds_bp;
    let mut indirects = Vec::new();
    let io: Arc<dyn dmu::BlockIo> = Arc::new(pool.io.clone());
    let visit = &mut |bp: &ondisk::BlockPtr| {
        if bp.level() == 1 && bp.object_type() == ondisk::ObjectType::PLAIN_FILE_CONTENTS {
            indirects.push(*bp);
        }
        Ok(())
    };
    Walk::all(&*io, 1, &root, 0).run(visit).expect("walks");
    assert!(indirects.len() > 1, "the file has several indirect blocks");
    pool.io.corrupt(&indirects[0]);
    let used = pool.dsl.used_bytes();
    assert_eq!(pool.dsl.leaked_bytes(), Ok(0));
    pool.dsl.destroy_dataset("tank/a").expect("destroyed");
    pool.drain();
    let leaked = pool.dsl.leaked_bytes().expect("known");
    assert_eq!(leaked, indirects[0].fill() * 4096, "what only the damaged block named");
    assert_eq!(pool.dsl.freeing_bytes(), 0);
    assert!(pool.dsl.used_bytes() >= leaked && pool.dsl.used_bytes() < used);
    assert_eq!(pool.dsl.children("tank").expect("lists"), Vec::<String>::new());
    let pool = pool.reopen();
    assert_eq!(pool.dsl.leaked_bytes(), Ok(leaked), "for good");
}

/// Makes every block of lists of block pointers unreadable, for good; says how many there were.
fn lose_lists(pool: &TestPool) -> usize {
    let mut lists = Vec::new();
    let io: Arc<dyn dmu::BlockIo> = Arc::new(pool.io.clone());
    let visit = &mut |bp: &BlockPtr| {
        if bp.level() == 0 && bp.object_type() == ObjectType::BPOBJ {
            lists.push(*bp);
        }
        Ok(())
    };
    Walk::all(&*io, 0, &pool.dsl.mos().root_bp(), 0).run(visit).expect("walks");
    lists.iter().for_each(|bp| pool.io.corrupt(bp));
    lists.len()
}

/// A list that nobody can read any more costs the space of what was on it, not the pool, which could write no txg while it waits.
#[test]
fn a_lost_list_of_blocks_to_free_leaks_them_and_no_more() {
    for is_draining in [true, false] {
        let pool = TestPool::create(11);
        pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
        let object = write(&pool, "tank/a", 0, 0, &[1; 40 * 4096]).expect("writes");
        pool.dsl.snapshot(&["tank/a@1".to_string()], Vec::new()).expect("snapshots");
        write(&pool, "tank/a", object, 0, &[2; 40 * 4096]).expect("writes");
        pool.sync();
        let destroy = |pool: &TestPool| pool.dsl.destroy_snapshots(&["tank/a@1".to_string()], false).expect("destroys");
        if is_draining {
            // A few of the blocks are freed in each txg.
            destroy(&pool);
        }
        let pool = pool.reopen();
        assert!(lose_lists(&pool) > 0, "the test must lose a list");
        if !is_draining {
            destroy(&pool);
        }
        pool.drain();
        assert_eq!(pool.dsl.freeing_bytes(), 0, "nothing waits");
        assert!(pool.dsl.leaked_bytes().expect("readable") >= 20 * 4096, "what was on the list is lost");
        let pool = pool.reopen();
        write(&pool, "tank/a", object, 0, &[3; 4096]).expect("writes");
        pool.drain();
        pool.dsl.destroy_dataset("tank/a").expect("destroys");
        pool.drain();
        assert_eq!(pool.io.violations(), Vec::<&str>::new());
    }
}

/// Pools before version 26 have no list of blocks to free, and one list of dead blocks where later ones have many: they are read.
#[test]
fn a_pool_of_before_deadlists_is_read() {
    let pool = TestPool::create(12);
    pool.dsl.create_dataset("tank/a", filesystem()).expect("creates");
    write(&pool, "tank/a", 0, 0, &[1; 9000]).expect("writes");
    pool.dsl.snapshot(&["tank/a@1".to_string()], Vec::new()).expect("snapshots");
    let change = |dsl: &Arc<DslPool>, (), tx: &Tx| {
        let (meta, head) = (&dsl.tree.meta, dsl.tree.find("tank/a")?);
        let list = meta.bpobj_alloc(tx)?;
        head.update(tx, |phys| phys.ds_deadlist_obj = list)?;
        meta.directory()?.remove("free_bpobj", tx)?;
        let children = meta.zap(dsl.tree.find_dir("tank")?.phys().dd_child_dir_zapobj)?;
        Ok(children.remove("$FREE", tx)?)
    };
    pool.dsl.sync_task(|_, _| Ok(()), change).expect("made old");
    let pool = pool.reopen_read_only();
    assert_eq!(pool.dsl.children("tank").expect("lists"), ["a"]);
    assert_eq!(pool.dsl.snapshots("tank/a").expect("lists").len(), 1);
    assert_eq!((pool.dsl.freeing_bytes(), pool.dsl.has_frees()), (0, false));
    let space = pool.dsl.hold("tank/a").expect("held").space();
    assert!(space.referenced >= 9000 && space.written == 0, "{space:?}");
}

/// If this fails, one dataset of a hostile pool, with a name that no verb takes, makes every listing of the pool fail.
#[test]
fn children_with_names_that_no_dataset_may_have_are_left_out() {
    let pool = TestPool::create(13);
    for name in ["tank/a", "tank/b"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    let change = |dsl: &Arc<DslPool>, (), tx: &Tx| {
        let children = dsl.tree.meta.zap(dsl.tree.find_dir("tank")?.phys().dd_child_dir_zapobj)?;
        let object = dsl.tree.find_dir("tank/a")?.object;
        children.remove("a", tx)?;
        Ok(children.add_u64("../a\n/x", object, tx)?)
    };
    pool.dsl.sync_task(|_, _| Ok(()), change).expect("renamed");
    let pool = pool.reopen();
    assert_eq!(pool.dsl.children("tank").expect("lists"), ["b"]);
}
