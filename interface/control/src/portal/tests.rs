//! The disk of a volume, and its export, in a pool on a simulated device: bytes, shape, reservations, and who may take it away.

use super::export::VolumeExport;
use super::unit::VolumeUnit;
use super::{names, reservations};
use crate::mount::mounts::Mounts;
use crate::volume::{IsServed, Shelf};
use abd::Abd;
use control_api::ErrorKind;
use device::BlockDevice;
use dsl::{CreateDataset, DatasetHandle, DslError};
use exec::{Exec, Inline, SplitMix};
use iscsi::{Disk, Extent, Kept, LogicalUnit, Registration, ReservationStore, Run, UnitError};
use nbd::{Export, ExportError, Piece};
use ondisk::{Guid, ObjsetType};
use pool::{Host, LeafSpec, Pool, PoolSpec, Runtime, TopSpec};
use sim::Sim;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use vdev::{LeafKind, TopKind};
use zpl::direct::Tunables;

const NAME: &str = "tank/vol";
const BLOCK: u64 = 8 << 10;
const BYTES: u64 = 512 << 10;

/// Pool with a volume, and what lends it.
struct Bed {
    exec: Exec,
    pool: Pool,
    shelf: Arc<Shelf>,
    mounts: Mounts,
    tunables: Arc<Tunables>,
    is_served: Arc<AtomicBool>,
}

impl Bed {
    fn new() -> Bed {
        Bed::under(Arc::new(Inline::new(11)))
    }

    fn under(exec: Exec) -> Bed {
        let device = Sim::new(&exec, 5).device("d0", 64 << 20);
        let leaf = LeafSpec { path: device.path().display().to_string(), kind: LeafKind::File, device };
        let tops = vec![TopSpec { kind: TopKind::Leaf, leaves: vec![leaf] }];
        let root = CreateDataset { kind: ObjsetType::ZFS, properties: Vec::new(), init: Box::new(|_, _| Ok(())) };
        let host = Host { id: 1, name: "testhost".to_string() };
        let spec = PoolSpec { ashift: Some(9), host, ..PoolSpec::new("tank", tops, root) };
        let pool = Pool::create(&exec, spec, &Runtime::new()).expect("a pool");
        let properties = [("volsize", BYTES), ("volblocksize", BLOCK)].map(|(name, bytes)| (name.to_string(), bytes.to_string())).to_vec();
        let init = Box::new(|objset: &Arc<dmu::Objset>, tx: &dmu::Tx| dsl::volume::create(objset, BYTES, BLOCK, tx));
        pool.dsl().create_dataset(NAME, CreateDataset { kind: ObjsetType::ZVOL, properties, init }).expect("a volume");
        let (shelf, mounts, tunables, is_served) = (Arc::default(), Mounts::default(), Arc::default(), Arc::default());
        Bed { exec, pool, shelf, mounts, tunables, is_served }
    }

    fn handle(&self) -> DatasetHandle {
        self.pool.dsl().hold(NAME).expect("held")
    }

    fn unit(&self) -> VolumeUnit {
        let served = self.is_served.clone();
        let is_served: IsServed = Arc::new(move || served.load(Ordering::Relaxed));
        let loan = self.shelf.lend_standing(self.handle(), &self.tunables, &self.mounts, is_served).expect("lent");
        VolumeUnit::new(&self.exec, loan, names::identity(Guid(1), Guid(2))).expect("it is there")
    }

    fn export(&self) -> VolumeExport {
        let loan = self.shelf.lend(self.handle(), &self.tunables, &self.mounts).expect("lent");
        VolumeExport::new(&self.exec, loan).expect("it is there")
    }

    fn volume(&self) -> Arc<zvol::Volume> {
        let loan = self.shelf.lend(self.handle(), &self.tunables, &self.mounts).expect("lent");
        loan.volume().expect("it is there")
    }

    /// Kind of the failure of a change that nobody may use the volume for.
    fn leave(&self, force: bool) -> Option<ErrorKind> {
        self.shelf.leave(&self.exec, NAME, "cannot destroy".to_string(), force).err().map(|failure| failure.kind)
    }
}

/// Receiver of an answer, of either door.
type Answer<T, E> = Box<dyn FnOnce(Result<T, E>) + Send>;

/// Answer to a request; nothing waits under one thread.
fn ask<T: Send + 'static, E: Send + 'static>(start: impl FnOnce(Answer<T, E>)) -> Result<T, E> {
    let (sender, receiver) = mpsc::channel();
    start(Box::new(move |result| sender.send(result).expect("somebody asked")));
    receiver.try_recv().expect("it is answered")
}

