//! Blocks of compressed streams: they lie here as they lie where they come from, and are read and changed like any others.

use super::both_ways::{SOURCE, sent};
use super::{BLOCK, KIND, Records, check, contents, free, head, object, pool, pool_with, receive, stream_of, target};
use crate::ReceiveError;
use device::MemDevice;
use dmu::NewObject;
use dsl::{CreateDataset, TxSpace};
use ondisk::{BlockPtr, Compression, ObjectId, ObjectType, ObjsetType};
use pool::Pool;
use send::SendOptions;
use std::sync::Arc;
use stream::{Features, Record, Write};

pub(super) const BLOCKS: u64 = 12;
pub(super) const BLOCK_BYTES: usize = 16 << 10;

/// Bytes that every algorithm makes shorter.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| if at % 1024 < 600 { 0 } else { (at / 3 % 251) as u8 }).collect()
}

/// Makes a snapshot of an object whose blocks are compressed like this; gives the object's number.
pub(super) fn snapshot_of(pool: &Pool, compression: &str) -> ObjectId {
    let properties = vec![("compression".to_string(), compression.to_string())];
    let new = CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) };
    pool.dsl().create_dataset(SOURCE, new).expect("created");
    let handle = pool.dsl().hold(SOURCE).expect("held");
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    let dnode = handle.objset().expect("an object set").allocate_object(new, &tx).expect("allocated");
    dnode.write(0, &bytes(BLOCKS as usize * BLOCK_BYTES), &tx).expect("written");
    drop(tx);
    pool.dsl().snapshot(&[format!("{SOURCE}@s")], Vec::new()).expect("taken");
    dnode.object()
}

/// Pointers of the blocks of an object.
pub(super) fn pointers(pool: &Pool, name: &str, object: ObjectId) -> Vec<BlockPtr> {
    let dnode = pool.dsl().hold(name).expect("held").objset().expect("an object set").hold(object).expect("held");
    dnode.settled_blocks(0..BLOCKS).expect("read").expect("nothing changed")
}

/// If this fails, a backup of a compressed file system costs the time to compress it once more, and takes another room than where it comes from.
#[test]
fn blocks_stay_as_they_were_sent() {
    for (property, compression) in
        [("gzip-9", Compression::GZIP_9), ("zle", Compression::ZLE), ("lzjb", Compression::LZJB), ("zstd", Compression::ZSTD)]
    {
        let (source, copy) = (pool_with(&Arc::new(MemDevice::new("d0", 80 << 20)), false), pool());
        let object = snapshot_of(&source, property);
        let stream = sent(&source, None, "s", SendOptions { compressed: true, ..SendOptions::default() });
        receive(&copy, &stream, &target("s")).expect("received");
        let stored = |bp: &BlockPtr| (bp.compression(), bp.lsize(), bp.psize(), bp.checksum_kind(), bp.checksum());
        let there: Vec<_> = pointers(&source, &format!("{SOURCE}@s"), object).iter().map(stored).collect();
        let here: Vec<_> = pointers(&copy, "tank/fs@s", object).iter().map(stored).collect();
        assert_eq!(here, there, "{property}: what is stored is the same, to its checksum");
        let kept = here.iter().filter(|(kind, ..)| *kind == compression).count();
        assert_eq!(kept, BLOCKS as usize, "{property}: no block was compressed anew with lz4, as the copy's would be");
        let mut data = vec![0; BLOCKS as usize * BLOCK_BYTES];
        let objset = copy.dsl().hold("tank/fs@s").expect("held").objset().expect("an object set");
        objset.hold(object).expect("held").read(0, &mut data).expect("read");
        assert!(data == bytes(data.len()), "{property}: it is what was written");
        check(&copy);
    }
}

/// A WRITE of one block of 4 KiB at an offset, as LZ4 leaves it.
fn packed(offset: u64) -> (Record, Vec<u8>) {
    let mut payload = vec![0; BLOCK];
    let length = kernels::compress(Compression::LZ4, 0, &bytes(BLOCK), &mut payload).expect("it gets shorter");
    payload.truncate(length.next_multiple_of(512));
    let record = Write {
        object: 5,
        kind: KIND,
        offset,
        logical_size: BLOCK as u64,
        compressiontype: Compression::LZ4.0,
        compressed_size: payload.len() as u64,
        ..Write::default()
    };
    (Record::Write(record), payload)
}

fn compressed(records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    stream_of(head(0, 0xA, Features::COMPRESSED.with(Features::LZ4)), None, records)
}

/// If this fails, a stream that changes what it just brought leaves other bytes than where it comes from.
#[test]
fn what_came_compressed_is_changed_in_the_same_txg() {
    let pool = pool();
    let part = Write { object: 5, kind: KIND, offset: BLOCK as u64 + 1024, logical_size: 512, ..Write::default() };
    let records: Records =
        vec![object(5, BLOCK, &[1; 16]), packed(0), packed(BLOCK as u64), (Record::Write(part), vec![0xEE; 512]), free(5, 700, 300)];
    receive(&pool, &compressed(&records), &target("a")).expect("received");
    let mut wanted = [bytes(BLOCK), bytes(BLOCK), vec![0; 2 * BLOCK]].concat();
    wanted[BLOCK + 1024..BLOCK + 1536].fill(0xEE);
    wanted[700..1000].fill(0);
    assert!(contents(&pool, "tank/fs@a")[0].3 == wanted);
    check(&pool);
}

/// If this fails, a stream of somebody else leaves blocks that nobody can read.
#[test]
fn compressed_bytes_that_are_none_are_refused() {
    let pool = pool();
    let (record, mut payload) = packed(0);
    payload.fill(0xFF);
    match receive(&pool, &compressed(&[object(5, BLOCK, &[1; 16]), (record, payload)]), &target("a")) {
        Err(ReceiveError::Invalid(_)) => {}
        other => panic!("{other:?}"),
    }
    assert!(pool.dsl().hold("tank/fs").is_err(), "nothing is left");
    check(&pool);
}
