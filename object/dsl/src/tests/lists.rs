//! Lists of block pointers beside a model of them: what is put on, merged, taken off and freed, its sums, and what of it is on disk.

use super::Services;
use crate::DslError;
use crate::bpobj::Bpobj;
use crate::features::EMPTY_BPOBJ;
use crate::meta::{Meta, POOL_DIRECTORY, Usage, usage};
use dmu::testing::{MemBlockIo, TestPool, verify_tree};
use dmu::{NewObject, Objset, ObjsetProps, Tx};
use ondisk::{BlockPtr, Checksum, Compression, Dva, ObjectId, ObjectType, ObjsetType, Txg, VdevId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pointers in a list's block, which is how many a list may have to be copied when it is merged.
const COPIED_MAX: usize = 1024;
/// References in a block, which is how many a list may have to have them moved.
pub(super) const MOVED_MAX: usize = 16384;
/// Bonus bytes of the lists that are made today.
pub(super) const BONUS_BYTES: usize = 48;

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A list as it should be: its own pointers, and the lists that it references.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Node {
    pub(super) own: Vec<BlockPtr>,
    pub(super) subs: Vec<Node>,
}

impl Node {
    pub(super) fn of(own: &[BlockPtr]) -> Node {
        Node { own: own.iter().map(kept).collect(), subs: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.subs.is_empty()
    }

    /// All pointers in the order in which they are taken off.
    pub(super) fn all(&self) -> Vec<BlockPtr> {
        self.clone().take(usize::MAX)
    }

    /// Takes pointers off the end, then off the last list of all; empty lists go.
    fn take(&mut self, most: usize) -> Vec<BlockPtr> {
        let mut taken = Vec::new();
        while taken.len() < most {
            if let Some(pointer) = self.own.pop() {
                taken.push(pointer);
                continue;
            }
            let Some(last) = self.subs.last_mut() else { break };
            taken.extend(last.take(most - taken.len()));
            if last.is_empty() {
                self.subs.pop();
            }
        }
        taken
    }

    /// Merges a list: a small one is copied, the rest referenced.
    fn merge(&mut self, mut from: Node) {
        if from.is_empty() {
            return;
        }
        let is_moved = from.subs.len() <= MOVED_MAX;
        if is_moved {
            self.subs.append(&mut from.subs);
        }
        if is_moved && from.own.len() <= COPIED_MAX {
            self.own.append(&mut from.own);
        } else {
            self.subs.push(from);
        }
    }
}

/// A pointer as OpenZFS keeps it in lists: without its payload, its fill, and without its checksum where dedup does not need it.
fn kept(bp: &BlockPtr) -> BlockPtr {
    let mut words = [0; 16];
    for (index, word) in bp.0.iter().enumerate() {
        let is_checksum = index >= 12;
        let stays = match bp.is_embedded() {
            true => index == 6 || index == 10,
            false => index != 11 && (bp.is_dedup() || !is_checksum),
        };
        words[index] = if stays { *word } else { 0 };
    }
    BlockPtr(words)
}

/// An object set with lists and nothing else, synced by hand.
pub(super) struct Lists {
    pub(super) io: Arc<MemBlockIo>,
    pub(super) services: Arc<Services>,
    pub(super) meta: Meta,
    pub(super) random: Random,
    txg: u64,
    made: u64,
}

impl Lists {
    pub(super) fn create(seed: u64, without: &'static [&'static str]) -> Lists {
        let io = MemBlockIo::inline(seed);
        io.set_caching(false);
        let services = Services::new(without);
        let tx = Tx::syncing(Txg::INITIAL);
        let objset = Objset::create(TestPool::env(&io), ObjsetType::META, ObjsetProps::mos(), &tx).expect("an object set");
        let directory =
            zap::CreateOptions { claim: Some(ObjectId(POOL_DIRECTORY)), ..zap::CreateOptions::new(ObjectType::OBJECT_DIRECTORY) };
        zap::create_with(&objset, directory, &tx).expect("a directory");
        let meta = Meta::new(objset, services.clone());
        Lists { io, services, meta, random: Random(seed), txg: Txg::INITIAL.0, made: 0 }
    }

    pub(super) fn tx(&self) -> Tx {
        Tx::syncing(Txg(self.txg))
    }

    /// Syncs, and forgets all that is in memory.
    pub(super) fn reopen(&mut self) {
        self.meta.objset.sync(Txg(self.txg)).expect("syncs");
        self.io.commit(Txg(self.txg));
        self.txg += 1;
        self.crash();
    }

    /// Forgets all that is in memory: the lists are those of the last sync.
    pub(super) fn crash(&mut self) {
        self.io.crash(Txg(self.txg));
        let objset = Objset::open(TestPool::env(&self.io), self.meta.objset.root_bp(), ObjsetProps::mos()).expect("opens");
        self.meta = Meta::new(objset, self.services.clone());
        self.meta.load_empty_bpobj().expect("looks");
    }

    /// Pointers of all kinds, no two alike.
    pub(super) fn pointers(&mut self, count: usize) -> Vec<BlockPtr> {
        (0..count).map(|_| self.pointer()).collect()
    }

    fn pointer(&mut self) -> BlockPtr {
        self.made += 1;
        let kind = self.random.pick(&[ObjectType::PLAIN_FILE_CONTENTS, ObjectType::DIRECTORY_CONTENTS]);
        let birth = Txg(self.made);
        if self.random.below(4) == 0 {
            return BlockPtr::embedded(&[7; 100], 512 << self.random.below(4), Compression::LZ4, kind, 0, birth);
        }
        let mut bp = BlockPtr::HOLE;
        let asize = 4096 << self.random.below(3);
        for copy in 0..1 + self.random.below(3) {
            bp.set_dva(copy, Dva { vdev: VdevId(copy as u32), offset: self.made << 20, asize, gang: false });
        }
        bp.set_psize(asize as usize);
        bp.set_lsize(asize as usize * 2);
        bp.set_compression(Compression::LZ4);
        bp.set_checksum_kind(Checksum::SHA256);
        bp.set_object_type(kind);
        bp.set_level(self.random.below(2) as u8);
        bp.set_little_endian(true);
        bp.set_birth(birth, Txg(self.made + self.random.below(2) as u64));
        bp.set_fill(3);
        bp.set_checksum([1, 2, 3, self.made]);
        if self.random.below(4) == 0 {
            bp.0[6] |= 1 << 62;
        }
        bp
    }

    /// Sums as far as the record of a list has room for them.
    fn sum_in(&self, object: u64, node: &Node) -> Usage {
        let bonus_len = self.meta.hold(object).and_then(|dnode| Ok(dnode.info()?.bonus_len)).expect("known");
        let sum = self.sum(node);
        if bonus_len <= 16 { Usage { comp: 0, uncomp: 0, ..sum } } else { sum }
    }

    fn sum(&self, node: &Node) -> Usage {
        let io: Arc<dyn dmu::BlockIo> = Arc::new(self.io.clone());
        node.all().iter().fold(Usage::default(), |sum, bp| sum + usage(&*io, bp))
    }

    pub(super) fn enqueue(&self, object: u64, pointers: &[BlockPtr]) {
        let mut list = Bpobj::open(&self.meta, object).expect("opens");
        list.enqueue(&self.meta, pointers, &self.tx()).expect("enqueues");
    }

    /// A list of today with these pointers on it.
    pub(super) fn list(&self, pointers: &[BlockPtr]) -> u64 {
        let object = self.meta.bpobj_alloc(&self.tx()).expect("a list");
        self.enqueue(object, pointers);
        object
    }

    /// A list with a bonus of these words, as other software may have made it; its blocks take four pointers and 64 references.
    pub(super) fn crafted(&self, own: &[BlockPtr], subs: &[u64], bonus_len: usize) -> u64 {
        let tx = self.tx();
        let new = |kind| NewObject { block_size: 512, ..NewObject::new(kind) };
        let with_bonus = NewObject { bonus_type: ObjectType::BPOBJ_HDR, bonus_len, ..new(ObjectType::BPOBJ) };
        let dnode = self.meta.allocate(with_bonus, &tx).expect("a list");
        self.enqueue(dnode.object().0, own);
        if !subs.is_empty() {
            let array = self.meta.allocate(new(ObjectType::BPOBJ_SUBOBJ), &tx).expect("an array");
            let raw: Vec<u8> = subs.iter().flat_map(|sub| sub.to_le_bytes()).collect();
            array.write(0, &raw, &tx).expect("writes");
            self.set_word(dnode.object().0, 4, array.object().0);
            self.set_word(dnode.object().0, 5, subs.len() as u64);
            for sub in subs {
                let Ok(sub) = Bpobj::open(&self.meta, *sub) else { continue };
                if sub.usage().is_zero() {
                    continue;
                }
                (1..=3).zip([sub.phys.bpo_bytes, sub.phys.bpo_comp, sub.phys.bpo_uncomp]).for_each(|(index, bytes)| {
                    let before = self.word(dnode.object().0, index);
                    self.set_word(dnode.object().0, index, before + bytes);
                });
            }
        }
        dnode.object().0
    }

    /// Puts what is made next into another block of dnodes: one that cannot be read costs that alone.
    pub(super) fn set_apart(&self) {
        self.meta.allocate(NewObject { slots: 32, ..NewObject::new(ObjectType::UINT64_OTHER) }, &self.tx()).expect("a filler");
    }

    pub(super) fn word(&self, object: u64, index: usize) -> u64 {
        let bonus = self.meta.hold(object).and_then(|dnode| Ok(dnode.bonus()?)).expect("a bonus");
        bonus.get(index * 8..index * 8 + 8).map_or(0, |raw| u64::from_le_bytes(raw.try_into().expect("a word")))
    }

    pub(super) fn set_word(&self, object: u64, index: usize, value: u64) {
        let dnode = self.meta.hold(object).expect("held");
        let mut bonus = dnode.bonus().expect("a bonus").to_vec();
        bonus[index * 8..index * 8 + 8].copy_from_slice(&value.to_le_bytes());
        dnode.set_bonus(&bonus, &self.tx()).expect("set");
    }

    /// Bytes of an object up to its end, all after it freed.
    fn bytes(&self, object: u64, length: u64) -> Vec<u8> {
        let dnode = self.meta.hold(object).expect("held");
        let whole = length.next_multiple_of(dnode.info().expect("known").block_size as u64);
        let mut raw = vec![0; whole as usize];
        dnode.read(0, &mut raw).expect("reads");
        assert!(raw[length as usize..].iter().all(|byte| *byte == 0), "object {object} has rests after {length} bytes");
        assert_eq!(dnode.next_data(whole).expect("looks"), None, "object {object} keeps blocks after {length} bytes");
        raw.truncate(length as usize);
        raw
    }

    /// The list as it is on disk, with whatever it references; `seen` gets all its objects.
    pub(super) fn look(&self, object: u64, seen: &mut BTreeSet<u64>) -> Node {
        assert!(seen.insert(object), "object {object} is in two places");
        let [count, bytes, comp, uncomp, array, subs] = [0, 1, 2, 3, 4, 5].map(|index| self.word(object, index));
        let own = self.bytes(object, count * 128).as_chunks::<128>().0.iter().map(|raw| BlockPtr::decode(raw, true)).collect();
        let mut node = Node { own, subs: Vec::new() };
        assert_eq!(array == 0, subs == 0, "an array of references for {subs} lists");
        if array != 0 {
            seen.insert(array);
            let words = self.bytes(array, subs * 8);
            let lists = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            node.subs = lists.map(|list| self.look(list, seen)).collect();
        }
        assert_eq!(Usage::new(bytes, comp, uncomp), self.sum_in(object, &node), "sums of list {object}");
        node
    }

    /// The lists are these, with nothing lost, and there is no object that is not theirs.
    pub(super) fn check(&self, roots: &[(u64, Node)]) {
        let mut seen = BTreeSet::from([POOL_DIRECTORY]);
        let shared = *self.meta.empty_bpobj.lock();
        for (object, node) in roots.iter().filter(|(object, _)| *object != shared || shared == 0) {
            let found = self.look(*object, &mut seen);
            assert!(found == *node, "list {object}: {} own, {} subs", found.own.len(), found.subs.len());
            let list = Bpobj::open(&self.meta, *object).expect("opens");
            assert_eq!((list.is_empty(), list.usage()), (node.is_empty(), self.sum_in(*object, node)));
        }
        let named = self.meta.directory().expect("opens").try_lookup_u64("empty_bpobj").expect("looks");
        assert_eq!(named.unwrap_or(0), shared, "the shared empty list is in the pool directory");
        let users = roots.iter().filter(|(object, _)| shared != 0 && *object == shared).count() as u64;
        assert_eq!(crate::PoolServices::feature_refs(&*self.services, EMPTY_BPOBJ), users, "users of the shared empty list");
        assert_eq!(shared != 0, users > 0, "the shared empty list is there while it has users");
        if shared != 0 {
            assert_eq!(self.look(shared, &mut seen), Node::default(), "the shared list is empty");
        }
        assert_eq!(self.objects(), seen, "objects");
    }

    /// All objects but fillers.
    pub(super) fn objects(&self) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut at = ObjectId(0);
        while let Some(next) = self.meta.objset.next_object(at).expect("walks") {
            at = next;
            if self.meta.hold(at.0).and_then(|dnode| Ok(dnode.info()?.kind)).expect("known") != ObjectType::UINT64_OTHER {
                found.insert(at.0);
            }
        }
        found
    }

    /// Takes at most so many pointers off; what it gave, and how many it said.
    pub(super) fn drain(&self, object: u64, most: u64) -> (Vec<BlockPtr>, Result<u64, DslError>) {
        let mut given = Vec::new();
        let said = self.meta.bpobj_drain(object, most, &self.tx(), |bp| {
            given.push(*bp);
            Ok(())
        });
        (given, said)
    }

    pub(super) fn merge(&self, into: u64, from: u64) -> Result<(), DslError> {
        self.meta.bpobj_enqueue_subobj(into, from, &self.tx())
    }

    /// Empties a list and frees it.
    pub(super) fn finish(&mut self, object: u64) -> Vec<BlockPtr> {
        let (given, said) = self.drain(object, u64::MAX);
        assert_eq!(said, Ok(given.len() as u64));
        self.meta.bpobj_release(object, &self.tx()).expect("frees");
        self.reopen();
        assert_eq!(self.objects(), BTreeSet::from([POOL_DIRECTORY]), "nothing is left");
        assert_eq!(verify_tree(&self.io, self.meta.objset.root_bp()), Ok(()));
        given
    }
}

