//! Direct I/O on whole pools: mixed with everything else on every layout; failing devices; and users who change their buffers
//! underneath. What is lost when these fail: acknowledged data, or a healthy device that is called broken.
use crate::common::{host, opened, tops};
use abd::{Abd, SharedPages};
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, MemDevice};
use dmu::{BlockError, DmuError, Dnode, NewObject};
use dsl::{CreateDataset, TxSpace};
use exec::{Exec, Inline, Mutex};
use kstat::EventLog;
use need::pattern;
use ondisk::{ObjectId, ObjectType, ObjsetType};
use pool::{ImportOptions, Pool, PoolSpec, Runtime};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vdev::TopKind;
use zio::ChangedBuffers;

/// Called with each I/O before (false) and after (true) the device did it; an error takes the device's place.
type Hook = Box<dyn FnMut(&DeviceOp, bool) -> Result<(), DeviceError> + Send>;

/// A device in memory with somebody who interferes.
struct Hooked {
    inner: MemDevice,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

/// Operation of which only kind and length are left, for a hook to look at after the I/O.
fn shape(op: &DeviceOp) -> DeviceOp {
    match op {
        DeviceOp::Read(_) => DeviceOp::Read(Vec::new()),
        DeviceOp::Write(data) => DeviceOp::Trim { length_bytes: data.len() as u64 },
        DeviceOp::Flush => DeviceOp::Flush,
        DeviceOp::Trim { length_bytes } => DeviceOp::Trim { length_bytes: *length_bytes },
    }
}

impl BlockDevice for Hooked {
    fn submit(&self, io: DeviceIo) {
        let call = |op: &DeviceOp, after| self.hook.lock().as_mut().map_or(Ok(()), |hook| hook(op, after));
        if let Err(error) = call(&io.op, false) {
            return io.fail(error);
        }
        let DeviceIo { op, offset, then, .. } = io;
        let after = shape(&op);
        let hook = self.hook.clone();
        self.inner.submit(DeviceIo::new(op, offset, move |reply| {
            let _ = hook.lock().as_mut().map_or(Ok(()), |hook| hook(&after, true));
            then(reply);
        }));
    }
    fn facts(&self) -> &DeviceFacts {
        self.inner.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
}

type Layout = Vec<(TopKind, usize)>;

struct Machine {
    devices: Vec<Arc<Hooked>>,
    hook: Arc<Mutex<Option<Hook>>>,
    events: Arc<EventLog>,
}

impl Machine {
    fn new(layout: &Layout, bytes: usize) -> Machine {
        let hook = Arc::new(Mutex::new(None));
        let count = layout.iter().map(|(_, count)| count).sum();
        let device = |index: usize| Arc::new(Hooked { inner: MemDevice::new(&format!("d{index}"), bytes), hook: hook.clone() });
        let events = Arc::new(EventLog::new(1000, Box::new(|| (0, 0))));
        Machine { devices: (0..count).map(device).collect(), hook: hook.clone(), events }
    }

    fn runtime(&self) -> Runtime {
        Runtime { events: self.events.clone(), ..Runtime::new() }
    }

    fn create(&self, layout: &Layout, properties: &[(&str, &str)]) -> Pool {
        let exec: Exec = Arc::new(Inline::new(7));
        let tops = tops(layout, &self.devices);
        let dataset = |properties: &[(&str, &str)]| CreateDataset {
            kind: ObjsetType::ZFS,
            properties: properties.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            init: Box::new(|_, _| Ok(())),
        };
        let spec = PoolSpec { ashift: Some(12), host: host(), ..PoolSpec::new("tank", tops, dataset(&[])) };
        let pool = Pool::create(&exec, spec, &self.runtime()).expect("created");
        pool.dsl().create_dataset("tank/fs", dataset(properties)).expect("a file system");
        pool
    }

    fn import(&self) -> Pool {
        let exec: Exec = Arc::new(Inline::new(8));
        let options = ImportOptions { host: host(), ..ImportOptions::default() };
        Pool::import(&exec, opened(&self.devices), &options, &self.runtime()).expect("imported")
    }