/// Answer to a request that may wait, and true when it came on the thread that asked.
fn wait<T: Send + 'static, E: Send + 'static>(start: impl FnOnce(Answer<T, E>)) -> (bool, Result<T, E>) {
    let (sender, receiver) = mpsc::channel();
    let asked = std::thread::current().id();
    start(Box::new(move |result| sender.send((std::thread::current().id() == asked, result)).expect("somebody asked")));
    receiver.recv_timeout(Duration::from_secs(60)).expect("it is answered")
}

fn read(unit: &VolumeUnit, at: u64, bytes: u64) -> Result<Vec<u8>, UnitError> {
    ask(|done| unit.read(Extent { at, bytes }, done)).map(|data| data.to_vec())
}

fn write(unit: &VolumeUnit, at: u64, bytes: &[u8]) -> Result<(), UnitError> {
    ask(|done| unit.write(at, Abd::from_slice(bytes), true, done))
}

fn pattern(length: u64) -> Vec<u8> {
    let mut random = SplitMix::new(3);
    (0..length).map(|_| random.next_u64() as u8).collect()
}

/// If this fails, a guest reads other bytes than it wrote, or what it discarded comes back, or goes beside it.
#[test]
fn a_disk_has_the_bytes_of_its_volume() {
    let bed = Bed::new();
    let unit = bed.unit();
    let mut model = vec![0; BYTES as usize];
    let data = pattern(5 * BLOCK);
    write(&unit, BLOCK + 512, &data).expect("written");
    model[BLOCK as usize + 512..][..data.len()].copy_from_slice(&data);
    assert!(read(&unit, 0, BYTES) == Ok(model.clone()));
    let extents = vec![Extent { at: 2 * BLOCK - 512, bytes: BLOCK + 1024 }, Extent { at: 4 * BLOCK, bytes: 512 }];
    for extent in &extents {
        model[extent.at as usize..][..extent.bytes as usize].fill(0);
    }
    assert_eq!(ask(|done| unit.unmap(extents, done)), Ok(()));
    assert!(read(&unit, 0, BYTES) == Ok(model.clone()));
    model[5 * BLOCK as usize..][..BLOCK as usize].fill(0);
    assert_eq!(ask(|done| unit.write_zeroes(Extent { at: 5 * BLOCK, bytes: BLOCK }, false, true, done)), Ok(()));
    assert_eq!(ask(|done| unit.flush(done)), Ok(()));
    bed.pool.sync().expect("synced");
    assert!(read(&unit, 0, BYTES) == Ok(model));
    let status = ask(|done| unit.status(Extent { at: 512, bytes: 7 * BLOCK - 512 }, done)).expect("known");
    let runs = [(BLOCK - 512, false), (BLOCK, true), (BLOCK, false), (2 * BLOCK, true), (BLOCK, false), (BLOCK, true)];
    assert_eq!(status, runs.map(|(bytes, is_mapped)| Run { bytes, is_mapped }));
    assert_eq!(ask(|done| unit.status(Extent { at: BYTES, bytes: 512 }, done)), Err(UnitError::OutOfRange));
}

/// If this fails, each small read of an initiator changes threads although its bytes are in memory; or one that has to wait holds up its connection, and all
/// that others ask for there.
#[test]
fn only_what_is_in_memory_is_answered_where_it_is_asked_for() {
    let bed = Bed::under(Arc::new(exec::Pool::new(2)));
    let (unit, export) = (bed.unit(), bed.export());
    let data = pattern(16 * BLOCK);
    assert_eq!(wait(|done| unit.write(0, Abd::from_slice(&data), false, done)).1, Ok(()));
    let check = |range: std::ops::Range<u64>, is_at_once: bool| {
        let bytes = &data[range.start as usize..range.end as usize];
        let extent = Extent { at: range.start, bytes: range.end - range.start };
        let (here, read) = wait(|done| unit.read(extent, done));
        assert!(here == is_at_once && read.is_ok_and(|read| read.to_vec() == bytes), "{range:?} of a disk");
        let (here, read) = wait(|done| export.read(range.clone(), true, done));
        let read = read.expect("it is there");
        assert!(here == is_at_once && matches!(&read[..], [Piece::Data(read)] if read.to_vec() == bytes), "{range:?} of an export");
    };
    // Acknowledged, in memory, not on disk.
    check(0..4096, true);
    check(BLOCK - 512..3 * BLOCK + 512, true);
    bed.pool.sync().expect("synced");
    check(8 * BLOCK..16 * BLOCK, true);
    check(0..8 * BLOCK + 512, false);
    let (here, read) = wait(|done| unit.read(Extent { at: BYTES - 512, bytes: 1024 }, done));
    assert!(!here && read == Err(UnitError::OutOfRange), "whoever may wait says why");
    bed.volume().dataset().set_props(&[("primarycache".to_string(), "metadata".to_string())]).expect("set");
    check(0..4096, false);
}

