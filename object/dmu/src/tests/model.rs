//! Random programs against a model: objects as byte vectors, checked after every sync and reopen.

use crate::testing::{MemBlockIo, TestPool};
use crate::{Dnode, NewObject, ObjsetProps};
use abd::Abd;
use ondisk::{BlockId, ObjectId, ObjectType, ObjsetType};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A small generator (splitmix64), so that a seed names a program.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        // One in eight is all zeros, which becomes a hole.
        if self.below(8) == 0 {
            return vec![0; length];
        }
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// Expected contents of an object.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub block_size: usize,
    /// Bytes up to the last one written; zeros beyond.
    pub data: Vec<u8>,
    pub bonus: Vec<u8>,
    pub spill: Option<Vec<u8>>,
}

impl Model {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[offset..end].copy_from_slice(bytes);
    }
    pub(super) fn expect(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let have = self.data.get(offset..).unwrap_or_default();
        let count = have.len().min(length);
        bytes[..count].copy_from_slice(&have[..count]);
        bytes
    }
}

/// Place of the first byte that is another one.
fn first_of(have: &[u8], want: &[u8]) -> Option<usize> {
    have.iter().zip(want).position(|(have, want)| have != want)
}

/// Objects reach over this many blocks at most.
const BLOCKS: u64 = 300;

pub(super) struct Program {
    pub random: Random,
    pub models: BTreeMap<u64, Model>,
    /// Reads, as a digest of the run.
    pub digest: u64,
}

impl Program {
    pub(super) fn new(seed: u64) -> Program {
        Program { random: Random(seed), models: BTreeMap::new(), digest: 0 }
    }

    /// Makes a copy with the same objects; steps continue differently.
    pub(super) fn snapshot(&self) -> Program {
        Program { random: Random(self.random.0 ^ 1), models: self.models.clone(), digest: 0 }
    }

    fn pick(&mut self) -> Option<u64> {
        let index = self.random.below(self.models.len() as u64) as usize;
        self.models.keys().nth(index).copied()
    }

    fn create(&mut self, pool: &TestPool) {
        let tx = pool.txgs.assign(0).expect("txgs are open");
        let slots = [0, 0, 1, 2, 3, 32][self.random.below(6) as usize];
        let sizes = [512, 512, 1024, 4096, 1536];
        let block_size = sizes[self.random.below(5) as usize];
        let new = NewObject {
            block_size,
            indirect_shift: [0, 12, 12, 13][self.random.below(4) as usize],
            bonus_type: [ObjectType::SA, ObjectType::OTN_UINT64_METADATA][self.random.below(2) as usize],
            bonus_len: self.random.below(150) as usize,
            slots,
            ..NewObject::new([ObjectType::PLAIN_FILE_CONTENTS, ObjectType::ZAP_OTHER][self.random.below(2) as usize])
        };
        let dnode = match self.random.below(4) {
            0 => {
                let object = ObjectId(1 + self.random.below(200));
                match pool.objset.claim_object(object, new, &tx) {
                    Ok(dnode) => dnode,
                    Err(crate::DmuError::ObjectExists | crate::DmuError::Invalid) => return,
                    Err(error) => panic!("claim failed: {error}"),
                }
            }
            _ => pool.objset.allocate_object(new, &tx).expect("numbers do not run out"),
        };
        let model = Model { block_size, data: Vec::new(), bonus: vec![0; new.bonus_len], spill: None };
        assert!(self.models.insert(dnode.object().0, model).is_none(), "an object number is given out once");
    }

