//! What the kernel keeps of a file (pages, attributes, who runs it) and what the server changes meanwhile, through a real mount.
//! Where `/dev/fuse` cannot be used the tests say so and check nothing.

use crate::direct::mounted::{Mounted, mount, open};
use device::{DeviceIo, DeviceOp, Engine};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

/// Bytes of a write. Long requests take a while from the kernel to their place: that is when readers bring old pages back.
const WRITE: usize = 1 << 20;
const NOBODY: u32 = 65_534;
const O_TRUNC: i32 = 0o1000;

/// Number of stale reads: writes are done (an answer came) while three readers look at the same page through the cache, and none may see the bytes
/// from before afterwards (xfstests generic/451).
fn overwrites_beside_readers(mounted: &Mounted, writes: u64) -> u64 {
    let path = mounted.at.join("f");
    let file = open(&path, false);
    file.write_all_at(&vec![0; WRITE], 0).expect("written");
    let options = device::OpenOptions { engine: Engine::Uring, ..device::OpenOptions::default() };
    let writer = device::open(&path, &options).expect("opened for asynchronous direct writes");
    let (stop, stale, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let file = File::open(&path).expect("opened");
                while !stop.load(Ordering::Relaxed) {
                    let least = done.load(Ordering::SeqCst);
                    let mut word = [0; 8];
                    file.read_exact_at(&mut word, 4096).expect("read");
                    if u64::from_le_bytes(word) < least {
                        stale.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for number in 1..=writes {
            let data = abd::Abd::from_slice(&number.to_le_bytes().repeat(WRITE / 8));
            let (told, answer) = mpsc::channel();
            writer.submit(DeviceIo::new(DeviceOp::Write(data), 0, move |reply| told.send(reply.outcome).expect("somebody waits")));
            answer.recv().expect("an answer").expect("written");
            done.store(number, Ordering::SeqCst);
        }
        stop.store(true, Ordering::Relaxed);
    });
    stale.into_inner()
}

#[test]
fn an_asynchronous_direct_write_is_seen_by_buffered_readers() {
    let Some(mounted) = mount("aio") else { return };
    assert_eq!(overwrites_beside_readers(&mounted, 300), 0, "reads that came after the write saw what was before it");
    assert!(mounted.bed.pool.iostats().direct_write.get().0 >= 300, "the writes were direct");
}

/// Runs a command as somebody else.
fn as_nobody(line: &str) {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    let ran = command.args(words).uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).output().expect("started");
    assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("stat").mode() & 0o7777
}

/// The rule of Linux: who changes a file's contents without CAP_FSETID takes setuid away, and setgid from what its group may
/// execute; and stat(2) says so at once.
#[test]
fn setuid_goes_with_changes_by_others_and_stat_knows() {
    if need::lacks(need::Need::Root, "setuid_goes_with_changes_by_others_and_stat_knows").unwrap() {
        return;
    }
    let Some(mounted) = mount("suid") else { return };
    let path = mounted.at.join("f");
    let at = path.display();
    std::fs::write(&path, vec![1; 100_000]).expect("written");
    let changes = [
        format!("dd if=/dev/zero of={at} bs=4096 count=1 conv=notrunc status=none"),
        format!("dd if=/dev/zero of={at} bs=128k count=1 conv=notrunc oflag=direct status=none"),
        format!("dd if=/dev/zero of={at} bs=1 seek=10 count=1 conv=notrunc status=none"),
        format!("truncate -s 90000 {at}"),
        format!("fallocate -l 200000 {at}"),
        format!("fallocate -n -l 300000 {at}"),
        format!("fallocate -p -o 0 -l 4096 {at}"),
        format!("fallocate -z -o 0 -l 4096 {at}"),
        format!("dd if=/dev/zero of={at} bs=1 count=1 status=none"),
    ];
    for change in &changes {
        // Set-group-id of what its group may not execute means something else: it stays.
        for (before, after) in [(0o6777, 0o777), (0o6767, 0o2767)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(before)).expect("chmod");
            assert_eq!(mode(&path), before, "the kernel knows it now");
            as_nobody(change);
            assert_eq!(mode(&path), after, "after '{change}'");
        }
    }
    // Root keeps what is there.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6777)).expect("chmod");
    let status = Command::new("fallocate").arg("-l").arg("400000").arg(&path).status().expect("started");
    assert!(status.success());
    assert_eq!(mode(&path), 0o6777, "root may keep setuid");
}

/// Opening a running program with O_TRUNC says ETXTBSY and leaves it alone, whatever else it is opened for.
#[test]
fn a_running_program_is_not_emptied() {
    let Some(mounted) = mount("busy") else { return };
    let path = mounted.at.join("sleep");
    std::fs::copy("/bin/sleep", &path).expect("copied");
    let bytes = std::fs::metadata(&path).expect("stat").len();
    let mut running = Command::new(&path).arg("60").spawn().expect("started");
    let opened = rustix::fs::open(&path, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::TRUNC, rustix::fs::Mode::empty());
    let written = std::fs::OpenOptions::new().write(true).custom_flags(O_TRUNC).open(&path);
    let left = std::fs::metadata(&path).expect("stat").len();
    let _ = running.kill();
    let _ = running.wait();
    assert_eq!(opened.err(), Some(rustix::io::Errno::TXTBSY));
    assert_eq!(written.err().and_then(|error| error.raw_os_error()), Some(rustix::io::Errno::TXTBSY.raw_os_error()));
    assert_eq!(left, bytes, "a running program lost its bytes");
    // Nobody runs it any more.
    drop(rustix::fs::open(&path, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::TRUNC, rustix::fs::Mode::empty()).expect("opened"));
    assert_eq!(std::fs::metadata(&path).expect("stat").len(), 0);
}