/// If this fails, a guest writes behind the end of its disk, or never sees that it grew.
#[test]
fn a_disk_has_the_shape_of_its_volume() {
    let bed = Bed::new();
    let unit = bed.unit();
    let shape = unit.geometry();
    assert_eq!((shape.blocks, shape.block_bytes, shape.physical_exponent), (BYTES / 512, 512, 4));
    assert!(shape.is_thin && !shape.is_read_only);
    let volume = bed.volume();
    volume.resize(2 * BYTES).expect("larger");
    assert_eq!(unit.geometry().blocks, 2 * BYTES / 512);
    assert_eq!(write(&unit, 2 * BYTES - 512, &[1; 512]), Ok(()));
    volume.resize(BYTES / 2).expect("smaller");
    assert_eq!(unit.geometry().blocks, BYTES / 2 / 512);
    assert_eq!(write(&unit, BYTES / 2, &[1; 512]), Err(UnitError::OutOfRange));
    assert_eq!(read(&unit, BYTES / 2 - 512, 1024), Err(UnitError::OutOfRange));
    volume.set_settings(zvol::Settings { read_only: true, ..zvol::Settings::default() });
    assert!(unit.geometry().is_read_only);
    assert_eq!(write(&unit, 0, &[1; 512]), Err(UnitError::ReadOnly));
}

/// If this fails, a cluster's reservations are lost with the daemon, or come from another volume.
#[test]
fn reservations_are_kept_with_the_volume() {
    let bed = Bed::new();
    let unit = bed.unit();
    let kept = Kept {
        generation: 3,
        registrations: vec![Registration { transport: "iqn.2026-11.example:a,i,0x000000000001".to_string(), key: 7 }],
        reservation: None,
    };
    assert_eq!(reservations::load(&bed.handle()), Ok(None));
    assert_eq!(ask(|done| unit.save(Some(kept.clone()), done)), Ok(()));
    assert_eq!(reservations::load(&bed.handle()), Ok(Some(kept.clone())));
    let many = vec![Registration { transport: "x".repeat(100), key: 1 }; 100];
    assert_eq!(ask(|done| unit.save(Some(Kept { registrations: many, ..kept.clone() }), done)), Err(UnitError::Unwritable));
    assert_eq!(reservations::load(&bed.handle()), Ok(Some(kept)), "what does not fit changes nothing");
    assert_eq!(ask(|done| unit.save(None, done)), Ok(()));
    assert_eq!(reservations::load(&bed.handle()), Ok(None));
}

