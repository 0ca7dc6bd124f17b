//! Every engine against the same programs; what fails here is data written to the wrong place or an I/O that never ends.

use crate::{BlockDevice, DeviceError, DeviceFacts, DeviceIo, DeviceOp, Engine, MemDevice, OpenOptions, is_held, open};
use abd::{Abd, AbdPart};
use exec::{Exec, Mutex, Pool, SplitMix, completion};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SIZE: usize = 4 << 20;

/// A file next to the test program (not in a memory file system), removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, size: u64) -> Scratch {
        let program = std::env::current_exe().unwrap();
        let path = program.with_file_name(format!("device-test-{name}-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        Scratch(path)
    }

    fn open(&self, engine: Engine) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        open(&self.0, &OpenOptions { engine, ..OpenOptions::default() })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A device; nothing where the ring is missing and `what` may be left out for that.
fn opened(file: &Scratch, engine: Engine, what: &str) -> Option<Arc<dyn BlockDevice>> {
    match file.open(engine) {
        Ok(device) => Some(device),
        Err(error) => {
            assert_eq!(engine, Engine::Uring, "{error:?}");
            need::missing(need::Need::Uring, what, format!("{error:?}")).unwrap();
            None
        }
    }
}

fn exec() -> Exec {
    Arc::new(Pool::new(2))
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    random.bytes(length)
}

/// A buffer of several runs of uneven (sector multiple) lengths.
fn gang(bytes: &[u8], seed: u64) -> Abd {
    let mut random = SplitMix::new(seed);
    let mut parts = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = (512 * (1 + random.below(9))).min(rest.len());
        parts.push(Abd::from_slice(&rest[..count]));
        rest = &rest[count..];
    }
    Abd::gang(&parts)
}

/// Random overlapping gang writes, scattered reads and trims, one at a time, against a plain array.
fn agrees_with_an_array(device: &dyn BlockDevice, step: usize) {
    let exec = exec();
    let mut model = vec![0; SIZE];
    let mut random = SplitMix::new(11);
    for round in 0..300u64 {
        let offset = random.below(SIZE / step) * step;
        let length = (step * (1 + random.below(200_000 / step))).min(SIZE - offset);
        if round % 3 == 0 {
            let (bytes, offset) = (pattern(length, round), offset as u64);
            match device.can_write_durably() && round % 2 == 0 {
                true => device.write_durably(offset, &gang(&bytes, round)).unwrap(),
                false => device.write_at(&exec, offset, &gang(&bytes, round)).unwrap(),
            }
            let offset = offset as usize;
            model[offset..offset + length].copy_from_slice(&bytes);
            continue;
        }
        let first = random.below(length / step + 1) * step;
        let (completer, done) = completion();
        let parts = vec![AbdPart::scratch(first), AbdPart::scratch(0), AbdPart::scratch(length - first)];
        device.submit(DeviceIo::new(DeviceOp::Read(parts), offset as u64, move |reply| completer.complete(reply)));
        let reply = done.wait(&exec);
        assert_eq!(reply.parts.len(), 3);
        assert!(reply.into_abd().unwrap().to_vec() == model[offset..offset + length], "{length} bytes at {offset}");
    }
    device.flush(&exec).unwrap();
    device.trim(&exec, 8192, 65_536).unwrap();
    assert!(device.read_at(&exec, 8192, 65_536).unwrap().is_zero());
    assert_eq!(device.read_at(&exec, SIZE as u64 - 512, 1024), Err(DeviceError::OutOfRange));
    assert_eq!(device.read_at(&exec, u64::MAX, 512), Err(DeviceError::OutOfRange));
    if device.can_write_durably() {
        assert_eq!(device.write_durably(SIZE as u64 - 512, &Abd::from_slice(&[1; 1024])), Err(DeviceError::OutOfRange));
    }
    assert!(device.read_at(&exec, 512, 0).unwrap().is_empty());
}

