//! Lists of block pointers that are damaged or cannot be read: what that costs is the space of what was there, and nothing else.

use super::lists::{BONUS_BYTES, Lists, Node};
use crate::DslError;
use crate::bpobj::Bpobj;
use crate::meta::POOL_DIRECTORY;
use crate::traverse::Walk;
use dmu::BlockError;
use ondisk::{BlockPtr, ObjectType};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pointers in a block of a crafted list.
const PER_BLOCK: usize = 4;
/// References in a block of one.
const SUBS_PER_BLOCK: usize = 64;

/// Makes crafted lists on disk from the model, each in a block of dnodes of its own; gives the first.
fn make(lists: &Lists, own: &[BlockPtr], subs: &[u64]) -> u64 {
    lists.set_apart();
    lists.crafted(own, subs, BONUS_BYTES)
}

/// A list of 5 pointers and two lists, one of 6, the other of 2 and a list of 3, and a list of 2 and one more of 1; in that order.
fn family(lists: &mut Lists) -> [(u64, Node); 2] {
    let own: Vec<Vec<BlockPtr>> = [5, 6, 2, 3, 2, 1].iter().map(|count| lists.pointers(*count)).collect();
    let inner = make(lists, &own[3], &[]);
    let subs = [make(lists, &own[1], &[]), make(lists, &own[2], &[inner])];
    let from = make(lists, &own[0], &subs);
    let sub = make(lists, &own[5], &[]);
    let into = make(lists, &own[4], &[sub]);
    let node = |index: usize, subs: Vec<Node>| Node { subs, ..Node::of(&own[index]) };
    let second = node(2, vec![node(3, Vec::new())]);
    let models = (node(0, vec![node(1, Vec::new()), second]), node(4, vec![node(5, Vec::new())]));
    lists.reopen();
    [(from, models.0), (into, models.1)]
}

fn births(pointers: &[BlockPtr]) -> BTreeSet<u64> {
    let found: BTreeSet<u64> = pointers.iter().map(|bp| bp.birth().0).collect();
    assert_eq!(found.len(), pointers.len(), "no pointer twice");
    found
}

/// Does something on a family of lists for each of its reads, which fails with `error`; `act` heals, and gives the reads until then.
fn each_read_fails(error: BlockError, mut act: impl FnMut(&mut Lists, [(u64, Node); 2]) -> u64) {
    for read in 1.. {
        let mut lists = Lists::create(read, &[]);
        let family = family(&mut lists);
        lists.io.fail_with(error);
        let at = lists.io.operations() + read;
        lists.io.fail_after(read, false);
        if act(&mut lists, family) < at {
            assert!(read > 5, "the test must let reads fail");
            return;
        }
    }
}

/// If this fails, a bad sector in a list of dead blocks stops the pool while a snapshot is destroyed, or loses lists that can be read.
#[test]
fn merging_loses_nothing_that_cannot_be_read_now() {
    each_read_fails(BlockError::Io, |lists, [(from, model), (into, into_model)]| {
        let merged = lists.merge(into, from);
        let reads = lists.io.operations();
        lists.io.heal();
        if let Err(error) = merged {
            assert_eq!(error, DslError::Dmu(BlockError::Io.into()));
            // Such a txg is never on disk.
            lists.crash();
            lists.check(&[(from, model.clone()), (into, into_model.clone())]);
            return reads;
        }
        let mut seen = BTreeSet::from([POOL_DIRECTORY]);
        let found = births(&lists.look(into, &mut seen).all());
        assert_eq!(found, &births(&model.all()) | &births(&into_model.all()));
        assert_eq!(lists.objects(), seen, "no object is nobody's");
        lists.reopen();
        assert_eq!(births(&lists.finish(into)), found);
        reads
    });
}