/// One random change of the lists and of the model.
fn step(lists: &mut Lists, roots: &mut Vec<(u64, Node)>) {
    let tx = lists.tx();
    let at = lists.random.below(roots.len().max(1));
    match lists.random.below(10) {
        _ if roots.is_empty() => roots.push((lists.meta.bpobj_alloc_empty(&tx).expect("a list"), Node::default())),
        0 if roots.len() < 6 => roots.push((lists.meta.bpobj_alloc_empty(&tx).expect("a list"), Node::default())),
        1 if roots.len() < 6 => roots.push((lists.meta.bpobj_alloc(&tx).expect("a list"), Node::default())),
        0..=4 => {
            let count = lists.random.pick(&[0, 1, 7, 300, COPIED_MAX - 1, COPIED_MAX, COPIED_MAX + 1]);
            let pointers = lists.pointers(count);
            if lists.meta.is_empty_bpobj(roots[at].0) {
                lists.meta.bpobj_release_empty(&tx).expect("given up");
                roots[at].0 = lists.meta.bpobj_alloc(&tx).expect("a list");
            }
            lists.enqueue(roots[at].0, &pointers);
            roots[at].1.own.extend(pointers.iter().map(kept));
        }
        5 | 6 if roots.len() > 1 && !lists.meta.is_empty_bpobj(roots[0].0) => {
            let (from, model) = roots.remove(1.max(at));
            lists.merge(roots[0].0, from).expect("merges");
            roots[0].1.merge(model);
            let places = roots.len();
            roots.swap(0, lists.random.below(places));
        }
        7 | 8 if !lists.meta.is_empty_bpobj(roots[at].0) => {
            let most = lists.random.pick(&[0, 1, 5, 1000, COPIED_MAX, 2500]);
            let taken = roots[at].1.take(most);
            assert_eq!(lists.drain(roots[at].0, most as u64), (taken.clone(), Ok(taken.len() as u64)), "at most {most} of list {at}");
        }
        9 if lists.random.below(3) == 0 => {
            lists.meta.bpobj_release(roots.swap_remove(at).0, &tx).expect("released");
        }
        _ => lists.reopen(),
    }
}

