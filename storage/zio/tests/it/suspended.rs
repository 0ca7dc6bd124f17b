//! What suspends a pool and what does not: failures of devices as they are, and those of I/Os that began before the pool was resumed.

use crate::common::*;
use device::{BlockDevice, DeviceError, DeviceFacts, DeviceIo};
use exec::Mutex;
use std::sync::Arc;
use vdev::TopKind;
use zio::{ErrorKind, FailMode, PoolView, ReadRequest, ZioError};

const MIRROR: [(TopKind, usize); 1] = [(TopKind::Mirror, 2)];

/// A handle of a disk that is gone: what it was given fails when somebody says so.
#[derive(Debug)]
struct GoneLater {
    disk: Arc<TestDevice>,
    given: Mutex<Vec<DeviceIo>>,
}

impl BlockDevice for GoneLater {
    fn submit(&self, io: DeviceIo) {
        self.given.lock().push(io);
    }
    fn facts(&self) -> &DeviceFacts {
        self.disk.facts()
    }
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
}

/// Fails what these handles were given; false when that is nothing.
fn fail_given(handles: &[Arc<GoneLater>]) -> bool {
    let given: Vec<DeviceIo> = handles.iter().flat_map(|handle| std::mem::take(&mut *handle.given.lock())).collect();
    let any = !given.is_empty();
    given.into_iter().for_each(|io| io.fail(DeviceError::Gone));
    any
}

/// If this fails, a pool whose disks are back, and which was cleared, is suspended again by what the handles of before had not answered yet; or it goes
/// on, and no longer stops for a failure of today.
#[test]
fn failures_from_before_a_resume_suspend_nothing() {
    for mode in [FailMode::Wait, FailMode::Continue] {
        let jobs = Arc::new(exec::Inline::new(7));
        let rig = Rig::failing(jobs.clone(), &MIRROR, 12, mode);
        let data = noise(1, 16384);
        let early = rig.write(request(data.clone(), 1)).expect("the devices work");
        let returned = rig.zio.view();
        let handles: Vec<Arc<GoneLater>> =
            rig.devices.iter().map(|disk| Arc::new(GoneLater { disk: disk.clone(), given: Mutex::default() })).collect();
        let devices = handles.iter().map(|handle| Some(handle.clone() as Arc<dyn BlockDevice>)).collect();
        rig.zio.set_view(PoolView { devices, ..returned.clone() });
        let write = |number: u64| {
            let (done, wait) = exec::completion();
            rig.zio.write(request(noise(number, 16384), number), Box::new(move |result| done.complete(result)));
            wait
        };
        let written = write(2);
        let (done, read) = exec::completion();
        rig.zio.read(ReadRequest::new(early, bookmark(1)), Box::new(move |result| done.complete(result)));
        jobs.run_ready();
        assert!(fail_given(&handles), "the devices got something");
        // The block goes elsewhere, and is read from the other leg: no other try is left.
        jobs.run_ready();
        assert!(!rig.zio.is_suspended() && !written.is_done() && !read.is_done(), "{mode:?}: something ended too early");
        rig.zio.set_view(returned);
        rig.zio.resume();
        assert!(fail_given(&handles), "nothing was on its way");
        jobs.run_ready();
        assert!(!fail_given(&handles) && !rig.zio.is_suspended(), "{mode:?}: an old failure suspended the pool");
        let bp = written.wait(&rig.exec).expect("the write is done on the devices that are back");
        assert!(rig.read(&bp).is_ok_and(|back| back == noise(2, 16384)), "{mode:?}");
        let read = read.wait(&rig.exec).map_err(|error| error.kind);
        match mode {
            FailMode::Wait => assert!(read.is_ok_and(|back| back == data), "a read that waits is done as well"),
            _ => assert_eq!(read.map(drop), Err(ErrorKind::NoDevice), "a read waits for nobody"),
        }
        rig.kill(&[0, 1], DeviceError::Gone);
        let waiting = write(3);
        jobs.run_ready();
        assert!(rig.zio.is_suspended() && !waiting.is_done(), "{mode:?}: the devices fail now");
        rig.revive();
        rig.zio.resume();
        assert!(waiting.wait(&rig.exec).is_ok() && !rig.zio.is_suspended(), "{mode:?}");
    }
}

/// If this fails, a sync that lost its devices for a moment waits for a second `zpool clear` when the first one came a little too early.
#[test]
fn waiters_wait_for_no_resume_that_came_already() {
    let rig = Rig::failing(threads(), &MIRROR, 12, FailMode::Wait);
    let since = rig.zio.resumes();
    rig.zio.resume();
    assert!(rig.zio.suspend_and_wait(since, None) && !rig.zio.is_suspended());
    assert!(rig.zio.wait_if_down(since, ZioError::new(ErrorKind::Io, bookmark(1))), "devices that are back do not make it the place");
    let (zio, since) = (rig.zio.clone(), rig.zio.resumes());
    assert!(!zio.wait_if_down(since, ZioError::new(ErrorKind::Io, bookmark(1))), "they work, and did all the time");
    let (done, wait) = exec::completion();
    let waiter = rig.exec.spawn_operation("waiter", Box::new(move || done.complete(zio.suspend_and_wait(since, None))));
    rig.exec.wait(&|| rig.zio.is_suspended(), &|| {});
    assert!(!wait.is_done(), "the pool was not resumed since");
    rig.zio.resume();
    assert!(wait.wait(&rig.exec) && !rig.zio.is_suspended());
    waiter.join();
}
