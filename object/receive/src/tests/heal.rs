//! Corrective receives: blocks that were damaged on the only disk of a pool are what they were, and nothing else is touched.

use super::both_ways::{SOURCE, sent};
use super::kept::{BLOCK_BYTES, BLOCKS, pointers, snapshot_of};
use super::{KIND, exec, head, host, pool_with, stream_of};
use crate::{Healed, Healer, ReceiveError};
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use ondisk::label::LABEL_START_BYTES;
use ondisk::{BlockPtr, ObjectId, ObjectType};
use pool::{ImportOptions, Pool, Reading, Runtime};
use send::SendOptions;
use std::sync::Arc;
use stream::{Features, Reader, Record, Write};

const SNAPSHOT: &str = "tank/source@s";

/// A pool with a snapshot whose blocks are compressed like this, and the object in it.
struct Scene {
    device: Arc<MemDevice>,
    pool: Pool,
    object: ObjectId,
}

impl Scene {
    fn new(compression: &str) -> Scene {
        let device = Arc::new(MemDevice::new("d0", 80 << 20));
        let pool = pool_with(&device, false);
        let object = snapshot_of(&pool, compression);
        Scene { device, pool, object }
    }

    /// Overwrites a part of these blocks in all their copies, while nobody has the pool open.
    fn damaged(self, blocks: &[BlockPtr]) -> Scene {
        self.worn(blocks, Vec::new())
    }

    /// As above, and the disk takes no writes any more at some places.
    fn worn(self, blocks: &[BlockPtr], places: Vec<u64>) -> Scene {
        let Scene { device, pool, object } = self;
        pool.export().expect("exported");
        device.tamper(|bytes| {
            for dva in blocks.iter().flat_map(|bp| bp.addresses()).filter(|dva| !dva.is_empty()) {
                let at = (LABEL_START_BYTES + dva.offset) as usize;
                bytes[at + 20..at + 200].iter_mut().for_each(|byte| *byte ^= 0x5A);
            }
        });
        let options = ImportOptions { host: host(), ..ImportOptions::default() };
        let devices: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(Worn { disk: device.clone(), places })];
        let pool = Pool::import(&exec(9), devices, &options, &Runtime::new()).expect("imported");
        Scene { device, pool, object }
    }

    /// Number of blocks that cannot be read, of all that the pool has.
    fn unreadable(&self) -> u64 {
        self.pool.verify_blocks(Reading::Everything).expect("walked").unreadable
    }

    fn heal(&self, stream: &[u8]) -> Result<Healed, ReceiveError> {
        let (mut reader, mut payload) = (Reader::new(stream), Vec::new());
        let Some(Record::Begin(begin)) = reader.read_record(&mut payload)? else { panic!("no head") };
        Healer::begin(self.pool.dsl(), &begin, SNAPSHOT)?.run(&mut reader)
    }
}

/// A disk that takes no writes any more at some places.
#[derive(Debug)]
struct Worn {
    disk: Arc<MemDevice>,
    places: Vec<u64>,
}

