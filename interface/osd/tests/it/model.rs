//! Devices against a model of objects in memory: programs of transactions, of which each does several things to several objects.

use crate::bed::{Bed, fid, pattern};
use abd::Abd;
use exec::SplitMix;
use osd::{Change, Device, NewObject, Object, OsdError, Running, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use zpl::ZplError;

/// Number of transactions of a program.
pub const STEPS: usize = 300;
/// Objects with data have these numbers, those with keys the ones behind.
const DATA: u32 = 6;
const ALL: u32 = 8;
const OBJECT_BYTES: u64 = 160 << 10;

/// Object as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    bytes: Vec<u8>,
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    mode: u32,
    uid: u32,
}

/// Objects that there are, by number.
pub type State = BTreeMap<u32, Arc<Model>>;

/// Operation of a transaction.
#[derive(Clone, Debug)]
enum Op {
    Create(u32),
    Destroy(u32),
    Write { number: u32, offset: u64, length: u64, seed: u64, is_lent: bool },
    Punch(u32, u64, u64),
    Attributes(u32, u32, u32),
    Xattr(u32, u8, Option<Vec<u8>>),
    Insert(u32, Vec<u8>, Vec<u8>),
    Delete(u32, Vec<u8>),
}

impl Op {
    fn number(&self) -> u32 {
        match self {
            Op::Create(number)
            | Op::Destroy(number)
            | Op::Write { number, .. }
            | Op::Punch(number, ..)
            | Op::Attributes(number, ..)
            | Op::Xattr(number, ..)
            | Op::Insert(number, ..)
            | Op::Delete(number, ..) => *number,
        }
    }

    fn declare(&self, object: &Arc<Object>, transaction: Transaction) -> Transaction {
        match self {
            Op::Create(_) => transaction.create(object),
            Op::Destroy(_) => transaction.destroy(object),
            Op::Write { offset, length, .. } => transaction.write(object, *offset..offset + length),
            Op::Punch(_, start, end) => transaction.punch(object, *start..*end),
            Op::Attributes(..) => transaction.attributes(object),
            Op::Xattr(_, _, value) => transaction.xattr(object, value.as_ref().map_or(0, Vec::len)),
            Op::Insert(..) | Op::Delete(..) => transaction.index(object),
        }
    }

    fn perform(&self, object: &Arc<Object>, running: &Running) -> Result<(), OsdError> {
        match self {
            Op::Create(number) => running.create(object, NewObject { mode: 0o600, uid: 7, gid: 8, is_index: *number > DATA }),
            Op::Destroy(_) => running.destroy(object),
            Op::Write { offset, length, seed, is_lent: true, .. } => {
                let mut loans = object.lend(std::slice::from_ref(&(*offset..offset + length)))?;
                loans.iter_mut().for_each(|loan| loan.copy_from_slice(&pattern(*length as usize, *seed)));
                running.commit(object, loans)
            }
            Op::Write { offset, length, seed, .. } => running.write(object, *offset, &Abd::from_slice(&pattern(*length as usize, *seed))),
            Op::Punch(_, start, end) => running.punch(object, &(*start..*end)),
            Op::Attributes(_, mode, uid) => {
                running.set_attributes(object, &Change { mode: Some(*mode), uid: Some(*uid), ..Change::default() })
            }
            Op::Xattr(_, name, value) => running.set_xattr(object, &[b't', *name], value.as_deref()),
            Op::Insert(_, key, record) => running.insert(object, key, record),
            Op::Delete(_, key) => running.delete(object, key),
        }
    }