/// Many requests in flight from several threads: each ends once, with its own bytes.
fn survives_a_crowd(device: &Arc<dyn BlockDevice>) {
    let exec = exec();
    let ended = Arc::new(AtomicUsize::new(0));
    let wrong = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (device, exec, ended, wrong) = (device.clone(), exec.clone(), ended.clone(), wrong.clone());
            scope.spawn(move || {
                let mut waits = Vec::new();
                for number in 0..150 {
                    let offset = ((thread * 150 + number) * 4096) as u64;
                    let bytes = pattern(4096, offset);
                    let (completer, done) = completion();
                    let (reader, ended, wrong) = (device.clone(), ended.clone(), wrong.clone());
                    let check = move |reply: crate::DeviceReply| {
                        if reply.into_abd().map(|abd| abd.to_vec()) != Ok(pattern(4096, offset)) {
                            wrong.lock().push(offset);
                        }
                        ended.fetch_add(1, Ordering::SeqCst);
                        completer.complete(());
                    };
                    // The read is submitted from the completion of the write, on whatever thread that is.
                    let then = move |reply: crate::DeviceReply| {
                        assert_eq!(reply.outcome, Ok(()));
                        reader.submit(DeviceIo::new(DeviceOp::read(4096), offset, check));
                    };
                    let write = DeviceIo::new(DeviceOp::Write(Abd::from_slice(&bytes)), offset, then);
                    if number % 2 == 0 {
                        device.submit(write)
                    } else {
                        device.submit_batch(vec![write])
                    }
                    waits.push(done);
                }
                waits.into_iter().for_each(|done| done.wait(&exec));
            });
        }
    });
    assert_eq!(ended.load(Ordering::SeqCst), 600);
    assert!(wrong.lock().is_empty(), "wrong bytes at {:?}", wrong.lock());
}

#[test]
fn memory_behaves_like_an_array() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("mem", SIZE));
    agrees_with_an_array(&*device, 512);
    survives_a_crowd(&device);
}

#[test]
fn psync_behaves_like_an_array() {
    let file = Scratch::new("psync", SIZE as u64);
    let device = file.open(Engine::Psync).unwrap();
    assert_eq!((device.facts().engine, device.size_bytes(), device.ashift()), ("psync", SIZE as u64, 9));
    agrees_with_an_array(&*device, 1);
    survives_a_crowd(&device);
}

/// Where the kernel has io_uring and the file system O_DIRECT, the ring must do all that `psync` does; elsewhere opening
/// must still succeed, with the other engine.
#[test]
fn the_ring_behaves_like_an_array() {
    let file = Scratch::new("uring", SIZE as u64);
    match file.open(Engine::Uring) {
        Ok(device) => {
            assert_eq!(device.facts().engine, "uring");
            agrees_with_an_array(&*device, 4096);
            survives_a_crowd(&device);
            let exec = exec();
            let bytes = pattern(8192, 1);
            device.write_at(&exec, 0, &Abd::from_slice(&bytes)).unwrap();
            assert_eq!(device.read_at(&exec, 100, 5000).unwrap().to_vec(), bytes[100..5100], "part of a sector is read");
            assert_eq!(device.write_at(&exec, 100, &Abd::from_slice(&[1])), Err(DeviceError::Misaligned));
            let crooked = Abd::from_slice(&pattern(8193, 2)).slice(1..8193);
            device.write_at(&exec, 4096, &crooked).unwrap();
            assert_eq!(device.read_at(&exec, 4096, 8192).unwrap(), crooked, "memory that is not aligned is copied");
        }
        Err(error) => {
            need::missing(need::Need::Uring, "the_ring_behaves_like_an_array", format!("{error:?}")).unwrap();
            assert_eq!(file.open(Engine::Auto).unwrap().facts().engine, "psync");
        }
    }
}