/// If this fails, blocks that were destroyed are freed twice, or never, or `used` is not what they took.
#[test]
fn lists_hold_what_was_put_on_them() {
    for seed in 0..4 {
        let without: &'static [&'static str] = if seed == 3 { &[EMPTY_BPOBJ] } else { &[] };
        let mut lists = Lists::create(seed, without);
        let mut roots = Vec::new();
        for _ in 0..60 {
            step(&mut lists, &mut roots);
            lists.check(&roots);
        }
        lists.reopen();
        lists.check(&roots);
        assert_eq!(verify_tree(&lists.io, lists.meta.objset.root_bp()), Ok(()), "blocks of the lists themselves");
        for (object, _) in std::mem::take(&mut roots) {
            lists.meta.bpobj_release(object, &lists.tx()).expect("released");
        }
        lists.check(&roots);
        lists.reopen();
        assert_eq!(verify_tree(&lists.io, lists.meta.objset.root_bp()), Ok(()), "blocks of the lists themselves");
    }
}

/// If this fails, OpenZFS does not take the lists for lists, or lists of millions of blocks are written 512 bytes at a time.
#[test]
fn lists_are_objects_as_openzfs_makes_them() {
    let mut lists = Lists::create(5, &[]);
    let (own, more) = (lists.pointers(2), lists.pointers(COPIED_MAX + 1));
    let list = lists.list(&own);
    lists.merge(list, lists.list(&more)).expect("merges");
    lists.reopen();
    let info = |object| lists.meta.hold(object).expect("held").info().expect("known");
    let found = info(list);
    assert_eq!((found.kind, found.bonus_type, found.bonus_len), (ObjectType::BPOBJ, ObjectType::BPOBJ_HDR, BONUS_BYTES));
    assert_eq!(found.block_size, 128 << 10);
    let array = info(lists.word(list, 4));
    assert_eq!((array.kind, array.block_size), (ObjectType::BPOBJ_SUBOBJ, 128 << 10));
}