    /// Does the operation in the model, and says what it says.
    fn apply(&self, state: &mut State) -> Result<(), OsdError> {
        let number = self.number();
        if let Op::Create(_) = self {
            if state.contains_key(&number) {
                return Err(OsdError::Exists);
            }
            state.insert(number, Arc::new(Model { mode: 0o600, uid: 7, ..Model::default() }));
            return Ok(());
        }
        let object = Arc::make_mut(state.get_mut(&number).ok_or(OsdError::NotFound)?);
        match self {
            Op::Create(_) => {}
            Op::Destroy(_) => {
                state.remove(&number);
            }
            Op::Write { offset, length, seed, .. } => {
                let (start, end) = (*offset as usize, (offset + length) as usize);
                object.bytes.resize(object.bytes.len().max(end), 0);
                object.bytes[start..end].copy_from_slice(&pattern(*length as usize, *seed));
            }
            Op::Punch(_, start, u64::MAX) => object.bytes.resize(*start as usize, 0),
            Op::Punch(_, start, end) => {
                let size = object.bytes.len();
                object.bytes[(*start as usize).min(size)..(*end as usize).min(size)].fill(0);
            }
            Op::Attributes(_, mode, uid) => (object.mode, object.uid) = (*mode, *uid),
            Op::Xattr(_, name, value) => {
                let name = vec![b't', *name];
                match value {
                    Some(value) => drop(object.xattrs.insert(name, value.clone())),
                    None => drop(object.xattrs.remove(&name).ok_or(OsdError::Store(ZplError::NoAttribute))?),
                }
            }
            Op::Insert(_, key, record) => {
                if object.keys.contains_key(key) {
                    return Err(OsdError::Exists);
                }
                object.keys.insert(key.clone(), record.clone());
            }
            Op::Delete(_, key) => drop(object.keys.remove(key).ok_or(OsdError::NotFound)?),
        }
        Ok(())
    }
}

/// Program that is under way.
pub struct Program {
    random: SplitMix,
    pub state: State,
}

impl Program {
    pub fn new(seed: u64) -> Program {
        Program { random: SplitMix::new(seed), state: State::new() }
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random.next_u64() % count
    }

    /// Draws a range: of any alignment, of pages or of records.
    fn range(&mut self) -> (u64, u64) {
        let unit = [1, 4096, 4096, 16 << 10][self.random.below(4)];
        let units = OBJECT_BYTES / unit;
        let start = self.below(units);
        let length = 1 + self.below((units - start).min(64 * 1024 / unit).max(1));
        (start * unit, length * unit)
    }

    fn op(&mut self) -> Op {
        let number = 1 + self.below(u64::from(ALL)) as u32;
        let kind = self.random.below(20);
        if !self.state.contains_key(&number) && kind < 15 {
            return Op::Create(number);
        }
        let (offset, length) = self.range();
        match kind {
            0..2 => Op::Attributes(number, 0o400 | self.below(0o70) as u32, self.below(5) as u32),
            2..5 => {
                let bytes = 1 + self.below(400) as usize;
                let value = (!self.random.chance(4)).then(|| pattern(bytes, offset));
                Op::Xattr(number, b'a' + self.random.below(3) as u8, value)
            }
            5 => Op::Destroy(number),
            6 => Op::Create(number),
            _ if number > DATA => {
                let key = format!("key{}", self.below(30)).into_bytes();
                if self.random.chance(3) {
                    Op::Delete(number, key)
                } else {
                    Op::Insert(number, key, pattern(1 + offset as usize % 60, length))
                }
            }
            7 => Op::Punch(number, offset, offset + length),
            8 => Op::Punch(number, offset, u64::MAX),
            _ => Op::Write { number, offset, length, seed: self.random.next_u64(), is_lent: self.random.chance(2) },
        }
    }

    /// Does one transaction of one to four operations; `begun` gets it before it is started.
    pub fn step(&mut self, device: &Arc<Device>, begun: impl FnOnce(Transaction) -> Transaction) {
        let ops: Vec<Op> = (0..1 + self.random.below(4)).map(|_| self.op()).collect();
        let objects: Vec<Arc<Object>> = ops.iter().map(|op| device.object(fid(op.number())).expect("an object")).collect();
        let declared = ops.iter().zip(&objects).fold(device.begin(), |transaction, (op, object)| op.declare(object, transaction));
        let running = begun(declared).start().expect("started");
        for (op, object) in ops.iter().zip(&objects) {
            let expected = op.apply(&mut self.state);
            assert_eq!(op.perform(object, &running), expected, "{op:?}");
        }
        running.stop();
    }
}