/// Memory given back to the system and mapped anew at the same address is other memory: a registration that survived would send
/// writes from, and reads to, pages that nobody sees.
#[test]
fn registered_memory_may_come_and_go() {
    let file = Scratch::new("registered", SIZE as u64);
    let Some(device) = opened(&file, Engine::Uring, "registered_memory_may_come_and_go") else { return };
    let exec = exec();
    let before = crate::ring_stats();
    for round in 0..40u64 {
        for length in [4096, 65_536, 1 << 20, 3 << 20] {
            let bytes = pattern(length, round);
            device.write_at(&exec, 0, &Abd::from_slice(&bytes)).unwrap();
            assert!(device.read_at(&exec, 0, length).unwrap().to_vec() == bytes, "{length} bytes in round {round}");
        }
        abd::trim_cache();
    }
    let after = crate::ring_stats();
    let moved = |stats: crate::RingStats| stats.fixed_ios + stats.plain_ios;
    assert!(moved(after) - moved(before) >= 320, "{after:?}");
    assert!(after.fixed_ios > before.fixed_ios || after.refused_registrations > 0, "used where the limit allows: {after:?}");
}

/// A file cut short behind our back is an error, neither a hang nor zeros.
#[test]
fn the_end_of_a_shrunken_file_is_reported() {
    for engine in [Engine::Psync, Engine::Uring] {
        let file = Scratch::new(&format!("short-{engine:?}"), SIZE as u64);
        let Some(device) = opened(&file, engine, "the_end_of_a_shrunken_file_is_reported") else { continue };
        let exec = exec();
        std::fs::File::options().write(true).open(&file.0).unwrap().set_len(8192).unwrap();
        assert_eq!(device.read_at(&exec, 4096, 8192), Err(DeviceError::Short));
        assert_eq!(device.refresh_size(), 8192);
        assert_eq!(device.read_at(&exec, 4096, 8192), Err(DeviceError::OutOfRange));
    }
}

/// Two owners of one pool destroy it: the second exclusive open is refused while the first lives.
#[test]
fn an_exclusive_holder_keeps_others_out() {
    for engine in [Engine::Psync, Engine::Uring] {
        let file = Scratch::new(&format!("lock-{engine:?}"), SIZE as u64);
        let options = OpenOptions { exclusive: true, engine, ..OpenOptions::default() };
        if opened(&file, engine, "an_exclusive_holder_keeps_others_out").is_none() {
            continue;
        }
        let holder = open(&file.0, &options).unwrap();
        assert_eq!(open(&file.0, &options).map(|_| ()), Err(DeviceError::Busy));
        let read_only = OpenOptions { read_only: true, ..options };
        assert_eq!(open(&file.0, &read_only).map(|_| ()), Err(DeviceError::Busy));
        assert!(open(&file.0, &OpenOptions::default()).is_ok(), "looking at labels is not refused");
        assert!(is_held(&file.0));
        drop(holder);
        // A process that another test starts has all descriptors for a moment, and their locks.
        let exec = exec();
        let again = || open(&file.0, &read_only).map_err(|_| exec.sleep_ns(10_000_000));
        let reader = (0..200).find_map(|_| again().ok()).expect("nobody has it");
        assert!(open(&file.0, &read_only).is_ok() && !is_held(&file.0));
        let refused = reader.write_at(&exec, 0, &Abd::zeroed(4096));
        assert_eq!(refused, Err(DeviceError::ReadOnly));
    }
}

/// The kernel writes what a killed daemon had asked for after it is gone. If this fails, the next daemon reads labels and blocks that change later.
#[test]
fn writes_of_a_process_that_is_gone_are_waited_for() {
    let file = Scratch::new("under-way", SIZE as u64);
    for read_only in [false, true] {
        // A request under way has the open file, and nothing else is left of its process.
        let under_way = std::fs::File::options().write(true).open(&file.0).unwrap();
        crate::sys::writes_through(&under_way).unwrap();
        let options = OpenOptions { exclusive: true, read_only, ..OpenOptions::default() };
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| open(&file.0, &options).map(|_| is_done.load(std::sync::atomic::Ordering::Acquire)));
            let _ = rustix::thread::nanosleep(&rustix::fs::Timespec { tv_sec: 0, tv_nsec: 50_000_000 });
            is_done.store(true, std::sync::atomic::Ordering::Release);
            drop(under_way);
            assert!(next.join().unwrap().unwrap(), "it was opened before");
        });
    }
    let Some(first) = opened(&file, Engine::Uring, "writes_of_a_process_that_is_gone_are_waited_for") else { return };
    drop(first);
    let options = OpenOptions { exclusive: true, engine: Engine::Uring, ..OpenOptions::default() };
    let holder = open(&file.0, &options).unwrap();
    let other = std::fs::File::options().write(true).open(&file.0).unwrap();
    assert_eq!(crate::sys::writes_through(&other), Err(DeviceError::Busy), "a ring's open file has the lock");
    drop(holder);
    crate::sys::writes_through(&other).unwrap();
}

