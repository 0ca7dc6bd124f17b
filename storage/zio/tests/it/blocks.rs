//! What becomes of a block on its way to disk: holes, embedding, rounding, gangs, rewriting in place, copies.

use crate::common::*;
use abd::Abd;
use crypt::{DataKey, Guard, Seal, Suite};
use device::{DeviceError, DeviceOp};
use exec::{Exec, Mutex};
use kernels::checksum::Salt;
use metaslab::Allocator;
use ondisk::{BlockPtr, Checksum, Compression, ObjectType, Txg, VdevId};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::{LeafId, TopKind, VdevTree};
use zio::{ErrorKind, FailMode, LeafRequest, ReadFlags, ReadRequest, WriteRequest, WriteThen};

const MIRROR: [(TopKind, usize); 1] = [(TopKind::Mirror, 2)];

fn with(data: Abd, compression: Compression) -> WriteRequest {
    WriteRequest { compression, ..request(data, 1) }
}

/// Zeros must cost no space, and a hole that replaces data must carry its birth, or incremental sends miss it.
#[test]
fn zeros_become_holes() {
    let rig = Rig::new(inline(), &MIRROR, 12);
    let zeros = Abd::zeroed(131_072);
    assert_eq!(rig.write(with(zeros.clone(), Compression::LZ4)), Ok(BlockPtr::HOLE));
    let previous = rig.write(with(noise(1, 131_072), Compression::LZ4)).expect("the write succeeds");
    let later = WriteRequest { previous, txg: Txg(11), ..with(zeros.clone(), Compression::LZ4) };
    let hole = rig.write(later).expect("the write succeeds");
    assert!(hole.is_hole() && hole.birth() == Txg(11) && hole.lsize() == 131_072, "{hole:?}");
    assert!(rig.read(&hole).is_ok_and(|back| back == zeros));
    let kept = rig.write(with(zeros, Compression::OFF)).expect("the write succeeds");
    assert!(!kept.is_hole() && kept.psize() == 131_072, "compression=off stores zeros as they are");
}

/// If this fails, each small file of a txg costs a device an I/O of its own, or gets the bytes of its neighbour.
#[test]
fn small_blocks_that_are_written_together_are_one_request() {
    let rig = Rig::new(inline(), &[(TopKind::Leaf, 1)], 12);
    let written: Arc<Mutex<Vec<(u64, BlockPtr)>>> = Arc::default();
    let write = |number: u64| {
        let written = written.clone();
        let then: WriteThen = Box::new(move |result| written.lock().push((number, result.expect("the write succeeds"))));
        (request(noise(number, 4096), number), then)
    };
    rig.zio.write_together((0..16).map(write).collect());
    rig.exec.wait(&|| written.lock().len() == 16, &|| {});
    assert_eq!(rig.faults.count.load(Ordering::Relaxed), 1, "neighbours are one request");
    let blocks = std::mem::take(&mut *written.lock());
    assert!(blocks.iter().all(|(number, bp)| rig.read(bp).is_ok_and(|back| back == noise(*number, 4096))));
}

/// If this fails, whoever restores a file over a clone of itself pays for all of it once more; or what was changed is taken for what was there.
#[test]
fn what_is_there_already_is_not_written_again() {
    let rig = Rig::new(inline(), &MIRROR, 12);
    let strong = |data: Abd| WriteRequest { checksum: Checksum::SHA256, ..with(data, Compression::LZ4) };
    for data in [noise(1, 131_072), text(1, 131_072)] {
        let previous = rig.write(strong(data.clone())).expect("the write succeeds");
        let later = |request: WriteRequest| WriteRequest { previous, txg: Txg(11), ..request };
        let writes = rig.faults.count.load(Ordering::Relaxed);
        assert_eq!(rig.write(later(strong(data.clone()))), Ok(previous));
        assert_eq!(rig.faults.count.load(Ordering::Relaxed), writes, "no device hears of it");
        let mut changed = data.to_vec();
        changed[131_071] ^= 1;
        for other in [
            strong(Abd::from_slice(&changed)),
            WriteRequest { checksum: Checksum::SHA512, ..strong(data.clone()) },
            WriteRequest { checksum: Checksum::FLETCHER_4, ..strong(data.clone()) },
            WriteRequest { compression: Compression::OFF, ..strong(data.clone()) },
            WriteRequest { copies: 2, ..strong(data.clone()) },
            WriteRequest { object_type: ObjectType::DNODE, ..strong(data.clone()) },
            WriteRequest { can_fail: true, ..strong(data.clone()) },
        ] {
            let expected = other.data.clone();
            let bp = rig.write(later(other)).expect("the write succeeds");
            assert_eq!((bp.birth(), bp.dva(0) == previous.dva(0)), (Txg(11), false), "{bp:?}");
            assert!(rig.read(&bp).is_ok_and(|back| back == expected));
        }
        let weak = rig.write(with(data.clone(), Compression::LZ4)).expect("the write succeeds");
        let again = WriteRequest { previous: weak, txg: Txg(11), ..with(data.clone(), Compression::LZ4) };
        assert!(rig.write(again).is_ok_and(|bp| bp.birth() == Txg(11)), "a weak checksum proves nothing");
    }
}