/// Pools of before version 21 and 26 have shorter records, livelists longer ones. If this fails, sums are written over what is
/// no record's, or lists are referenced by ones that have no room for that, so that their blocks leak.
#[test]
fn lists_of_all_ages_are_used_as_they_are() {
    for bonus_len in [16, 32, 48, 56] {
        let mut lists = Lists::create(6, &[]);
        let own = lists.pointers(9);
        let object = lists.crafted(&own[..5], &[], bonus_len);
        if bonus_len > 48 {
            lists.set_word(object, 6, 77);
        }
        let mut list = Bpobj::open(&lists.meta, object).expect("opens");
        list.enqueue(&lists.meta, &own[5..], &lists.tx()).expect("enqueues");
        let sum = lists.sum_in(object, &Node::of(&own));
        assert_eq!((list.usage(), list.has_subobjs()), (sum, bonus_len >= 48), "{bonus_len} bytes");
        lists.reopen();
        lists.check(&[(object, Node::of(&own))]);
        assert_eq!(lists.word(object, 6), if bonus_len > 48 { 77 } else { 0 }, "what belongs to others stays");
        let other = lists.pointers(3);
        let from = lists.list(&other);
        let merged = lists.merge(object, from);
        let mut model = Node::of(&own);
        if bonus_len < 48 {
            assert_eq!(merged, Err(DslError::Unsupported));
            lists.check(&[(object, model.clone()), (from, Node::of(&other))]);
            lists.meta.bpobj_release(from, &lists.tx()).expect("released");
        } else {
            merged.expect("merges");
            model.merge(Node::of(&other));
        }
        lists.reopen();
        assert_eq!(lists.drain(object, 4), (model.take(4), Ok(4)));
        lists.check(&[(object, model.clone())]);
        assert_eq!(lists.finish(object), model.all());
    }
}