    fn interfere(&self, hook: impl FnMut(&DeviceOp, bool) -> Result<(), DeviceError> + Send + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }
    fn stop(&self) {
        *self.hook.lock() = None;
    }
    fn events(&self, class: &str) -> usize {
        self.events.since(0).iter().filter(|logged| logged.event.class == class).count()
    }
}

fn new_file(pool: &Pool, block_size: usize) -> Arc<Dnode> {
    let fs = pool.dsl().hold("tank/fs").expect("held");
    let tx = fs.assign(TxSpace::Writes(1 << 20)).expect("a transaction");
    let new = NewObject { block_size, ..NewObject::new(ObjectType::PLAIN_FILE_CONTENTS) };
    fs.objset().expect("open").allocate_object(new, &tx).expect("allocated")
}

fn file(pool: &Pool, object: ObjectId) -> Arc<Dnode> {
    pool.dsl().hold("tank/fs").expect("held").objset().expect("open").hold(object).expect("the file is there")
}

fn tx(pool: &Pool, bytes: usize) -> dmu::Tx {
    pool.dsl().hold("tank/fs").expect("held").assign(TxSpace::Writes(bytes as u64)).expect("a transaction")
}

fn check_clean(pool: &Pool) {
    pool.sync().expect("synced");
    let report = pool.verify_space().expect("readable");
    assert!(report.is_clean(), "{report:?}");
    assert!(pool.status().leaves.iter().all(|leaf| leaf.counts.checksum_errors == 0 && leaf.counts.errors == [0; 4]));
}

fn layouts() -> Vec<Layout> {
    vec![
        vec![(TopKind::Leaf, 1)],
        vec![(TopKind::Leaf, 1); 3],
        vec![(TopKind::Mirror, 2)],
        vec![(TopKind::Raidz(1), 3)],
        vec![(TopKind::Raidz(2), 6)],
        vec![(TopKind::Raidz(3), 8)],
    ]
}

/// Random numbers that choose the steps of a program.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A file, what it should hold, and the steps that change both.
fn step(pool: &Pool, dnode: &Arc<Dnode>, model: &mut [u8], block: usize, random: &mut Random, number: u64) {
    let blocks = model.len() / block;
    let first = random.below(blocks as u64) as usize;
    let count = 1 + random.below(4.min((blocks - first) as u64)) as usize;
    let (start, end) = (first * block, (first + count) * block);
    let offset = start + random.below(block as u64) as usize;
    let part = 1 + random.below((end - offset) as u64) as usize;
    match random.below(8) {
        0..=2 => {
            let bytes = if random.below(8) == 0 { vec![0; end - start] } else { pattern(end - start, number) };
            dnode.write_direct(start as u64, &bytes, &tx(pool, bytes.len())).expect("direct write");
            model[start..end].copy_from_slice(&bytes);
        }
        3 => {
            let pages = SharedPages::new(end - start);
            let bytes = pattern(end - start, number);
            pages.write(0, &bytes);
            dnode.write_direct_abd(start as u64, pages.abd(0..end - start), &tx(pool, end - start)).expect("direct write");
            model[start..end].copy_from_slice(&bytes);
        }
        4 | 5 => {
            let bytes = pattern(part, number);
            dnode.write(offset as u64, &bytes, &tx(pool, part)).expect("buffered write");
            model[offset..offset + part].copy_from_slice(&bytes);
        }
        6 => {
            dnode.free_range(offset as u64, part as u64, &tx(pool, 0)).expect("punched");
            model[offset..offset + part].fill(0);
        }
        _ => match random.below(3) {
            0 => pool.dsl().snapshot(&[format!("tank/fs@s{number}")], Vec::new()).expect("snapshot"),
            _ => pool.sync().expect("synced"),
        },
    }
    let mut out = vec![0xEE; part];
    dnode.read_direct_into(offset as u64, &mut out).expect("direct read");
    assert!(out == model[offset..offset + part], "step {number}: direct read of {part} at {offset}");
    let pages = SharedPages::new(end - start);
    dnode.read_direct_pages(start as u64, &pages, 0..end - start).expect("direct read into pages");
    assert!(pages.abd(0..end - start).to_vec() == model[start..end], "step {number}: pages");
    if random.below(3) == 0 {
        dnode.read(offset as u64, &mut out).expect("read");
        assert!(out == model[offset..offset + part], "step {number}: buffered read of {part} at {offset}");
    }
}

#[test]
fn every_layout_mixes_direct_with_buffered_io() {
    for (number, layout) in layouts().into_iter().enumerate() {
        for (block, compression) in [(4096, "off"), (4096, "lz4"), (32 << 10, "off"), (1 << 20, "off"), (128 << 10, "zstd")] {
            let machine = Machine::new(&layout, 128 << 20);
            let pool = machine.create(&layout, &[("compression", compression)]);
            let dnode = new_file(&pool, block);
            let object = dnode.object();
            let mut model = vec![0; block * if block > 100_000 { 6 } else { 20 }];
            let mut random = Random(number as u64);
            for step_number in 0..40 {
                step(&pool, &dnode, &mut model, block, &mut random, step_number);
            }
            check_clean(&pool);
            drop(dnode);
            pool.export().expect("exported");
            let pool = machine.import();
            let dnode = file(&pool, object);
            for direct in [true, false] {
                let mut out = vec![0; model.len()];
                if direct { dnode.read_direct_into(0, &mut out) } else { dnode.read(0, &mut out) }.expect("read");
                assert!(out == model, "{layout:?} {block} {compression}: after the import, direct {direct}");
            }
            for step_number in 40..50 {
                step(&pool, &dnode, &mut model, block, &mut random, step_number);
            }
            check_clean(&pool);
            drop(dnode);
            pool.export().expect("exported");
        }
    }
}

/// The path that is called zero-copy copies nothing: neither whole blocks nor, beyond what was asked for, parts of them.
#[test]
fn uncompressed_direct_io_copies_nothing() {
    for layout in [vec![(TopKind::Leaf, 1); 2], vec![(TopKind::Raidz(2), 6)]] {
        let machine = Machine::new(&layout, 128 << 20);
        let pool = machine.create(&layout, &[("compression", "off")]);
        let dnode = new_file(&pool, 128 << 10);
        let bytes = pattern(1 << 20, 3);
        dnode.write_direct(0, &bytes, &tx(&pool, bytes.len())).expect("written");
        pool.sync().expect("synced");
        let mut out = vec![0; bytes.len()];
        let addresses = Arc::new(Mutex::new((Vec::new(), bytes.as_ptr() as usize..bytes.as_ptr() as usize + bytes.len())));
        let seen = addresses.clone();
        let span = out.as_ptr() as usize..out.as_ptr() as usize + out.len();
        machine.interfere(move |op, after| {
            let mut seen = seen.lock();
            match op {
                DeviceOp::Write(data) if !after => {
                    let inside: usize =
                        data.extents().filter(|(address, _)| seen.1.contains(&(*address as usize))).map(|(_, length)| length).sum();
                    seen.0.push(inside);
                }
                DeviceOp::Read(parts) if !after => {
                    seen.0.extend(parts.iter().filter(|part| span.contains(&(part.as_ptr() as usize))).map(|part| part.len()));
                }
                _ => {}
            }
            Ok(())
        });
        let transaction = tx(&pool, bytes.len());
        dnode.write_direct(0, &bytes, &transaction).expect("written");
        drop(transaction);
        let written: usize = std::mem::take(&mut addresses.lock().0).into_iter().sum();
        assert_eq!(written, bytes.len(), "{layout:?}: devices write from the caller's memory");
        dnode.read_direct_into(0, &mut out).expect("read");
        let read: usize = addresses.lock().0.iter().sum();
        assert_eq!(read, bytes.len(), "{layout:?}: devices read into the caller's memory");
        assert!(out == bytes);
        machine.stop();
        let stats = pool.iostats();
        assert_eq!((stats.direct_write.get(), stats.direct_read.get()), ((16, 2 << 20), (8, 1 << 20)));
    }
}

/// A direct write that fails must leave what was acknowledged before, also when that is only in memory (OpenZFS loses it), and
/// must not leak.
#[test]
fn a_failed_direct_write_keeps_what_was_there() {
    // Many blocks: neighbours share device writes, and some of those must succeed before one fails.
    const LENGTH: usize = 1 << 20;
    let layout = vec![(TopKind::Leaf, 1)];
    for (compression, failing) in [("off", 0), ("off", 2), ("lz4", 1)] {
        let machine = Machine::new(&layout, 128 << 20);
        let pool = machine.create(&layout, &[("compression", compression)]);
        let dnode = new_file(&pool, 16 << 10);
        let old = pattern(LENGTH, 1);
        dnode.write(0, &old, &tx(&pool, old.len())).expect("buffered");
        let mut count = 0;
        machine.interfere(move |op, after| {
            if matches!(op, DeviceOp::Write(_)) && !after {
                count += 1;
                // What fails is tried again in its pieces and elsewhere: from the chosen write on everything fails.
                return if count > failing { Err(DeviceError::Io) } else { Ok(()) };
            }
            Ok(())
        });
        let result = dnode.write_direct(0, &pattern(LENGTH, 2), &tx(&pool, LENGTH));
        machine.stop();
        assert_eq!(result, Err(DmuError::from(BlockError::Io)));
        assert!(!pool.status().suspended, "a write that somebody waits for does not suspend the pool");
        for number in 0..2 {
            let mut out = vec![0; old.len()];
            dnode.read_direct_into(0, &mut out).expect("read");
            assert!(out == old, "{compression} {failing} {number}: the acknowledged bytes are there");
            pool.sync().expect("synced");
        }
        assert!(pool.verify_space().expect("readable").is_clean());
        let new = pattern(LENGTH, 3);
        dnode.write_direct(0, &new, &tx(&pool, new.len())).expect("it works again");
        dnode.write(5, b"later", &tx(&pool, 5)).expect("buffered over direct, same txg");
        let mut out = vec![0; 20];
        dnode.read(0, &mut out).expect("read");
        assert!(out[..5] == new[..5] && &out[5..10] == b"later" && out[10..] == new[10..20]);
        pool.sync().expect("synced");
        assert!(pool.verify_space().expect("readable").is_clean());
    }
}

/// A full pool is an error of the write, not the end of the pool, and everything written before stays.
#[test]
fn no_space_is_an_error_of_the_write() {
    let layout = vec![(TopKind::Leaf, 1)];
    let machine = Machine::new(&layout, 64 << 20);
    let pool = machine.create(&layout, &[("compression", "off")]);
    let dnode = new_file(&pool, 1 << 20);
    let mut written = 0;
    let error = loop {
        let Ok(tx) = pool.dsl().hold("tank/fs").expect("held").assign(TxSpace::Writes(1 << 20)) else { break None };
        match dnode.write_direct(written << 20, &pattern(1 << 20, written), &tx) {
            Ok(()) => written += 1,
            Err(error) => break Some(error),
        }
    };
    assert!(error.is_none_or(|error| error == DmuError::from(BlockError::NoSpace)), "{error:?}");
    assert!(written > 10 && !pool.status().suspended);
    check_clean(&pool);
    for number in 0..written {
        assert!(dnode.read_direct(number << 20, 1 << 20).expect("read") == Abd::from_slice(&pattern(1 << 20, number)));
    }
}

/// Overwriting one place over and over must not fill the pool with what was overwritten.
#[test]
fn overwrites_do_not_run_out_of_space() {
    let layout = vec![(TopKind::Leaf, 1)];
    let machine = Machine::new(&layout, 64 << 20);
    let pool = machine.create(&layout, &[("compression", "off")]);
    let dnode = new_file(&pool, 256 << 10);
    let mut last = Vec::new();
    for number in 0..600 {
        last = pattern(512 << 10, number);
        if dnode.write_direct(0, &last, &tx(&pool, last.len())).is_err() {
            // What the file system does: the space comes back with the txgs.
            (0..3).for_each(|_| pool.sync().expect("synced"));
            dnode.write_direct(0, &last, &tx(&pool, last.len())).expect("there is space again");
        }
    }
    let mut out = vec![0; last.len()];
    dnode.read(0, &mut out).expect("read");
    assert!(out == last);
    check_clean(&pool);
}

fn sum_of_verify_errors(pool: &Pool) -> u64 {
    pool.status().dio_verify_errors.iter().sum()
}

/// A guest that changes its buffer during a write: what is on disk must verify, and no device may be blamed.
#[test]
fn a_buffer_changed_during_a_write_is_written_from_a_copy() {
    for layout in layouts() {
        let machine = Machine::new(&layout, 128 << 20);
        let pool = machine.create(&layout, &[("compression", "off")]);
        let dnode = new_file(&pool, 128 << 10);
        let pages = SharedPages::new(512 << 10);
        pages.write(0, &pattern(512 << 10, 1));
        let (guest, mut changed) = (pages.clone(), 0u8);
        machine.interfere(move |op, after| {
            if matches!(op, DeviceOp::Write(data) if data.is_unstable()) && !after && changed < 1 {
                changed += 1;
                (0..512 << 10).step_by(64 << 10).for_each(|at| guest.write(at + 100, &[changed; 8]));
            }
            Ok(())
        });
        dnode.write_direct_abd(0, pages.abd(0..512 << 10), &tx(&pool, 512 << 10)).expect("written all the same");
        machine.stop();
        assert!(sum_of_verify_errors(&pool) > 0, "{layout:?}: counted");
        let file = pool.zio().changed_buffers(None, Some(dnode.object())).writes;
        assert!(file.0 > 0 && file.1 == file.0 * (128 << 10), "{layout:?}: counted for the file, {file:?}");
        assert!(machine.events("ereport.fs.zfs.dio_verify_wr") > 0, "{layout:?}: told");
        let mut now = vec![0; 512 << 10];
        pages.read(0, &mut now);
        assert!(dnode.read_direct(0, 512 << 10).expect("it verifies").to_vec() == now, "{layout:?}: the buffer as it is now");
        check_clean(&pool);
        pool.scrub_start().expect("started");
        pool.scrub_wait().expect("scrubbed");
        check_clean(&pool);
        pool.clear_errors(None);
        assert_eq!(sum_of_verify_errors(&pool), 0);
        // Strict: as OpenZFS, an error; and what was there stays.
        pool.direct_parameters().write_verify_strict.store(1, Ordering::Relaxed);
        let guest = pages.clone();
        machine.interfere(move |op, after| {
            if matches!(op, DeviceOp::Write(data) if data.is_unstable()) && !after {
                guest.write(100, &[0xEE; 8]);
            }
            Ok(())
        });
        let result = dnode.write_direct_abd(0, pages.abd(0..128 << 10), &tx(&pool, 128 << 10));
        machine.stop();
        assert_eq!(result, Err(DmuError::from(BlockError::Io)));
        assert!(dnode.read_direct(0, 512 << 10).expect("read").to_vec() == now);
        check_clean(&pool);
    }
}

/// Without the check a changed buffer is a bad block on disk: this is what the parameter is for.
#[test]
fn the_check_is_what_protects() {
    let layout = vec![(TopKind::Leaf, 1)];
    let machine = Machine::new(&layout, 128 << 20);
    let pool = machine.create(&layout, &[("compression", "off")]);
    let dnode = new_file(&pool, 128 << 10);
    pool.direct_parameters().write_verify.store(0, Ordering::Relaxed);
    let pages = SharedPages::new(128 << 10);
    let guest = pages.clone();
    machine.interfere(move |op, after| {
        if matches!(op, DeviceOp::Write(data) if data.is_unstable()) && !after {
            guest.write(100, &[1; 8]);
        }
        Ok(())
    });
    dnode.write_direct_abd(0, pages.abd(0..128 << 10), &tx(&pool, 128 << 10)).expect("written");
    machine.stop();
    assert_eq!(dnode.read_direct(0, 4096).err(), Some(DmuError::from(BlockError::Checksum)));
    assert_eq!(sum_of_verify_errors(&pool), 0);
}

/// A guest that changes its buffer during a read gets the block's bytes in the end, and no device is blamed or "healed".
#[test]
fn a_buffer_changed_during_a_read_is_read_again_apart() {
    for layout in layouts() {
        let machine = Machine::new(&layout, 128 << 20);
        let pool = machine.create(&layout, &[("compression", "off")]);
        let dnode = new_file(&pool, 128 << 10);
        let bytes = pattern(256 << 10, 9);
        dnode.write_direct(0, &bytes, &tx(&pool, bytes.len())).expect("written");
        pool.sync().expect("synced");
        let pages = SharedPages::new(bytes.len());
        let (guest, before) = (pages.clone(), machine.devices[0].inner.contents());
        machine.interfere(move |op, after| {
            if matches!(op, DeviceOp::Read(_)) && after {
                (0..256 << 10).step_by(16 << 10).for_each(|at| guest.write(at, &[0x5A; 8]));
            }
            Ok(())
        });
        dnode.read_direct_pages(0, &pages, 0..bytes.len()).expect("read all the same");
        machine.stop();
        assert!(pages.abd(0..bytes.len()).to_vec() == bytes, "{layout:?}");
        assert_eq!(sum_of_verify_errors(&pool), 2, "{layout:?}: once per block");
        let objset = pool.dsl().hold("tank/fs").expect("held").objset().expect("open").id();
        let changed = pool.zio().changed_buffers(Some(objset), None);
        assert_eq!((changed.reads, changed.writes), ((2, 256 << 10), (0, 0)), "{layout:?}: counted for the file system");
        assert_eq!(pool.zio().changed_buffers(None, Some(ObjectId(dnode.object().0 + 1))), ChangedBuffers::default());
        assert_eq!(machine.events("ereport.fs.zfs.dio_verify_rd"), 2);
        assert_eq!(machine.events("ereport.fs.zfs.checksum"), 0);
        assert!(machine.devices[0].inner.contents() == before, "{layout:?}: nothing was healed");
        check_clean(&pool);
    }
}

/// A device that really returns wrong bytes is found out by a direct read as by any other: reconstructed, counted, healed.
#[test]
fn wrong_bytes_of_a_device_are_healed_by_direct_reads() {
    for layout in [vec![(TopKind::Mirror, 2)], vec![(TopKind::Raidz(1), 3)], vec![(TopKind::Raidz(2), 6)]] {
        let machine = Machine::new(&layout, 128 << 20);
        let pool = machine.create(&layout, &[("compression", "off")]);
        let dnode = new_file(&pool, 128 << 10);
        let bytes = pattern(512 << 10, 4);
        dnode.write_direct(0, &bytes, &tx(&pool, bytes.len())).expect("written");
        pool.sync().expect("synced");
        let mut found = 0;
        for damaged in 0..machine.devices.len() {
            let before = machine.devices[damaged].inner.contents();
            machine.devices[damaged].inner.tamper(|bytes| bytes[4 << 20..127 << 20].chunks_mut(4096).for_each(|sector| sector[17] ^= 1));
            let mut out = vec![0; bytes.len()];
            dnode.read_direct_into(0, &mut out).expect("redundancy");
            assert!(out == bytes, "{layout:?}");
            let pages = SharedPages::new(bytes.len());
            dnode.read_direct_pages(0, &pages, 0..bytes.len()).expect("redundancy");
            assert!(pages.abd(0..bytes.len()).to_vec() == bytes, "{layout:?}");
            let counts: Vec<u64> = pool.status().leaves.iter().map(|leaf| leaf.counts.checksum_errors).collect();
            assert_eq!(counts.iter().sum::<u64>(), counts[damaged], "{layout:?}: {counts:?}");
            found += counts[damaged];
            pool.clear_errors(None);
            machine.devices[damaged].inner.tamper(|bytes| *bytes = before);
        }
        assert!(found > 0, "{layout:?}");
    }
}

/// If this fails, `zpool status -v` is silent about files that programs already got errors from.
#[test]
fn what_a_direct_read_finds_lost_is_in_the_error_log() {
    let layout = vec![(TopKind::Leaf, 1)];
    let machine = Machine::new(&layout, 128 << 20);
    let pool = machine.create(&layout, &[("compression", "off")]);
    let dnode = new_file(&pool, 128 << 10);
    let bytes = pattern(256 << 10, 5);
    dnode.write_direct(0, &bytes, &tx(&pool, bytes.len())).expect("written");
    for is_synced in [false, true] {
        if is_synced {
            pool.sync().expect("synced");
        }
        pool.zio().inject(
            1,
            zio::Fault::Blocks {
                objset: ondisk::ObjsetId(pool.dsl().hold("tank/fs").expect("held").object()),
                object: dnode.object(),
                level: 0,
                blocks: u64::from(is_synced)..=u64::from(is_synced),
                copies: 0,
                error: zio::FaultError::Checksum,
            },
            0,
        );
        let mut out = vec![0; bytes.len()];
        assert!(dnode.read_direct_into(0, &mut out).is_err());
        assert!(pool.zio().clear_injection(1));
        pool.sync().expect("synced");
        assert_eq!(pool.damaged_counted().expect("read").0, 1 + u64::from(is_synced));
    }
}
