//! The port of stages: whatever a stage answers, and whenever, the pipeline writes the block, once, with the bytes that it was given.

use crate::common::*;
use abd::Abd;
use device::{DeviceError, DeviceOp};
use exec::{Exec, Mutex, TaskClass};
use ondisk::{Checksum, Compression, Dva, Guid, ObjsetId, VdevId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vdev::{ComputedRow, LostRow, TopKind};
use zio::{
    Answer, AnswerThen, Claims, ErrorKind, FirstRound, Landed, LeafPort, Made, Packed, Physical, PoolView, Ready, SecondRound, Shape,
    Software, Stage, WriteRequest,
};

/// Round in which a stage gives a block back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gives {
    First,
    Second,
    Lies,
    /// In the second round, and goes on with it.
    Astray,
    Nothing,
}

/// Software that answers late, keeps the bytes to itself between the rounds, and gives blocks back.
#[derive(Clone)]
struct Late {
    exec: Exec,
    gives: Gives,
    asked: Arc<AtomicU64>,
    /// Addresses to which it may still write, and who waits for the end of that.
    astray: Arc<Mutex<Astray>>,
}

#[derive(Default)]
struct Astray {
    dvas: Vec<Dva>,
    waiting: Vec<Box<dyn FnOnce() + Send>>,
}

impl Late {
    fn later<T: Send + 'static>(&self, answer: T) -> Answer<T> {
        let exec = self.exec.clone();
        Answer::later(move |then| exec.spawn(TaskClass::Write, Box::new(move || then(answer))))
    }
}

impl FirstRound for Late {
    fn compress(self: Box<Self>, view: &PoolView, request: &WriteRequest) -> Answer<Shape> {
        let Answer::Now(shape) = Box::new(Software).compress(view, request) else { panic!("software answers at once") };
        let shape = match shape {
            _ if self.gives == Gives::First => Shape::Again,
            Shape::Physical(Physical { data: Some(data), psize, compression, .. }) => {
                let round = Box::new(Second { late: (*self).clone(), data });
                Shape::Physical(Physical { data: None, psize, compression, round })
            }
            shape => shape,
        };
        self.later(shape)
    }
}

struct Second {
    late: Late,
    data: Abd,
}

impl SecondRound for Second {
    fn parity(self: Box<Self>, _: &PoolView, dvas: &[Dva; 3]) -> Answer<Made> {
        if self.late.gives != Gives::Astray {
            return self.retrieve();
        }
        let astray = self.late.astray.clone();
        astray.lock().dvas.extend(dvas.iter().filter(|dva| !dva.is_empty()));
        self.late.later(Made::Astray(Box::new(move |onward| astray.lock().waiting.push(onward))))
    }

    fn retrieve(self: Box<Self>) -> Answer<Made> {
        let claims = Some(Box::new(Said(self.late.gives != Gives::Lies)) as Box<dyn Claims>);
        let made = match self.late.gives {
            Gives::Second => Made::Again,
            _ => Made::Ready(Ready { data: Some(self.data), parity: Vec::new(), claims }),
        };
        self.late.later(made)
    }
}

/// Claims that are true, or not.
struct Said(bool);

impl Claims for Said {
    fn trusts_parity(&self) -> bool {
        true
    }
    fn note_parity(&self, _: bool) {}
    fn are_borne_out(&self, _: Checksum, _: [u64; 4], _: &Abd) -> bool {
        self.0
    }
}

impl Stage for Late {
    fn write(&self, _: &PoolView, _: &WriteRequest) -> Option<Box<dyn FirstRound>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(self.clone()))
    }
    fn decompress(&self, block: Packed) -> Answer<Result<Landed, ErrorKind>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match Software.decompress(block) {
            Answer::Now(result) => self.later(result),
            later => later,
        }
    }
    fn reconstructs(&self) -> bool {
        false
    }
    fn reconstruct(&self, _: Vec<LostRow>, _: bool) -> Answer<Vec<ComputedRow>> {
        Answer::Now(Vec::new())
    }
    /// A leaf that nobody has gives an error, and nothing else.
    fn open_stores(&self, _: &PoolView, leaves: Arc<dyn LeafPort>) {
        let asked = self.asked.clone();
        let then: AnswerThen<Vec<Result<Abd, DeviceError>>> = Box::new(move |results| {
            assert_eq!(results, [Err(DeviceError::Gone)]);
            asked.fetch_add(1, Ordering::Relaxed);
        });
        leaves.issue(vec![(Guid(1), 0, DeviceOp::read(512))], then);
    }
}