/// If this fails, every txg of an idle pool writes.
#[test]
fn nothing_to_do_is_nothing_to_write() {
    let mut lists = Lists::create(7, &[]);
    let object = lists.list(&[]);
    lists.reopen();
    lists.enqueue(object, &[]);
    assert_eq!(lists.drain(object, 100), (Vec::new(), Ok(0)));
    assert!(!lists.meta.objset.is_dirty(lists.tx().txg()));
}

/// The limits of what is copied and moved: references of more lists than a block has stay where they are. If this fails, one merge
/// takes a txg minutes, or lists get lost in it.
#[test]
fn many_references_stay_together() {
    for count in [MOVED_MAX, MOVED_MAX + 1] {
        let mut lists = Lists::create(8, &[]);
        let own = lists.pointers(3);
        let empty = lists.crafted(&[], &[], BONUS_BYTES);
        let from = lists.crafted(&own, &vec![empty; count], BONUS_BYTES);
        let into = lists.crafted(&[], &[], BONUS_BYTES);
        lists.merge(into, from).expect("merges");
        let moved = count == MOVED_MAX;
        let (subs, array) = (lists.word(into, 5), lists.word(into, 4));
        assert_eq!((subs, lists.word(into, 0)), if moved { (count as u64, 3) } else { (1, 0) });
        let words = lists.bytes(array, subs * 8);
        let expected = if moved { empty } else { from };
        assert!(words.as_chunks::<8>().0.iter().all(|word| u64::from_le_bytes(*word) == expected), "{count} references");
        assert_eq!(lists.objects().contains(&from), !moved);
        if !moved {
            assert_eq!((lists.word(from, 5), lists.word(from, 0)), (count as u64, 3));
        }
    }
}