/// Tiny payloads live in the pointer, but only where OpenZFS looks for them.
#[test]
fn small_compressed_blocks_are_embedded() {
    let rig = Rig::new(inline(), &MIRROR, 12);
    let mut bytes = vec![0; 4096];
    bytes[17] = 9;
    let data = Abd::from_slice(&bytes);
    let bp = rig.write(with(data.clone(), Compression::LZ4)).expect("the write succeeds");
    assert!(bp.is_embedded() && bp.lsize() == 4096 && bp.psize() <= 112 && bp.birth() == TXG, "{bp:?}");
    assert!(rig.read(&bp).is_ok_and(|back| back == data));
    for refused in [
        WriteRequest { object_type: ObjectType::DNODE, ..with(data.clone(), Compression::LZ4) },
        WriteRequest { level: 1, ..with(data.clone(), Compression::LZ4) },
    ] {
        let bp = rig.write(refused).expect("the write succeeds");
        assert!(!bp.is_embedded(), "{bp:?}");
        assert!(rig.read(&bp).is_ok_and(|back| back == data));
    }
}

/// Compression counts only in whole sectors and must save an eighth; otherwise the block is stored as it is.
#[test]
fn compressed_sizes_are_whole_sectors() {
    for ashift in [9, 12] {
        let rig = Rig::new(inline(), &MIRROR, ashift);
        let bp = rig.write(with(text(1, 131_072), Compression::LZ4)).expect("the write succeeds");
        assert!(bp.compression() == Compression::LZ4 && bp.psize().is_multiple_of(1 << ashift) && bp.psize() <= 114_688, "{bp:?}");
        let bp = rig.write(with(noise(1, 131_072), Compression::LZ4)).expect("the write succeeds");
        assert!(bp.compression() == Compression::OFF && bp.psize() == 131_072, "{bp:?}");
        let bp = rig.write(with(text(1, 4096), Compression::LZ4)).expect("the write succeeds");
        assert_eq!(bp.psize() < 4096, ashift == 9, "a 4 KiB sector can't be halved: {bp:?}");
    }
}

/// Copies must lie apart and each must do.
#[test]
fn any_copy_is_enough_and_a_bad_one_is_repaired() {
    let rig = Rig::new(inline(), &[(TopKind::Leaf, 1), (TopKind::Leaf, 1), (TopKind::Leaf, 1)], 12);
    let data = noise(1, 16384);
    let bp = rig.write(WriteRequest { copies: 3, ..request(data.clone(), 1) }).expect("the write succeeds");
    assert_eq!(bp.dvas().count(), 3, "{bp:?}");
    let intact = rig.contents();
    for bad in [vec![0], vec![1], vec![2], vec![0, 1], vec![1, 2], vec![0, 2]] {
        rig.corrupt(&bad);
        assert!(rig.read(&bp).is_ok_and(|back| back == data), "{bad:?}");
        assert!(rig.scrub(&bp).is_ok(), "{bad:?}");
        let before: Vec<u64> = (0..3).map(|leaf| rig.checksum_errors(leaf)).collect();
        assert!(rig.scrub(&bp).is_ok(), "{bad:?}");
        assert_eq!(before, (0..3).map(|leaf| rig.checksum_errors(leaf)).collect::<Vec<_>>(), "{bad:?}: repaired by the first scrub");
        for (device, bytes) in rig.devices.iter().zip(&intact) {
            device.mem.tamper(|now| now[HEAD].copy_from_slice(bytes));
        }
    }
    rig.corrupt(&[0, 1, 2]);
    assert_eq!(rig.read(&bp).map_err(|error| error.kind), Err(ErrorKind::Checksum));
}