fn late(rig: &Rig, gives: Gives) -> Late {
    let late = Late { exec: rig.exec.clone(), gives, asked: Arc::default(), astray: Arc::default() };
    rig.zio.set_stage(Some(Arc::new(late.clone())));
    late
}

/// If this fails, a stage that fails costs the block, or the space that was taken for it.
#[test]
fn a_block_that_is_given_back_is_written_once_from_the_original() {
    for (name, layout) in layouts() {
        for gives in [Gives::First, Gives::Second, Gives::Lies, Gives::Astray, Gives::Nothing] {
            for (ganging, compression) in [(u64::MAX, Compression::OFF), (u64::MAX, Compression::LZ4), (4096, Compression::LZ4)] {
                let what = format!("{name}, {gives:?}, gangs from {ganging} bytes on, {compression:?}");
                let rig = Rig::new(inline(), &layout, 9);
                let late = late(&rig, gives);
                rig.zio.set_forced_ganging(ganging, 100);
                let data = text(3, 24 << 10);
                let bp = rig.write(WriteRequest { compression, ..request(data.clone(), 1) }).expect("written");
                assert_eq!((bp.compression(), bp.is_gang()), (compression, ganging == 4096), "{what}");
                assert!(rig.scrub(&bp).is_ok() && rig.read(&bp).expect("it reads") == data, "{what}");
                assert!(late.asked.load(Ordering::Relaxed) > 0, "{what}");
                let taken: u64 = (0..layout.len()).map(|top| rig.allocator.vdev_space(VdevId(top as u32)).allocated).sum();
                assert!(bp.is_gang() || taken == bp.dvas().map(|dva| dva.asize).sum::<u64>(), "{what}: {taken} bytes are taken");
            }
        }
    }
}

/// If this fails, a stage that answers too late writes over the block that it was given up with, or over another one that has its place since.
#[test]
fn nothing_is_where_a_stage_may_still_write() {
    for (name, layout) in layouts() {
        let rig = Rig::new(inline(), &layout, 9);
        let late = late(&rig, Gives::Astray);
        let data = text(3, 24 << 10);
        let bp = rig.write(request(data.clone(), 1)).expect("written");
        let Astray { dvas, waiting } = std::mem::take(&mut *late.astray.lock());
        assert!(!dvas.is_empty() && dvas.iter().all(|dva| bp.dvas().all(|own| own != *dva)), "{name}: {bp:?} is where it was");
        assert!(dvas.iter().all(|dva| rig.allocator.claim(TXG, dva).is_err()), "{name}: somebody else gets {dvas:?}");
        waiting.into_iter().for_each(|onward| onward());
        assert!(dvas.iter().all(|dva| rig.allocator.claim(TXG, dva).is_ok()), "{name}: nobody gets {dvas:?} again");

        // What has its place already has it from the host.
        let again = WriteRequest { previous: bp, pass: 2, ..request(noise(2, 24 << 10), 1) };
        let rewritten = rig.write(again).expect("written");
        assert_eq!((rewritten.dva(0), late.astray.lock().dvas.len()), (bp.dva(0), 0), "{name}");
        assert!(rig.scrub(&rewritten).is_ok(), "{name}");
    }
}

/// What the pool and its file systems consist of is nobody's but the host's.
#[test]
fn nobody_is_asked_about_metadata() {
    let rig = Rig::new(inline(), &[(TopKind::Mirror, 2)], 9);
    let late = late(&rig, Gives::Nothing);
    let mut meta = WriteRequest { compression: Compression::LZ4, ..request(text(4, 16 << 10), 1) };
    meta.bookmark.objset = ObjsetId(0);
    let bp = rig.write(meta).expect("written");
    let mut read = zio::ReadRequest::new(bp, bookmark(1));
    read.bookmark.objset = ObjsetId(0);
    rig.zio.read_wait(read).expect("it reads");
    assert_eq!(late.asked.load(Ordering::Relaxed), 0);
    rig.zio.open_stores();
    assert_eq!(late.asked.load(Ordering::Relaxed), 1, "the way to the leaves answers");
}