/// Objects that a device has.
pub fn found(device: &Arc<Device>) -> State {
    (1..=ALL).filter_map(|number| Some((number, Arc::new(look(device, number)?)))).collect()
}

fn look(device: &Arc<Device>, number: u32) -> Option<Model> {
    let object = device.object(fid(number)).expect("an object");
    if !object.exists().expect("looked") {
        return None;
    }
    let fields = object.attributes().expect("attributes");
    let mut found = Model { mode: fields.mode as u32 & 0o7777, uid: fields.uid as u32, ..Model::default() };
    for name in object.xattrs().expect("listed").into_iter().filter(|name| name != b"trusted.lma") {
        let value = object.xattr(&name).expect("a value");
        found.xattrs.insert(name, value);
    }
    if number <= DATA {
        found.bytes = object.read(0, u64::MAX).expect("read").to_vec();
        return Some(found);
    }
    let mut from = Some(0);
    while let Some(cookie) = from {
        let listed = object.entries(cookie, 7).expect("listed");
        found.keys.extend(listed.entries);
        from = listed.next;
    }
    Some(found)
}

/// First difference of a device's objects to those of a state, in short.
pub fn difference(found: &State, state: &State) -> Option<String> {
    (1..=ALL).find_map(|number| match (found.get(&number), state.get(&number)) {
        (Some(found), Some(wanted)) if found != wanted => {
            let at = found.bytes.iter().zip(&wanted.bytes).position(|(one, other)| one != other);
            let rest = (&found.keys, &found.xattrs, found.mode, found.uid) == (&wanted.keys, &wanted.xattrs, wanted.mode, wanted.uid);
            Some(format!("{number}: {} and {} bytes, other at {at:?}, the rest is equal: {rest}", found.bytes.len(), wanted.bytes.len()))
        }
        (one, other) if one.is_some() != other.is_some() => Some(format!("{number} is there: {}", one.is_some())),
        _ => None,
    })
}

/// If this fails, an object gives other bytes, attributes or keys than were put into it.
#[test]
fn a_device_is_a_map_of_objects() {
    for seed in 0..4 {
        let properties: &[(&str, &str)] = match seed % 4 {
            0 => &[("recordsize", "16K"), ("compression", "off")],
            1 => &[("recordsize", "16K"), ("compression", "lz4"), ("primarycache", "metadata")],
            2 => &[("recordsize", "128K"), ("direct", "always")],
            _ => &[("recordsize", "16K"), ("direct", "disabled")],
        };
        let mut bed = Bed::new(properties);
        let mut device = bed.open();
        let mut program = Program::new(seed);
        for step in 0..STEPS {
            program.step(&device, |transaction| transaction);
            if program.random.chance(15) {
                bed.pool.sync().expect("synced");
            }
            if program.random.chance(40) {
                drop(device);
                bed = bed.again();
                device = bed.open();
            }
            if program.random.chance(4) {
                let (offset, length) = program.range();
                let number = 1 + program.below(u64::from(DATA)) as u32;
                let object = device.object(fid(number)).expect("an object");
                let wanted = program.state.get(&number).map(|model| {
                    let size = model.bytes.len();
                    model.bytes[(offset as usize).min(size)..((offset + length) as usize).min(size)].to_vec()
                });
                let is_direct = program.random.chance(2);
                let read = if is_direct { object.read_direct(offset, length) } else { object.read(offset, length) };
                assert!(read.as_ref().ok().map(Abd::to_vec) == wanted, "seed {seed}, step {step}: {offset}+{length} of {number}");
            }
        }
        assert_eq!(difference(&found(&device), &program.state), None, "seed {seed}");
        drop(device);
        bed.check_space(&format!("seed {seed}"));
        let bed = bed.again();
        assert_eq!(difference(&found(&bed.open()), &program.state), None, "seed {seed}, from the disks");
        bed.pool.export().expect("exported");
    }
}