/// A list that is damaged for good is passed on as it is.
#[test]
fn a_list_with_a_damaged_one_is_referenced() {
    let mut lists = Lists::create(1, &[]);
    let own: Vec<Vec<BlockPtr>> = [3, 2, 1].iter().map(|count| lists.pointers(*count)).collect();
    let (good, bad) = (lists.crafted(&own[0], &[], BONUS_BYTES), lists.crafted(&own[1], &[], BONUS_BYTES));
    let from = lists.crafted(&own[2], &[good, bad], BONUS_BYTES);
    let into = lists.crafted(&[], &[], BONUS_BYTES);
    lists.set_word(bad, 0, 1 << 40);
    lists.reopen();
    assert_eq!(lists.merge(into, from), Ok(()));
    assert_eq!((lists.word(into, 0), lists.word(into, 5), lists.word(from, 5)), (0, 1, 2));
    lists.set_word(bad, 0, 2);
    let model = Node { own: Vec::new(), subs: vec![Node { subs: vec![Node::of(&own[0]), Node::of(&own[1])], ..Node::of(&own[2]) }] };
    lists.check(&[(into, model.clone())]);
    assert_eq!(lists.finish(into), model.all());
}

/// Pieces, each of which one read can cost: a block of pointers, a list, or all references of one.
fn units(node: &Node, into: &mut Vec<BTreeSet<u64>>) {
    into.extend(node.own.chunks(PER_BLOCK).map(births));
    into.extend(node.subs.iter().map(|sub| births(&sub.all())));
    into.push(births(&node.subs.iter().flat_map(Node::all).collect::<Vec<_>>()));
    node.subs.iter().for_each(|sub| units(sub, into));
}

/// If this fails, a bad sector in a list of blocks to free stops the pool for good, since no txg can be synced, or has blocks freed
/// twice, or leaks more than what the sector told.
#[test]
fn draining_loses_what_cannot_be_read_and_no_more() {
    let mut kinds = BTreeSet::new();
    each_read_fails(BlockError::Io, |lists, [(object, model), (other, _)]| {
        let mut given = Vec::new();
        for _ in 0..40 {
            let (more, said) = lists.drain(object, 3);
            assert!(said.expect("drains") <= 3 && more.len() <= 3);
            given.extend(more);
        }
        let reads = lists.io.operations();
        lists.io.heal();
        let list = Bpobj::open(&lists.meta, object).expect("opens");
        assert!(list.is_empty() && list.usage().is_zero(), "{} pointers, {:?}", list.phys.bpo_num_blkptrs, list.usage());
        let lost: BTreeSet<u64> = &births(&model.all()) - &births(&given);
        assert_eq!(births(&model.all()).len(), given.len() + lost.len(), "no other's");
        let mut possible = Vec::new();
        units(&model, &mut possible);
        assert!(lost.is_empty() || possible.iter().any(|unit| lost.is_subset(unit)), "lost {lost:?}");
        kinds.insert(lost);
        lists.meta.bpobj_release(other, &lists.tx()).expect("released");
        lists.meta.bpobj_release(object, &lists.tx()).expect("released");
        lists.reopen();
        assert_eq!(dmu::testing::verify_tree(&lists.io, lists.meta.objset.root_bp()), Ok(()));
        reads
    });
    assert!(kinds.len() > 6, "{kinds:?}");
}

/// If this fails, blocks leak whenever the devices of a pool were away for a moment.
#[test]
fn a_pool_that_is_suspended_loses_nothing() {
    each_read_fails(BlockError::Suspended, |lists, [(object, model), (other, other_model)]| {
        let at = lists.io.operations();
        let (given, said) = lists.drain(object, 12);
        let reads = lists.io.operations();
        lists.io.heal();
        if said.is_ok() {
            assert_eq!(given, model.all()[..12]);
            return reads;
        }
        assert_eq!(said, Err(DslError::Dmu(BlockError::Suspended.into())), "after {} reads", reads - at);
        lists.crash();
        lists.check(&[(object, model.clone()), (other, other_model)]);
        assert_eq!(lists.drain(object, u64::MAX).0, model.all());
        reads
    });
}