/// Blocks of the syncing txg are rewritten where they are from pass 2 on, or syncing never ends.
#[test]
fn late_passes_rewrite_in_place() {
    let rig = Rig::new(inline(), &[(TopKind::Raidz(1), 3)], 12);
    let previous = rig.write(request(noise(1, 16384), 1)).expect("the write succeeds");
    let data = noise(2, 16384);
    let again = WriteRequest { previous, pass: 2, ..request(data.clone(), 1) };
    let bp = rig.write(again.clone()).expect("the write succeeds");
    assert_eq!(bp.dva(0), previous.dva(0));
    assert!(rig.read(&bp).is_ok_and(|back| back == data));
    let first_pass = rig.write(WriteRequest { pass: 1, ..again.clone() }).expect("the write succeeds");
    assert_ne!(first_pass.dva(0), previous.dva(0));
    let other_txg = rig.write(WriteRequest { txg: Txg(11), ..again.clone() }).expect("the write succeeds");
    assert_ne!(other_txg.dva(0), previous.dva(0));
    let packed = WriteRequest { data: text(1, 16384), compression: Compression::LZ4, pass: 8, ..again };
    assert_eq!(rig.write(packed).map(|bp| (bp.dva(0), bp.compression())), Ok((previous.dva(0), Compression::OFF)));
}

fn allocated(rig: &Rig) -> u64 {
    rig.allocator.class_space().allocated
}

/// Free space in pieces of `piece` bytes, `count` of them, and nothing else.
fn fragmented(layout: &[(TopKind, usize)], ashift: u32, piece: u64, count: u64) -> Rig {
    Rig::with(inline(), layout, ashift, FailMode::Never, &|tree: &VdevTree, allocator: &Allocator| {
        for top in &tree.tops {
            let size = 1u64 << top.ms_shift;
            let mut left = count;
            for metaslab in 0..allocator.metaslab_count(top.id) {
                let (start, end) = (u64::from(metaslab) * size, u64::from(metaslab + 1) * size);
                let mut allocated: Vec<Range<u64>> = Vec::new();
                let mut position = start;
                while position < end {
                    let taken = if left > 0 { (position + 4 * piece).min(end) } else { end };
                    allocated.push(position..taken);
                    position = if left > 0 && taken + piece <= end { taken + piece } else { end };
                    if left > 0 && taken + piece <= end {
                        left -= 1;
                    } else if taken < end {
                        allocated.push(taken..end);
                    }
                }
                allocator.load(top.id, metaslab, &allocated).expect("sorted segments load");
            }
        }
    })
}