/// If this fails, reservations that nothing shows any more lock initiators out, or those of an initiator without a right stay on disk.
#[test]
fn reservations_follow_the_property_and_the_right() {
    const PROPERTY: &str = "zirconia:iscsi.reservations";
    let bed = Bed::new();
    let unit = Arc::new(bed.unit());
    let transport = "iqn.2026-11.example:a,i,0x000000000001".to_string();
    let registrations = vec![Registration { transport: transport.clone(), key: 7 }];
    let kept = Kept { generation: 1, registrations, reservation: Some((transport, 1)) };
    let save = || assert_eq!(ask(|done| unit.save(Some(kept.clone()), done)), Ok(()));
    let disk = Disk::new(unit.clone(), unit.clone(), Some(kept.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let follow = || runtime.block_on(unit.follow_kept(&disk));
    save();
    assert!(!follow(), "it is as it was written");
    bed.handle().inherit_prop(PROPERTY).expect("removed");
    assert!(follow() && !follow());
    save();
    assert!(follow() && !follow());
    bed.handle().set_props(&[(PROPERTY.to_string(), "nonsense".to_string())]).expect("set");
    assert!(follow() && !follow());
    save();
    assert_eq!(reservations::strip(&bed.handle(), "iqn.2026-11.example:b"), Ok(false));
    assert_eq!(reservations::strip(&bed.handle(), "iqn.2026-11.example:a"), Ok(true));
    assert!(reservations::load(&bed.handle()).is_ok_and(|kept| kept.is_some_and(|kept| kept.registrations.is_empty())));
}

/// If this fails, a volume is destroyed under a guest that uses it, or none can be that is merely offered.
#[test]
fn a_volume_that_is_offered_gives_way_and_one_that_is_used_does_not() {
    let bed = Bed::new();
    let unit = bed.unit();
    bed.is_served.store(true, Ordering::Relaxed);
    assert_eq!(bed.leave(false), Some(ErrorKind::Busy));
    assert_eq!(read(&unit, 0, 512), Ok(vec![0; 512]));
    bed.is_served.store(false, Ordering::Relaxed);
    // A file of it is open.
    let loan = bed.shelf.lend(bed.handle(), &bed.tunables, &bed.mounts).expect("lent");
    assert_eq!(bed.leave(false), Some(ErrorKind::Busy));
    drop(loan);
    assert!(unit.is_there());
    assert_eq!(bed.leave(false), None);
    assert!(!unit.is_there());
    assert_eq!(read(&unit, 0, 512), Err(UnitError::Gone));
    assert_eq!(unit.geometry().blocks, BYTES / 512, "what initiators know stays until they are told");
    drop(unit);
    let away = bed.shelf.leave(&bed.exec, "tank", "cannot export".to_string(), false);
    let lent = bed.shelf.lend_standing(bed.handle(), &bed.tunables, &bed.mounts, Arc::new(|| false));
    assert_eq!(lent.map(drop), Err(DslError::Busy), "it is about to go");
    drop(away);
    let unit = bed.unit();
    bed.is_served.store(true, Ordering::Relaxed);
    assert_eq!(bed.leave(true), None);
    assert_eq!(read(&unit, 0, 512), Err(UnitError::Gone));
    bed.pool.dsl().destroy_dataset(NAME).expect("nobody holds it");
}

/// Bytes of a range of an export; in pieces, or as one.
fn pieces(export: &VolumeExport, range: std::ops::Range<u64>, is_whole: bool) -> Result<(Vec<Piece>, Vec<u8>), ExportError> {
    let pieces = ask(|done| export.read(range, is_whole, done))?;
    let bytes = |piece: &Piece| match piece {
        Piece::Data(data) => data.to_vec(),
        Piece::Hole(bytes) => vec![0; *bytes as usize],
        Piece::Lost(..) => panic!("nothing is lost here"),
    };
    let all = pieces.iter().flat_map(bytes).collect();
    Ok((pieces, all))
}

/// If this fails, a client of NBD reads other bytes than it wrote, or takes holes for data, or data for holes.
#[test]
fn an_export_has_the_bytes_and_holes_of_its_volume() {
    let bed = Bed::new();
    let export = bed.export();
    let mut model = vec![0; BYTES as usize];
    let data = pattern(20 * BLOCK);
    let put = |at: u64, bytes: &[u8]| ask(|done| export.write(at, Abd::from_slice(bytes), true, done));
    assert_eq!(put(4 * BLOCK + 100, &data), Ok(()));
    model[4 * BLOCK as usize + 100..][..data.len()].copy_from_slice(&data);
    for is_synced in [false, true] {
        let (found, all) = pieces(&export, 0..BYTES, false).expect("read");
        assert!(all == model, "{is_synced}");
        assert_eq!((&found[0], found.len()), (&Piece::Hole(4 * BLOCK), 3));
        let (found, all) = pieces(&export, 0..BYTES, true).expect("read");
        assert!(found.len() == 1 && all == model);
        bed.pool.sync().expect("synced");
    }
    // Whole blocks are let go, and nothing else.
    assert_eq!(ask(|done| export.trim(5 * BLOCK - 10..6 * BLOCK + 10, false, done)), Ok(()));
    model[5 * BLOCK as usize..6 * BLOCK as usize].fill(0);
    for (range, keeps_space) in [(7 * BLOCK + 1..9 * BLOCK, false), (11 * BLOCK..12 * BLOCK + 5, true)] {
        model[range.start as usize..range.end as usize].fill(0);
        assert_eq!(ask(|done| export.write_zeroes(range, keeps_space, true, done)), Ok(()));
    }
    assert_eq!(ask(|done| export.flush(done)), Ok(()));
    assert_eq!(ask(|done| export.cache(0..BYTES, done)), Ok(()));
    assert!(pieces(&export, 0..BYTES, false).is_ok_and(|(_, all)| all == model));
    let runs = ask(|done| export.status(4 * BLOCK..7 * BLOCK, 2, done)).expect("known");
    assert_eq!(runs, [(BLOCK, true), (BLOCK, false)].map(|(bytes, is_stored)| nbd::Run { bytes, is_stored }));
    assert_eq!(put(BYTES - 1, &[1; 2]), Err(ExportError::OutOfRange));
}

/// If this fails, a volume goes while a client of NBD uses it, or the client never hears that it went.
#[test]
fn an_export_keeps_its_volume_until_it_is_taken_away() {
    let bed = Bed::new();
    let export = bed.export();
    assert_eq!(bed.leave(false), Some(ErrorKind::Busy));
    assert_eq!((export.shape().bytes, export.shape().block_bytes, export.shape().is_read_only), (BYTES, BLOCK as u32, false));
    bed.volume().set_settings(zvol::Settings { read_only: true, ..zvol::Settings::default() });
    assert!(export.shape().is_read_only);
    assert_eq!(ask(|done| export.trim(0..BLOCK, false, done)), Err(ExportError::ReadOnly));
    assert_eq!(bed.leave(true), None);
    assert_eq!(pieces(&export, 0..512, true).err(), Some(ExportError::Gone));
    assert_eq!(export.shape().bytes, BYTES, "what the client knows stays");
    drop(export);
    assert_eq!(bed.leave(false), None);
}