    fn data_step(&mut self, dnode: &Arc<Dnode>, pool: &TestPool, model: &mut Model) {
        let random = &mut self.random;
        let tx = pool.txgs.assign(0).expect("txgs are open");
        let size = model.block_size as u64;
        let reach = if size.is_power_of_two() { size * BLOCKS } else { size };
        let offset = random.below(reach);
        let length = (1 + random.below(size * 4)).min(reach - offset);
        match random.below(12) {
            9..=11 => {
                let offset = offset / size * size;
                let length = (length.next_multiple_of(size)).min(reach - offset);
                let bytes = random.bytes(length as usize);
                match dnode.write_direct(offset, &bytes, &tx) {
                    Ok(()) => model.write(offset as usize, &bytes),
                    Err(crate::DmuError::NotSupported) => assert!(dnode.info().expect("info").kind.is_metadata()),
                    Err(error) => panic!("write_direct failed: {error}"),
                }
            }
            0..=2 => {
                let bytes = random.bytes(length as usize);
                dnode.write(offset, &bytes, &tx).expect("write");
                model.write(offset as usize, &bytes);
            }
            3 => {
                let offset = offset / size * size;
                let length = (length.next_multiple_of(size)).min(reach - offset);
                let bytes = random.bytes(length as usize);
                let data = Abd::gang(&[Abd::from_slice(&bytes[..7]), Abd::from_slice(&bytes[7..])]);
                dnode.write_abd(offset, data, &tx).expect("write_abd");
                model.write(offset as usize, &bytes);
            }
            4 => {
                let block = offset / size;
                let fresh = random.next() as u8;
                let at = random.below(size) as usize;
                dnode.modify_block(BlockId(block), &tx, |bytes| bytes[at] = fresh).expect("modify");
                model.write(block as usize * size as usize + at, &[fresh]);
            }
            5 | 6 => {
                let length = [length, length * 8, size * 40][random.below(3) as usize];
                dnode.free_range(offset, length, &tx).expect("free");
                let end = (offset + length).min(model.data.len() as u64);
                if offset < end {
                    model.data[offset as usize..end as usize].fill(0);
                }
            }
            7 => {
                dnode.free_range(offset, u64::MAX, &tx).expect("truncate");
                model.data.truncate(offset as usize);
            }
            _ => {
                let bytes = [512, 1024, 2048, 2560][random.below(4) as usize];
                match dnode.set_block_size(bytes, &tx) {
                    Ok(()) if bytes == model.block_size => {}
                    Ok(()) => {
                        model.data.truncate(bytes);
                        model.block_size = bytes;
                    }
                    Err(crate::DmuError::NotSupported) => {}
                    Err(error) => panic!("set_block_size failed: {error}"),
                }
            }
        }
    }

    fn attribute_step(&mut self, dnode: &Arc<Dnode>, pool: &TestPool, model: &mut Model) {
        let tx = pool.txgs.assign(0).expect("txgs are open");
        match self.random.below(3) {
            0 => {
                let length = self.random.below(dnode.info().expect("info").bonus_max as u64 + 1) as usize;
                model.bonus = self.random.bytes(length);
                dnode.set_bonus(&model.bonus, &tx).expect("set_bonus");
            }
            1 => {
                let length = 512 * (1 + self.random.below(4) as usize);
                let mut bytes = self.random.bytes(length);
                bytes[0] = 1;
                match dnode.set_spill(Abd::from_slice(&bytes), &tx) {
                    Ok(()) => model.spill = Some(bytes),
                    Err(crate::DmuError::Invalid) => {}
                    Err(error) => panic!("set_spill failed: {error}"),
                }
            }
            _ => {
                dnode.remove_spill(&tx).expect("remove_spill");
                model.spill = None;
            }
        }
    }

    pub(super) fn step(&mut self, pool: &TestPool) {
        let choice = self.random.below(20);
        if choice < 2 || self.models.is_empty() {
            return self.create(pool);
        }
        let Some(object) = self.pick() else { return };
        if choice == 2 && self.models.len() > 5 {
            let tx = pool.txgs.assign(0).expect("txgs are open");
            pool.objset.free_object(ObjectId(object), &tx).expect("free_object");
            self.models.remove(&object);
            assert!(pool.objset.hold(ObjectId(object)).is_err(), "a freed object is gone at once");
            return;
        }
        let dnode = pool.objset.hold(ObjectId(object)).expect("hold");
        let Some(mut model) = self.models.remove(&object) else { return };
        if choice < 5 {
            self.attribute_step(&dnode, pool, &mut model)
        } else {
            self.data_step(&dnode, pool, &mut model)
        }
        self.models.insert(object, model);
        self.check_some(&dnode, object);
    }