/// When no free segment holds a block, it must be stored in pieces, and reading, healing, rewriting and freeing must know.
#[test]
fn fragmented_pools_write_gangs() {
    for (name, layout) in layouts() {
        for (ashift, piece) in [(9, 8192 * 4), (12, 16384 * 4)] {
            let what = format!("{name} ashift {ashift}");
            let rig = fragmented(&layout, ashift, piece, 200);
            let before = allocated(&rig);
            let data = noise(5, 131_072);
            let bp = rig.write(request(data.clone(), 1)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(bp.is_gang() && bp.psize() == 131_072, "{what}: {bp:?}");
            assert_eq!(bp.checksum(), kernels::checksum(Checksum::FLETCHER_4, &[&data.to_vec()], kernels::ByteOrder::Little).unwrap());
            assert!(rig.read(&bp).is_ok_and(|back| back == data), "{what}");
            assert!(rig.scrub(&bp).is_ok_and(|back| back == data), "{what}");
            let used = allocated(&rig) - before;
            assert!(used >= 131_072 && used <= 4 * bp.asize(), "{what}: {used} {bp:?}");

            let other = noise(6, 131_072);
            let again = WriteRequest { previous: bp, pass: 3, ..request(other.clone(), 1) };
            let rewritten = rig.write(again).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((rewritten.dva(0), rewritten.dva(1)), (bp.dva(0), bp.dva(1)), "{what}");
            assert!(rig.read(&rewritten).is_ok_and(|back| back == other), "{what}: rewritten");
            assert!(rig.read(&bp).is_err(), "{what}: the old sums no longer hold");

            rig.zio.free(TXG, &rewritten);
            rig.zio.wait_frees();
            let freed: u64 = rig.allocator.take_deltas(TXG).iter().flat_map(|delta| delta.frees.clone()).map(|r| r.end - r.start).sum();
            let never = allocated(&rig) - before;
            assert!(freed == used || never == 0, "{what}: freed {freed} of {used}, {never} left");
        }
    }
}

/// The logical bytes of a block of an encrypted dataset.
fn opened(rig: &Rig, key: &DataKey, bp: &BlockPtr) -> Abd {
    let flags = ReadFlags { raw: true, ..ReadFlags::default() };
    let stored = rig.zio.read_wait(ReadRequest { flags, ..ReadRequest::new(*bp, bookmark(0)) }).expect("it is read").to_vec();
    let mut plain = vec![0; stored.len()];
    key.open(bp, &stored, &mut plain).expect("it decrypts");
    let mut packed = *bp;
    packed.set_uses_crypt(false);
    zio::decompress(&packed, &Abd::from_slice(&plain)).expect("it decompresses")
}

/// If this fails, what is encrypted is written in the clear or cannot be decrypted, or one initialization vector serves twice: for a block that is
/// rewritten where it is, or a gang.
#[test]
fn sealed_blocks_are_encrypted_anew_each_time() {
    let key = Arc::new(DataKey::generate(Suite::Aes256Gcm).expect("random bytes"));
    for rig in [Rig::new(inline(), &MIRROR, 12), fragmented(&MIRROR, 12, 16384 * 4, 200)] {
        for (data, other, compression) in
            [(text(1, 131_072), text(2, 131_072), Compression::LZ4), (noise(1, 131_072), noise(2, 131_072), Compression::OFF)]
        {
            let sealed = WriteRequest { seal: Some(Seal::Key(key.clone())), compression, copies: 2, ..request(data.clone(), 1) };
            let bp = rig.write(sealed.clone()).expect("the write succeeds");
            assert!(bp.is_encrypted() && bp.fill() == 1 && !bp.addresses()[1].is_empty(), "{bp:?}");
            assert_eq!((bp.compression(), opened(&rig, &key, &bp)), (compression, data.clone()));
            assert!(rig.read(&bp).is_err(), "nobody takes it for plain");
            let again = WriteRequest { previous: bp, pass: 3, ..sealed.clone() };
            let rewritten = rig.write(again).expect("the write succeeds");
            assert_eq!((rewritten.addresses(), opened(&rig, &key, &rewritten)), (bp.addresses(), data));
            assert!((rewritten.iv() != bp.iv()) && rewritten.mac() != bp.mac(), "the same bytes again, with another vector");
            let changed = WriteRequest { data: other.clone(), previous: BlockPtr::HOLE, ..sealed };
            let bp = rig.write(changed).expect("the write succeeds");
            assert_eq!(opened(&rig, &key, &bp), other);
        }
        let zeros = WriteRequest { seal: Some(Seal::Key(key.clone())), ..with(Abd::zeroed(131_072), Compression::LZ4) };
        assert_eq!(rig.write(zeros), Ok(BlockPtr::HOLE), "holes stay holes");
        let mut bytes = vec![0; 4096];
        bytes[17] = 9;
        let small = WriteRequest { seal: Some(Seal::Key(key.clone())), ..with(Abd::from_slice(&bytes), Compression::LZ4) };
        let bp = rig.write(small).expect("the write succeeds");
        assert!(!bp.is_embedded() && opened(&rig, &key, &bp) == Abd::from_slice(&bytes), "nothing is in the pointer in the clear");
    }
}

/// If this fails, blocks of a raw stream are compressed or encrypted once more on their way, or lose what their owner's key needs to read them.
#[test]
fn blocks_that_come_as_they_are_stored_stay_so() {
    let key = DataKey::generate(Suite::Aes256Gcm).expect("random bytes");
    let rig = Rig::new(inline(), &MIRROR, 12);
    let (salt, iv) = ([1; 8], [2; 12]);
    for length in [512, 8192] {
        let plain = noise(3, length).to_vec();
        let mut sealed = plain.clone();
        let mac = key.seal(ObjectType::PLAIN_FILE_CONTENTS, &salt, &iv, &mut sealed).expect("it encrypts");
        let seal = Seal::Stored { lsize: 131_072, guard: Some(Guard::new(Some(mac), Some((salt, iv)))) };
        let data = Abd::from_slice(&sealed);
        let bp =
            rig.write(WriteRequest { seal: Some(seal), compression: Compression::LZ4, copies: 2, ..request(data, 1) }).expect("written");
        assert_eq!((bp.lsize(), bp.psize(), bp.compression()), (131_072, length, Compression::LZ4));
        assert_eq!((bp.salt(), bp.iv(), bp.mac(), bp.is_encrypted()), (salt, iv, mac, true));
        let flags = ReadFlags { raw: true, ..ReadFlags::default() };
        let stored = rig.zio.read_wait(ReadRequest { flags, ..ReadRequest::new(bp, bookmark(0)) }).expect("read").to_vec();
        let mut opened = vec![0; stored.len()];
        assert_eq!((key.open(&bp, &stored, &mut opened), opened), (Ok(()), plain));
    }
}

/// A gang within a gang.
#[test]
fn gangs_nest() {
    let rig = fragmented(&MIRROR, 9, 8192, 600);
    let data = noise(5, 131_072);
    let bp = rig.write(request(data.clone(), 1)).expect("the write succeeds");
    assert!(bp.is_gang());
    assert!(rig.read(&bp).is_ok_and(|back| back == data));
    for leaf in 0..2 {
        rig.kill(&[leaf], DeviceError::Io);
        assert!(rig.read(&bp).is_ok_and(|back| back == data), "one leg is enough");
        rig.revive();
    }
    let packed = rig.write(with(text(2, 131_072), Compression::GZIP_1)).expect("the write succeeds");
    assert!(packed.is_gang() && packed.compression() == Compression::GZIP_1);
    assert!(rig.read(&packed).is_ok_and(|back| back == text(2, 131_072)), "compressed gangs decompress");
}

/// A large block in the smallest pieces makes thousands of headers: that must not exhaust a thread's stack.
#[test]
#[expect(clippy::disallowed_methods, reason = "a thread with a small stack")]
fn a_gang_of_thousands_of_pieces_reads_and_frees() {
    let rig = fragmented(&[(TopKind::Leaf, 1)], 9, 512, 9000);
    let data = noise(5, 1 << 20);
    let bp = rig.write(request(data.clone(), 1)).expect("the write succeeds");
    assert!(bp.is_gang());
    let run = std::thread::Builder::new().stack_size(256 << 10);
    let rig = run
        .spawn(move || {
            assert!(rig.read(&bp).is_ok_and(|back| back == data));
            rig.zio.free(TXG, &bp);
            rig.zio.wait_frees();
            rig
        })
        .expect("a thread starts")
        .join()
        .expect("the stack suffices");
    drop(rig);
}

/// Blocks found at import must be claimed once, gangs with all their members, and never over somebody else's space.
#[test]
fn claims_take_exactly_the_blocks_space() {
    for make in [&|| Rig::new(inline(), &MIRROR, 12) as Rig, &|| fragmented(&MIRROR, 12, 16384, 200)] as [&dyn Fn() -> Rig; 2] {
        let rig = make();
        let before = allocated(&rig);
        let bp = rig.write(request(noise(1, 131_072), 1)).expect("the write succeeds");
        let used = allocated(&rig) - before;
        let claim = || {
            let (done, wait) = exec::completion();
            rig.zio.claim(Txg(30), &bp, Box::new(move |result| done.complete(result)));
            wait.wait(&rig.exec)
        };
        assert_eq!(claim().map_err(|error| error.kind), Err(ErrorKind::Corrupt), "the space is taken");
        rig.zio.free(TXG, &bp);
        rig.zio.wait_frees();
        for txg in 10..14 {
            rig.allocator.take_deltas(Txg(txg));
            rig.allocator.sync_done(Txg(txg));
        }
        assert_eq!(allocated(&rig), before);
        assert_eq!(claim(), Ok(()));
        assert_eq!(allocated(&rig), before + used);
    }
}

/// The block of a dedup table entry may have other owners: freeing it without the table would give away their data.
#[test]
fn dedup_blocks_are_not_freed_without_the_table() {
    let rig = Rig::new(inline(), &MIRROR, 12);
    let mut bp = rig.write(request(noise(1, 16384), 1)).expect("the write succeeds");
    let used = allocated(&rig);
    bp.0[6] |= 1 << 62;
    rig.zio.free(TXG, &bp);
    assert!(rig.allocator.take_deltas(TXG).iter().all(|delta| delta.frees.is_empty()));
    assert_eq!(allocated(&rig), used);
}

/// A full pool must say so, and must not lose the space of what it tried.
#[test]
fn a_full_pool_refuses_and_leaks_nothing() {
    let rig = fragmented(&MIRROR, 12, 16384, 3);
    let before = allocated(&rig);
    assert_eq!(rig.write(request(noise(1, 1 << 20), 1)).map_err(|error| error.kind), Err(ErrorKind::NoSpace));
    assert_eq!(allocated(&rig), before);
    assert!(rig.write(request(noise(1, 8192), 1)).is_ok(), "what fits is still taken");
}

/// Failing each device operation in turn must give right bytes or an error, never a lie, and never a leak.
#[test]
fn every_single_device_failure_is_survived_or_reported() {
    let gang = |layout: &[(TopKind, usize)]| fragmented(layout, 12, 16384 * 4, 100);
    let plain = |layout: &[(TopKind, usize)]| Rig::new(inline(), layout, 12);
    for (name, layout) in layouts() {
        for (form, make) in [("plain", &plain as &dyn Fn(&[(TopKind, usize)]) -> Rig), ("gang", &gang)] {
            let rig = make(&layout);
            for k in 0..200 {
                let what = format!("{name} {form} failing operation {k}");
                let txg = Txg(TXG.0 + k);
                rig.faults.count.store(0, Ordering::Relaxed);
                *rig.faults.fail.lock() = [k].into();
                let data = noise(k, 131_072);
                let space = allocated(&rig);
                match rig.write(WriteRequest { txg, ..request(data.clone(), 1) }) {
                    Ok(bp) => {
                        match rig.read(&bp) {
                            Ok(back) => assert!(back == data, "{what}"),
                            Err(error) => assert!(name == "stripe" && error.kind == ErrorKind::Io, "{what}: {error}"),
                        }
                        rig.faults.fail.lock().clear();
                        assert!(rig.read(&bp).is_ok_and(|back| back == data), "{what}: afterwards");
                        assert!(rig.scrub(&bp).is_ok_and(|back| back == data), "{what}: scrub afterwards");
                        rig.zio.free(txg, &bp);
                        rig.zio.wait_frees();
                    }
                    Err(error) => assert_eq!(allocated(&rig), space, "{what}: {error}"),
                }
                rig.allocator.take_deltas(txg);
                rig.allocator.sync_done(txg);
                if rig.faults.count.load(Ordering::Relaxed) < k {
                    break;
                }
            }
            for txg in 300..303 {
                rig.allocator.sync_done(Txg(txg));
            }
            assert_eq!(allocated(&rig), allocated(&make(&layout)), "{name} {form}: everything was given back");
        }
    }
}

/// Leaves that missed a write must be reported, or a resilver would not know.
#[test]
fn missed_writes_are_reported_by_leaf_and_txg() {
    let rig = Rig::new(inline(), &MIRROR, 12);
    rig.kill(&[1], DeviceError::Gone);
    let data = noise(1, 16384);
    let bp = rig.write(request(data.clone(), 1)).expect("one leg takes it");
    let guid = rig.zio.view().tree.leaf(LeafId(1)).guid;
    assert_eq!(rig.zio.take_missing(), vec![(guid, TXG)]);
    assert_eq!(rig.zio.take_missing(), vec![]);
    rig.revive();
    assert!(rig.read(&bp).is_ok_and(|back| back == data));
}

/// A pool with failmode=wait.
fn waiting(exec: Exec) -> Rig {
    Rig::failing(exec, &MIRROR, 12, FailMode::Wait)
}

/// With failmode=wait a pool that lost its devices holds I/O until they are back; with continue it reports the error.
#[test]
fn suspension_holds_io_until_resume() {
    let rig = waiting(inline());
    let data = noise(1, 16384);
    let early = rig.write(request(data.clone(), 1)).expect("the write succeeds");
    rig.kill(&[0, 1], DeviceError::Gone);
    let (done, wait) = exec::completion();
    rig.zio.write(request(data.clone(), 2), Box::new(move |result| done.complete(result)));
    let (read_done, read_wait) = exec::completion();
    rig.zio.read(ReadRequest::new(early, bookmark(1)), Box::new(move |result| read_done.complete(result)));
    rig.exec.wait(&|| rig.zio.is_suspended(), &|| {});
    let probe = ReadRequest { flags: zio::ReadFlags { speculative: true, ..Default::default() }, ..ReadRequest::new(early, bookmark(1)) };
    assert_eq!(rig.zio.read_wait(probe).map_err(|error| error.kind), Err(ErrorKind::NoDevice), "a probe does not wait");
    rig.revive();
    rig.zio.resume();
    let bp = wait.wait(&rig.exec).expect("the write succeeds after resume");
    assert!(read_wait.wait(&rig.exec).is_ok_and(|back| back == data));
    assert!(rig.read(&bp).is_ok_and(|back| back == data));
    assert!(!rig.zio.is_suspended());
}

/// Nothing is written between `close` and `open`, blocks or what lies beside them, whoever resumes the pool; reads go on, and writes wait.
fn nothing_is_written_until(begin: impl FnOnce(&Rig), close: impl FnOnce(&Rig), open: impl FnOnce(&Rig)) {
    let jobs = Arc::new(exec::Inline::new(7));
    let rig = waiting(jobs.clone());
    begin(&rig);
    let early = rig.write(request(noise(1, 16384), 1)).expect("nothing keeps it back yet");
    close(&rig);
    let before = rig.contents();
    let (done, wait) = exec::completion();
    rig.zio.write(request(noise(2, 16384), 2), Box::new(move |result| done.complete(result)));
    assert!(rig.read(&early).is_ok_and(|back| back == noise(1, 16384)), "reads go on");
    let guid = rig.zio.view().tree.leaf(LeafId(0)).guid;
    let op = DeviceOp::Write(noise(3, 4096));
    let (written, result) = exec::completion();
    let leaf_write = LeafRequest { leaf: guid, offset: 4 << 20, op, priority: zio::Priority::AsyncWrite, speculative: true };
    rig.zio.leaf_io(leaf_write, Box::new(move |result| written.complete(result.map(drop))));
    assert_eq!(result.wait(&rig.exec), Err(DeviceError::Gone), "repairs, trims and the like are kept back");
    // A device that comes back resumes other pools.
    rig.zio.resume();
    // Whatever can run does.
    jobs.run_ready();
    assert!(!rig.zio.may_write() && rig.contents() == before, "something was written");
    assert!(!wait.is_done() && rig.zio.is_suspended(), "the write does not wait");
    open(&rig);
    rig.zio.resume();
    let bp = wait.wait(&rig.exec).expect("the write succeeds after that");
    assert!(rig.read(&bp).is_ok_and(|back| back == noise(2, 16384)) && !rig.zio.is_suspended());
}

/// If this fails, a host that lost sight of its devices goes on writing to a pool that another host has imported by now.
#[test]
fn behind_a_fence_nothing_is_written_until_it_is_lifted() {
    let close = |rig: &Rig| {
        assert!(rig.zio.fence() && !rig.zio.fence(), "it is there once");
        assert!(rig.zio.is_suspended());
    };
    nothing_is_written_until(|_| (), close, |rig| rig.zio.lift_fence());
}

/// If this fails, a host that stood still while another one took its pool writes what its threads had in their hands, before one of them looks.
#[test]
fn after_its_time_nothing_is_written_although_nobody_said_so() {
    let limit = |rig: &Rig, at_ns| rig.zio.write_limit().store(at_ns, Ordering::Release);
    let begin = |rig: &Rig| limit(rig, rig.exec.now_ns() + 1_000_000_000);
    nothing_is_written_until(begin, |rig| rig.exec.sleep_ns(2_000_000_000), |rig| limit(rig, 0));
}

/// A pointer that names space which the pool does not have is a lie that no device's return makes true: whoever waited for one would wait
/// for ever, and everybody else with him.
#[test]
fn lies_in_pointers_suspend_nothing() {
    let rig = waiting(inline());
    let true_one = rig.write(request(noise(1, 16384), 1)).expect("the write succeeds");
    let dva = true_one.dva(0);
    let elsewhere = |vdev| ondisk::Dva { vdev: VdevId(vdev), ..dva };
    let lies = [
        elsewhere(1),
        elsewhere(0xFF_FFFF),
        ondisk::Dva { gang: true, ..elsewhere(7) },
        ondisk::Dva { offset: 1 << 54, ..dva },
        ondisk::Dva { offset: dva.offset + 512, ..dva },
    ];
    for lie in lies {
        let mut bp = true_one;
        (0..3).for_each(|copy| bp.set_dva(copy, ondisk::Dva::default()));
        bp.set_dva(0, lie);
        let read = rig.zio.read_wait(ReadRequest::new(bp, bookmark(1))).map_err(|error| error.kind);
        assert_eq!(read.map(|_| ()), Err(ErrorKind::Corrupt), "{lie:?}");
        rig.zio.free(TXG, &bp);
        rig.zio.wait_frees();
        assert!(!rig.zio.is_suspended(), "{lie:?}");
        // A true copy beside it is found.
        bp.set_dva(1, dva);
        if !lie.gang {
            assert!(rig.read(&bp).is_ok(), "{lie:?}");
        }
    }
}

/// A read-only import must not write, not even to repair.
#[test]
fn a_read_only_pool_is_never_written() {
    let rig = Rig::new(inline(), &MIRROR, 12);
    let data = noise(1, 16384);
    let bp = rig.write(request(data.clone(), 1)).expect("the write succeeds");
    let mut view = rig.zio.view();
    view.facts.writeable = false;
    rig.zio.set_view(view);
    rig.corrupt(&[0]);
    let bytes = rig.contents();
    assert!(rig.scrub(&bp).is_ok_and(|back| back == data));
    assert_eq!(rig.contents(), bytes);
    assert_eq!(rig.write(request(data, 2)).map_err(|error| error.kind), Err(ErrorKind::ReadOnly));
}

fn salt_of(rig: &Rig, salt: Option<Salt>) {
    let mut view = rig.zio.view();
    view.facts.salt = salt.map(Arc::new);
    rig.zio.set_view(view);
}

/// Whoever chose these checksums relies on them: if this fails, wrong bytes are read, what is right is taken for damaged, or nothing is healed.
#[test]
fn salted_checksums_find_and_heal_what_is_wrong_with_the_pools_salt_only() {
    for checksum in [Checksum::SKEIN, Checksum::EDONR, Checksum::BLAKE3] {
        for (layout, bad) in [(MIRROR, 1), ([(TopKind::Raidz(2), 5)], 2)] {
            let rig = Rig::new(inline(), &layout, 12);
            let data = noise(1, 40_960);
            let write = |block| rig.write(WriteRequest { checksum, ..request(data.clone(), block) });
            assert_eq!(write(1).map_err(|error| error.kind), Err(ErrorKind::Unsupported), "{checksum} without a salt");
            salt_of(&rig, Some(Salt::new([7; 32])));
            let bp = write(2).expect("the write succeeds");
            rig.zio.set_forced_ganging(32_768, 100);
            let gang = write(3).expect("the write succeeds");
            rig.zio.set_forced_ganging(32_768, 0);
            assert!(gang.is_gang() && gang.checksum_kind() == checksum && gang.checksum() == bp.checksum(), "the sum of the same bytes");
            let intact = rig.contents();
            for leaves in subsets(rig.devices.len(), bad) {
                rig.corrupt(&leaves);
                for bp in [&bp, &gang] {
                    assert!(rig.read(bp).is_ok_and(|back| back == data), "{checksum} with {leaves:?} damaged");
                    assert!(rig.scrub(bp).is_ok(), "{checksum} with {leaves:?} damaged");
                }
                let errors = || (0..rig.devices.len()).map(|leaf| rig.checksum_errors(leaf)).sum::<u64>();
                let before = errors();
                assert!(before > 0 && [&bp, &gang].into_iter().all(|bp| rig.scrub(bp).is_ok()));
                assert_eq!(errors(), before, "{checksum}: {leaves:?} are healed");
                rig.devices.iter().zip(&intact).for_each(|(device, bytes)| device.mem.tamper(|now| now[HEAD].copy_from_slice(bytes)));
            }
            for salt in [None, Some(Salt::new([8; 32]))] {
                salt_of(&rig, salt);
                assert_eq!(rig.read(&bp).map_err(|error| error.kind), Err(ErrorKind::Checksum), "{checksum} with another salt, or none");
            }
        }
    }
}

/// Pointers from a damaged disk must give errors, not panics, whatever their bits.
#[test]
fn wild_pointers_are_refused() {
    let rig = Rig::new(inline(), &[(TopKind::Raidz(1), 3)], 12);
    let good = rig.write(request(noise(1, 16384), 1)).expect("the write succeeds");
    let mut random = 1u64;
    for round in 0..20_000 {
        let mut bp = good;
        for _ in 0..1 + round % 4 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bp.0[(random >> 33) as usize % 16] ^= 1 << (random >> 40 & 63);
        }
        if let Ok(data) = rig.read(&bp) {
            assert_eq!(data.len(), bp.lsize(), "{bp:?}");
        }
        rig.zio.free(TXG, &bp);
        rig.zio.wait_frees();
    }
}