/// Bytes of a file that somebody has through a loop device are no writes under way. If this fails, a daemon that is asked for the file, to read it only,
/// stands still for ten seconds before it says that it is in use.
#[test]
fn who_has_bytes_of_a_file_is_not_waited_for() {
    let file = Scratch::new("bytes", SIZE as u64);
    let holder = std::fs::File::options().read(true).write(true).open(&file.0).unwrap();
    crate::sys::lock_bytes(&holder, 0, u64::MAX, false).unwrap();
    let other = std::fs::File::open(&file.0).unwrap();
    assert_eq!(crate::sys::await_writes(&other, true), Ok(()));
    assert!(
        crate::sys::lock_bytes(&other, i64::MAX as u64 - 2, u64::MAX, true).is_err(),
        "all bytes that a file can have are the holder's"
    );
    let options = OpenOptions { exclusive: true, read_only: true, ..OpenOptions::default() };
    assert_eq!(open(&file.0, &options).map(drop), Err(DeviceError::Busy));
    drop(holder);
    assert!((0..200).any(|_| open(&file.0, &options).is_ok()), "nobody has it");
}

/// A loop device over a file, gone at the end.
struct Loop(PathBuf);

impl Loop {
    fn over(file: &std::path::Path, options: &[&str]) -> Option<Loop> {
        let output = std::process::Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        output.status.success().then(|| Loop(String::from_utf8_lossy(&output.stdout).trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Variable that makes this program the process that is killed, and names the device to which it writes.
const DOOMED: &str = "DEVICE_TEST_DOOMED";
const DOOMED_BYTES: usize = 4 << 20;

/// Bound on what is written to a loop device, taken away at the end.
struct Slow(String);

impl Slow {
    const BYTES_PER_SECOND: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

    fn down(device: &Loop, bytes_per_second: u64) -> std::io::Result<Slow> {
        let name = device.0.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = std::fs::read_to_string(format!("/sys/block/{name}/dev"))?.trim().to_owned();
        std::fs::write(Slow::BYTES_PER_SECOND, format!("{number} {bytes_per_second}"))?;
        Ok(Slow(number))
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = std::fs::write(Slow::BYTES_PER_SECOND, format!("{} 0", self.0));
    }
}

fn sleep_ms(milliseconds: i64) {
    let _ = rustix::thread::nanosleep(&rustix::fs::Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 });
}

/// The same with a process that was really killed, and a device that takes its time. If this fails, a label that the next daemon has read is another
/// one a second later.
#[test]
fn a_killed_process_writes_no_more_once_its_device_is_open_again() {
    const NAME: &str = "a_killed_process_writes_no_more_once_its_device_is_open_again";
    let options = OpenOptions { exclusive: true, engine: Engine::Uring, ..OpenOptions::default() };
    if let Some(device) = std::env::var_os(DOOMED) {
        let device = open(std::path::Path::new(&device), &options).unwrap();
        println!("it writes");
        device.write_at(&exec(), 0, &Abd::from_slice(&pattern(DOOMED_BYTES, 1))).unwrap();
        return;
    }
    let file = Scratch::new("doomed", DOOMED_BYTES as u64 + SIZE as u64);
    let Some(device) = Loop::over(&file.0, &["--direct-io=on"]) else {
        return need::missing(need::Need::Loops, NAME, "losetup made none").unwrap();
    };
    if let Err(why) = open(&device.0, &options) {
        return need::missing(need::Need::Uring, NAME, format!("{why:?}")).unwrap();
    }
    let slow = match Slow::down(&device, 1 << 20) {
        Ok(slow) => slow,
        Err(why) => return need::missing(need::Need::Cgroup, NAME, format!("{}: {why}", Slow::BYTES_PER_SECOND)).unwrap(),
    };
    let mut doomed = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tests::{NAME}"), "--nocapture"])
        .env(DOOMED, &device.0)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = std::io::BufReader::new(doomed.stdout.take().unwrap());
    assert!(std::io::BufRead::lines(said).map_while(Result::ok).any(|line| line.contains("it writes")), "it has not begun");
    sleep_ms(500);
    assert!(doomed.try_wait().unwrap().is_none(), "the device is not slow: nothing is tested");
    doomed.kill().unwrap();
    doomed.wait().unwrap();
    let next = open(&device.0, &options).expect("the device, once the writes have ended");
    let read = || {
        let bytes = next.read_at(&exec(), 0, DOOMED_BYTES).unwrap();
        bytes.to_contiguous().as_contiguous().unwrap_or_default().to_vec()
    };
    let first = read();
    sleep_ms(2000);
    assert!(read() == first, "the device changes under who has it");
    drop(slow);
}

/// If this fails, two daemons have one pool open, one through the file and one through a loop device over it: the pool is lost.
#[test]
fn one_file_by_several_ways_has_one_holder() {
    let file = Scratch::new("ways", 4 << 20);
    let half = (2_u64 << 20).to_string();
    let quarter = (1_u64 << 20).to_string();
    let made = [
        Loop::over(&file.0, &["--sizelimit", &half]),
        Loop::over(&file.0, &["--offset", &half]),
        Loop::over(&file.0, &["--offset", &quarter, "--sizelimit", &half]),
    ];
    let [Some(low), Some(high), Some(middle)] = made else {
        return need::missing(need::Need::Loops, "one_file_by_several_ways_has_one_holder", "losetup made none").unwrap();
    };
    let options = OpenOptions { exclusive: true, ..OpenOptions::default() };
    let tried = |path: &std::path::Path| open(path, &options).map(drop);
    let holder = open(&file.0, &options).unwrap();
    for other in [&low, &high, &middle] {
        assert_eq!(tried(&other.0), Err(DeviceError::Busy), "beside the file");
    }
    drop(holder);
    let holder = open(&low.0, &options).unwrap();
    assert_eq!(tried(&file.0), Err(DeviceError::Busy), "beside a part");
    assert_eq!(tried(&middle.0), Err(DeviceError::Busy), "what overlaps");
    let read_only = OpenOptions { read_only: true, ..options };
    assert_eq!(open(&file.0, &read_only).map(drop), Err(DeviceError::Busy), "for reading");
    let beside = open(&high.0, &options).expect("another part");
    drop((holder, beside));
    for free in [&low.0, &high.0, &middle.0, &file.0] {
        assert_eq!(tried(free), Ok(()), "nobody has it");
    }
}

#[test]
fn wrong_paths_are_named() {
    let options = OpenOptions::default();
    assert_eq!(open("/no/such/device".as_ref(), &options).map(|_| ()), Err(DeviceError::NotFound));
    assert_eq!(open("/".as_ref(), &options).map(|_| ()), Err(DeviceError::NotADevice));
    assert_eq!(open("/dev/null".as_ref(), &options).map(|_| ()), Err(DeviceError::NotADevice));
    let facts = DeviceFacts { physical_sector_bytes: 4096, ..DeviceFacts::solid("mem", "mem") };
    assert_eq!(MemDevice::new("mem", 8192).with_facts(facts).ashift(), 12);
    assert_eq!(DeviceError::from_errno(libc::ENOSPC), DeviceError::NoSpace);
}

/// If this fails, whoever can put a FIFO where a device was a moment ago holds up the daemon for as long as they like.
#[test]
fn a_fifo_in_place_of_a_device_is_refused_without_waiting() {
    let path = std::env::current_exe().unwrap().with_file_name(format!("device-test-fifo-{}", std::process::id()));
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR, 0).unwrap();
    // What was looked at was a file; a FIFO without a writer would be waited for.
    let opened = crate::open::open_file(&path, &OpenOptions { read_only: true, ..OpenOptions::default() }, false, 0);
    let file = crate::FileDevice::open(&path, true);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(opened.err(), Some(DeviceError::NotADevice));
    assert_eq!(file.err(), Some(DeviceError::NotADevice));
}