    fn check_some(&mut self, dnode: &Arc<Dnode>, object: u64) {
        let model = &self.models[&object];
        let offset = self.random.below(model.data.len() as u64 + 600);
        let length = self.random.below(5000) as usize;
        let mut out = vec![0xAA; length];
        dnode.read(offset, &mut out).expect("read");
        let want = model.expect(offset as usize, length);
        let first = || first_of(&out, &want);
        assert!(out == want, "object {object}: {length} bytes at {offset} differ from {:?} on: {:?}", first(), dnode.info());
        let abd = dnode.read_abd(offset, length).expect("read_abd");
        assert_eq!(abd.to_vec(), out);
        if let Some(found) = dnode.read_at_hand(offset, length) {
            assert_eq!(found.to_vec(), out, "object {object}: what is at hand is what is read");
        }
        let mut direct = vec![0x55; length];
        dnode.read_direct_into(offset, &mut direct).expect("read_direct_into");
        assert_eq!(direct, out, "object {object}: direct and cached reads agree");
        assert_eq!(dnode.read_direct(offset, length).expect("read_direct").to_vec(), out);
        self.digest = out.iter().fold(self.digest, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        self.check_holes(dnode, offset, object);
    }

    fn check_holes(&self, dnode: &Arc<Dnode>, offset: u64, object: u64) {
        let model = &self.models[&object];
        let size = model.block_size as u64;
        let data = dnode.next_data(offset).expect("next_data");
        let end = data.unwrap_or(model.data.len() as u64).max(offset);
        let skipped = model.expect(offset as usize, (end - offset) as usize);
        assert!(abd::slice_is_zero(&skipped), "object {object}: next_data({offset}) = {data:?} skips data");
        let hole = dnode.next_hole(offset).expect("next_hole");
        assert!(hole >= offset);
        let block_end = (hole / size + 1) * size;
        let in_hole = model.expect(hole as usize, (block_end - hole) as usize);
        assert!(abd::slice_is_zero(&in_hole), "object {object}: next_hole({offset}) = {hole} has data");
    }

    pub(super) fn check_all(&self, pool: &TestPool) {
        let mut found = Vec::new();
        let mut after = ObjectId(0);
        while let Some(object) = pool.objset.next_object(after).expect("next_object") {
            found.push(object.0);
            after = object;
        }
        assert_eq!(found, self.models.keys().copied().collect::<Vec<_>>(), "the objects that exist");
        for (&object, model) in &self.models {
            let dnode = pool.objset.hold(ObjectId(object)).expect("hold");
            let mut out = vec![0; model.data.len() + 3000];
            dnode.read(0, &mut out).expect("read");
            let want = model.expect(0, out.len());
            assert!(out == want, "object {object} differs from byte {:?} on: {:?}", first_of(&out, &want), dnode.info());
            assert_eq!(*dnode.bonus().expect("bonus"), *model.bonus);
            assert_eq!(dnode.spill().expect("spill").map(|spill| spill.to_vec()), model.spill);
        }
    }
}

fn run(seed: u64, steps: u64) -> (u64, u64) {
    let io = MemBlockIo::inline(seed);
    let mut pool = TestPool::create(io, ObjsetType::ZFS, ObjsetProps::default()).expect("create");
    let mut program = Program::new(seed);
    for step in 0..steps {
        program.step(&pool);
        if program.random.below(25) == 0 {
            pool.sync().expect("sync");
            if let Err(fault) = pool.check() {
                panic!("seed {seed}, step {step}: {fault:?}");
            }
            program.check_all(&pool);
        }
        if program.random.below(150) == 0 {
            pool = pool.reopen().expect("reopen");
            if let Err(fault) = pool.check() {
                panic!("seed {seed}, step {step}, reopened: {fault:?}");
            }
            program.check_all(&pool);
        }
    }
    (program.digest, pool.io.operations())
}

/// If this fails, files get other bytes than were written, or the pool leaks or frees blocks twice: `zdb -bcc` complains.
#[test]
fn random_programs_match_the_model_and_leave_a_clean_tree() {
    for seed in 0..8 {
        run(seed, 500);
    }
}

/// If this fails, a failure that a seed shows can't be shown again.
#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(7, 400), run(7, 400));
}