/// Makes the block of a crafted list that begins with this pointer unreadable, for good.
fn lose_block(lists: &Lists, first: &BlockPtr) {
    let io: Arc<dyn dmu::BlockIo> = Arc::new(lists.io.clone());
    let mut found = Vec::new();
    let visit = &mut |bp: &BlockPtr| {
        let holds_it = || lists.io.block(bp.dva(0).offset).is_some_and(|block| block.data.to_vec()[..128] == first.encode());
        if bp.level() == 0 && bp.object_type() == ObjectType::BPOBJ && holds_it() {
            found.push(*bp);
        }
        Ok(())
    };
    Walk::all(&*io, 0, &lists.meta.objset.root_bp(), 0).run(visit).expect("walks");
    assert_eq!(found.len(), 1, "one block begins with it");
    lists.io.corrupt(&found[0]);
}

/// Whatever is asked for at once, exactly the pointers of the lost block that were not taken before are lost.
#[test]
fn a_lost_block_of_pointers_costs_those_in_it() {
    for block in 0..3 {
        for most in 1..=11 {
            let mut lists = Lists::create(2, &[]);
            let own = lists.pointers(11);
            let object = lists.crafted(&own, &[], BONUS_BYTES);
            let model = Node::of(&own).own;
            lists.reopen();
            lose_block(&lists, &model[block * PER_BLOCK]);
            let (mut left, lost) = (11, block * PER_BLOCK..(block + 1) * PER_BLOCK);
            while left > 0 {
                let end = left;
                left -= left.min(most);
                let asked = end - left;
                let expected: Vec<BlockPtr> = (left..end).rev().filter(|index| !lost.contains(index)).map(|index| model[index]).collect();
                // A part of it cannot be kept.
                if lost.contains(&left) {
                    left = lost.start;
                }
                assert_eq!(lists.drain(object, most as u64), (expected, Ok(asked as u64)), "block {block} lost, {most} of {end}");
                assert_eq!(lists.word(object, 0), left as u64);
            }
            assert_eq!([1, 2, 3].map(|index| lists.word(object, index)), [0; 3], "nothing is counted that is not there");
            assert_eq!(lists.finish(object), []);
        }
    }
}

/// Numbers that cannot be are refused, those at their limits taken.
#[test]
fn lists_claim_no_more_than_they_have() {
    let mut lists = Lists::create(3, &[]);
    let own = lists.pointers(PER_BLOCK + SUBS_PER_BLOCK);
    let subs: Vec<u64> = own[PER_BLOCK..].iter().map(|bp| lists.crafted(&[*bp], &[], BONUS_BYTES)).collect();
    let object = lists.crafted(&own[..PER_BLOCK], &subs, BONUS_BYTES);
    let into = lists.crafted(&[], &[], BONUS_BYTES);
    lists.reopen();
    lists.set_word(object, 0, PER_BLOCK as u64 + 1);
    assert!(matches!(Bpobj::open(&lists.meta, object), Err(DslError::Corrupt { .. })));
    assert!(matches!(lists.meta.bpobj_free(object, &lists.tx()), Err(DslError::Corrupt { .. })));
    lists.set_word(object, 0, PER_BLOCK as u64);
    lists.set_word(object, 5, SUBS_PER_BLOCK as u64 + 1);
    assert!(matches!(lists.meta.bpobj_free(object, &lists.tx()), Err(DslError::Corrupt { .. })));
    let before = lists.objects();
    assert_eq!(lists.drain(object, u64::MAX), (Node::of(&own[..PER_BLOCK]).all(), Ok(PER_BLOCK as u64)), "references are lost");
    assert_eq!((lists.word(object, 4), lists.word(object, 5), lists.word(object, 1)), (0, 0, 0));
    assert_eq!((&before - &lists.objects()).len(), 1, "the array of references is gone, the lists leak");
    lists.crash();
    let model = Node { subs: own[PER_BLOCK..].iter().map(|bp| Node::of(&[*bp])).collect(), ..Node::of(&own[..PER_BLOCK]) };
    assert_eq!(lists.merge(into, object), Ok(()));
    lists.check(&[(into, model.clone())]);
    assert_eq!(lists.finish(into), model.all());
}