impl BlockDevice for Worn {
    fn submit(&self, io: DeviceIo) {
        let is_worn = matches!(io.op, DeviceOp::Write(_)) && self.places.contains(&io.offset);
        if is_worn { io.fail(DeviceError::Io) } else { self.disk.submit(io) }
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

fn stream(pool: &Pool, compressed: bool) -> Vec<u8> {
    sent(pool, None, "s", SendOptions { compressed, ..SendOptions::default() })
}

/// If this fails, who has a backup and a damaged disk has to destroy the snapshot, and all that came after it, to get it back.
#[test]
fn damaged_contents_are_what_they_were() {
    for (property, compressed) in [("lz4", true), ("lz4", false), ("off", false), ("gzip", true), ("zstd-7", false)] {
        let scene = Scene::new(property);
        let whole = stream(&scene.pool, compressed);
        let all = pointers(&scene.pool, SNAPSHOT, scene.object);
        let scene = scene.damaged(&[all[0], all[5], all[11]]);
        assert_eq!(scene.unreadable(), 3, "{property}");
        let healed = scene.heal(&whole).unwrap_or_else(|error| panic!("{property}: {error}"));
        let bytes = [0, 5, 11].iter().map(|block| all[*block].psize() as u64).sum();
        assert_eq!(healed, Healed { blocks: 3, bytes, ..Healed::default() }, "{property}");
        assert_eq!(scene.unreadable(), 0, "{property}: a scrub finds nothing");
        assert_eq!(scene.heal(&whole).expect("nothing to do"), Healed::default(), "{property}: what is whole is left alone");
    }
}

/// If this fails, one block that cannot be written keeps all behind it from being healed, of which there is no other copy.
#[test]
fn what_cannot_be_written_keeps_nothing_else_from_being_healed() {
    let damaged = [0, 1, 5, 11];
    for worn in damaged {
        let scene = Scene::new("lz4");
        let whole = stream(&scene.pool, true);
        let all = pointers(&scene.pool, SNAPSHOT, scene.object);
        let places = vec![LABEL_START_BYTES + all[worn].dva(0).offset];
        let scene = scene.worn(&damaged.map(|block| all[block]), places);
        let bytes = damaged.iter().filter(|block| **block != worn).map(|block| all[*block].psize() as u64).sum();
        let healed = scene.heal(&whole).expect("read to its end");
        assert_eq!(healed, Healed { blocks: 3, bytes, unwritten: 1, ..Healed::default() }, "block {worn} cannot be written");
        assert_eq!(scene.unreadable(), 1, "block {worn}");
    }
}

/// If this fails, a stream of something else takes the place of what can still be read, or of what another stream could heal.
#[test]
fn what_is_not_the_same_heals_nothing() {
    let scene = Scene::new("lz4");
    let all = pointers(&scene.pool, SNAPSHOT, scene.object);
    let guid = scene.pool.dsl().hold(SNAPSHOT).expect("held").guid();
    let scene = scene.damaged(&all[1..2]);
    let other = |guid: u64| {
        let write = |offset: u64| {
            let (logical_size, object) = (BLOCK_BYTES as u64, scene.object.0);
            let record = Write { object, kind: KIND, offset: offset * logical_size, logical_size, ..Write::default() };
            (Record::Write(record), vec![7; BLOCK_BYTES])
        };
        stream_of(head(0, guid, Features::default()), None, &[write(0), write(1)])
    };
    assert!(matches!(scene.heal(&other(guid ^ 1)), Err(ReceiveError::Invalid(_))), "another snapshot");
    let raw = stream_of(head(0, guid, Features::RAW), None, &[]);
    assert!(matches!(scene.heal(&raw), Err(ReceiveError::Unsupported(_))));
    assert_eq!(scene.heal(&other(guid)).expect("read"), Healed { lost: 1, ..Healed::default() }, "other bytes");
    assert_eq!(scene.unreadable(), 1, "nothing was written");
}

/// If this fails, a user is told that all is healed, and it is not.
#[test]
fn what_leads_to_contents_is_not_healed_and_said() {
    let scene = Scene::new("lz4");
    let whole = stream(&scene.pool, true);
    let mut above = Vec::new();
    {
        let handle = scene.pool.dsl().hold(SOURCE).expect("held");
        let (objset, root) = (handle.objset().expect("an object set"), handle.root_block());
        let is_above = |bp: &BlockPtr| bp.level() == 1 && bp.object_type() == ObjectType::PLAIN_FILE_CONTENTS;
        let walk = dsl::Walk::all(&**objset.io(), handle.object(), &root, 0).run(&mut |bp: &BlockPtr| {
            above.extend(is_above(bp).then_some(*bp));
            Ok(())
        });
        walk.expect("walked");
    }
    assert_eq!(above.len(), 1, "one block has the pointers");
    let scene = scene.damaged(&above);
    assert_eq!(scene.heal(&whole).expect("read"), Healed { unreachable: BLOCKS, ..Healed::default() });
}