/// Flush must report a top-level vdev that lost more than its redundancy, and only then.
#[test]
fn flush_fails_only_beyond_redundancy() {
    let rig = Rig::new(inline(), &[(TopKind::Raidz(1), 3)], 12);
    assert_eq!(rig.zio.flush_wait(), Ok(()));
    rig.kill(&[0], DeviceError::Io);
    assert_eq!(rig.zio.flush_wait(), Ok(()));
    rig.kill(&[1], DeviceError::Io);
    assert_eq!(rig.zio.flush_wait().map_err(|error| error.kind), Err(ErrorKind::Io));
}

/// Tests of gangs on ordinary pools rest on it: forced gangs must be whole ones, and small blocks none.
#[test]
fn gangs_can_be_forced() {
    let rig = Rig::new(inline(), &MIRROR, 12);
    rig.zio.set_forced_ganging(32_768, 100);
    let before = allocated(&rig);
    let (small, large) = (noise(1, 16_384), noise(2, 131_072));
    let (one, gang) = (rig.write(request(small, 1)).expect("written"), rig.write(request(large.clone(), 2)).expect("written"));
    assert!(!one.is_gang() && gang.is_gang());
    assert!(rig.read(&gang).is_ok_and(|back| back == large));
    rig.zio.set_forced_ganging(32_768, 0);
    assert!(!rig.write(request(large, 3)).expect("written").is_gang());
    assert!(allocated(&rig) > before);
}