/// References to nothing, to what is no list, to the list itself: each costs what it led to, and counts as work that was done.
#[test]
fn references_that_lead_nowhere_are_given_up() {
    let mut lists = Lists::create(4, &[]);
    let own = lists.pointers(6);
    let good = |lists: &Lists| lists.crafted(&own[3..], &[], BONUS_BYTES);
    let (first, rest) = (Node::of(&own[..3]).all(), Node::of(&own[3..]).all());
    // No array at all: nothing is referenced.
    let object = lists.crafted(&own[..3], &[], BONUS_BYTES);
    lists.set_word(object, 5, 7);
    let into = lists.crafted(&[], &[], BONUS_BYTES);
    lists.merge(into, object).expect("merges");
    lists.check(&[(into, Node::of(&own[..3]))]);
    lists.set_word(into, 5, 7);
    assert_eq!(lists.drain(into, 100), (first.clone(), Ok(3)));
    assert_eq!(lists.finish(into), []);
    // Not a list, twice, before one that is: a txg does no more than it may.
    let object = lists.crafted(&own[..3], &[good(&lists), POOL_DIRECTORY, 99_999], BONUS_BYTES);
    assert_eq!(lists.drain(object, 2), (first[..2].to_vec(), Ok(2)));
    assert_eq!(lists.drain(object, 2), (first[2..].to_vec(), Ok(2)));
    assert_eq!(lists.drain(object, 1), (Vec::new(), Ok(1)));
    assert_eq!(lists.word(object, 5), 1);
    assert_eq!(lists.finish(object), rest);
    // The last one, by a txg that did all it may: nothing is counted any more.
    let object = lists.crafted(&own[..3], &[POOL_DIRECTORY], BONUS_BYTES);
    lists.set_word(object, 1, 1 << 30);
    assert_eq!(lists.drain(object, 4), (first.clone(), Ok(4)));
    lists.check(&[(object, Node::default())]);
    assert_eq!(lists.finish(object), []);
    // Object 0: whoever wrote that knew nothing of the others.
    let kept = good(&lists);
    let object = lists.crafted(&own[..3], &[kept, 0], BONUS_BYTES);
    assert_eq!(lists.drain(object, 100), (first.clone(), Ok(3)));
    lists.meta.bpobj_release(kept, &lists.tx()).expect("released");
    assert_eq!(lists.finish(object), []);
    // Lists that are in themselves.
    let inner = lists.crafted(&own[3..], &[0], BONUS_BYTES);
    let object = lists.crafted(&own[..3], &[inner], BONUS_BYTES);
    let array = lists.word(inner, 4);
    let reference = |to: u64| {
        let array = lists.meta.hold(array).expect("held");
        array.write(0, &to.to_le_bytes(), &lists.tx()).expect("writes");
    };
    reference(object);
    assert_eq!(lists.drain(object, 100), ([first, rest].concat(), Ok(7)));
    assert_eq!(lists.finish(object), []);
}

/// Lists may nest in lists 1024 times; what is deeper is given up, before it fills the memory.
#[test]
fn lists_nest_as_deep_as_they_may() {
    for more in [0, 1] {
        let mut lists = Lists::create(5, &[]);
        let own = lists.pointers(3);
        let mut object = lists.crafted(&own[..1], &[], BONUS_BYTES);
        let deepest = object;
        object = lists.crafted(&own[1..2], &[object], BONUS_BYTES);
        for _ in 0..1022 + more {
            object = lists.crafted(&[], &[object], BONUS_BYTES);
        }
        object = lists.crafted(&own[2..], &[object], BONUS_BYTES);
        assert_eq!(lists.drain(object, 100), (Node::of(&own[more..]).all(), Ok(3)), "1025 lists and {more} more");
        if more > 0 {
            lists.meta.bpobj_release(deepest, &lists.tx()).expect("it is there still");
        }
        assert_eq!(lists.finish(object), []);
    }
}
