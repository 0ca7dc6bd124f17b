//! Direct I/O through a real mount: O_DIRECT of files, beside buffered descriptors of the same files, as programs use them.
//! Where `/dev/fuse` cannot be used the tests say so and check nothing.

use crate::direct::bed::Bed;
use fuse::Handler;
use need::pattern;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use zpl::direct::{Property, Reason};
use zpl::{Settings, ZplFuse};

const BLOCK: usize = 128 << 10;

pub struct Mounted {
    session: Option<fuse::Session>,
    pub at: PathBuf,
    pub bed: Bed,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.session.take());
        let _ = std::fs::remove_dir(&self.at);
    }
}

pub fn mount(name: &str) -> Option<Mounted> {
    let bed = Bed::threaded();
    let at = std::env::temp_dir().join(format!("zirconia-zpl-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&at).expect("the temporary folder is writable");
    let handler = Arc::new(ZplFuse::new(bed.zfs.clone(), None));
    match fuse::Session::mount(bed.exec(), handler, &at, &fuse::MountOptions::default()) {
        Ok(session) => Some(Mounted { session: Some(session), at, bed }),
        Err(error) => {
            let _ = std::fs::remove_dir(&at);
            need::missing(need::Need::Fuse, &format!("a mount ({name})"), error).unwrap();
            None
        }
    }
}

pub fn open(path: &std::path::Path, direct: bool) -> File {
    let flags = if direct { fuse::O_DIRECT as i32 } else { 0 };
    OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path).expect("opened")
}

/// Buffer of these bytes that begins on a page.
fn aligned(bytes: &[u8]) -> abd::Abd {
    abd::Abd::from_slice(bytes)
}

fn put(file: &File, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all_at(aligned(bytes).as_contiguous().expect("one run"), at)
}

fn get(file: &File, at: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut room = abd::Abd::scratch(length);
    let out = room.get_mut().expect("nobody else has it");
    out.fill(0);
    let mut done = 0;
    while done < length {
        match file.read_at(&mut out[done..], at + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(out[..done].to_vec())
}

#[test]
fn o_direct_is_direct_and_its_misalignment_is_refused_or_served() {
    let Some(mounted) = mount("flags") else { return };
    let (bed, path) = (&mounted.bed, mounted.at.join("f"));
    let file = open(&path, true);
    let bytes = pattern(8 * BLOCK, 3);
    put(&file, 0, &bytes).expect("written");
    bed.pool.sync().expect("synced");
    let before = bed.pool.iostats().direct_write.get().0;
    put(&file, 0, &bytes).expect("overwritten");
    assert_eq!(bed.pool.iostats().direct_write.get().0 - before, 8, "an aligned overwrite is direct block by block");
    bed.cache_cleared();
    let before = bed.pool.iostats().direct_read.get().0;
    assert!(get(&file, 0, 8 * BLOCK).expect("read") == bytes, "other bytes came back");
    assert_eq!(bed.pool.iostats().direct_read.get().0 - before, 8);
    // Strict: EINVAL, as OpenZFS 2.3. Relaxed: served, as 2.4.
    let misaligned = |file: &File| put(file, 512, &bytes[..1024]).map_err(|error| error.raw_os_error());
    assert_eq!(misaligned(&file), Err(Some(22)));
    assert_eq!(get(&file, 512, 512).map_err(|error| error.raw_os_error()).map(|bytes| bytes.len()), Err(Some(22)));
    bed.zfs.direct().tunables.set_strict(false);
    assert_eq!(misaligned(&file), Ok(()));
    bed.zfs.direct().tunables.set_strict(true);
    bed.zfs.set_settings(Settings { direct: Property::Disabled, ..bed.zfs.settings() });
    assert_eq!(misaligned(&file), Ok(()));
    bed.zfs.set_settings(Settings { direct: Property::Standard, ..bed.zfs.settings() });
    let counts = bed.zfs.direct().stats.snapshot();
    assert_eq!(counts.rejected.0, 2, "{counts:?}");
    assert!(counts.fallbacks.iter().any(|count| count.reason == Reason::Disabled && count.bytes == 1024), "{counts:?}");
}

/// fcntl(F_SETFL) changes what the next request is (OpenZFS: `zfs_io_flags`).
#[test]
fn the_flag_counts_per_request() {
    let Some(mounted) = mount("setfl") else { return };
    let (bed, path) = (&mounted.bed, mounted.at.join("f"));
    let file = open(&path, false);
    let bytes = pattern(4 * BLOCK, 4);
    put(&file, 0, &bytes).expect("written");
    assert_eq!(bed.pool.iostats().direct_write.get().0, 0);
    fcntl_setfl(&file, fcntl_getfl(&file).expect("flags") | OFlags::DIRECT).expect("set");
    put(&file, 0, &bytes).expect("overwritten");
    assert_eq!(bed.pool.iostats().direct_write.get().0, 4);
    fcntl_setfl(&file, fcntl_getfl(&file).expect("flags") - OFlags::DIRECT).expect("cleared");
    put(&file, 0, &bytes).expect("overwritten");
    assert_eq!(bed.pool.iostats().direct_write.get().0, 4);
}

/// If this fails, each write of whoever writes a log costs a request more, for a sync that has nothing to do; or one who also reads has nothing
/// from the kernel's cache any more, or opening a file empties it.
#[test]
fn who_only_writes_durably_goes_past_the_kernels_cache() {
    let bed = Bed::threaded();
    let handler = ZplFuse::new(bed.zfs.clone(), None);
    let (root, caller) = (fuse::NodeId::ROOT, fuse::Caller::default());
    let new = fuse::NewNode { mode: 0o100_644, ..fuse::NewNode::default() };
    let (entry, opened) = handler.create(&caller, root, b"log", &new, (OFlags::WRONLY | OFlags::DSYNC).bits()).expect("made");
    assert!((opened.direct_io, opened.in_turn, opened.keep_cache) == (true, true, true), "{opened:?}");
    let passes = |flags: OFlags| handler.open(&caller, entry.node, flags.bits()).map(|opened| (opened.direct_io, opened.in_turn));
    assert_eq!(passes(OFlags::WRONLY | OFlags::SYNC), Ok((true, true)));
    assert_eq!(passes(OFlags::RDWR | OFlags::DSYNC), Ok((false, false)));
    assert_eq!(passes(OFlags::WRONLY), Ok((false, false)));
    assert_eq!(passes(OFlags::WRONLY | OFlags::DSYNC | OFlags::DIRECT), Ok((true, false)));
}

/// Buffered and direct descriptors of one file see each other's bytes at once: the kernel's cache and ours are kept in step.
#[test]
fn direct_and_buffered_descriptors_agree() {
    let Some(mounted) = mount("mix") else { return };
    let path = mounted.at.join("f");
    let files = [open(&path, false), open(&path, true)];
    let mut model: Vec<u8> = Vec::new();
    let mut seed = 11u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    for step in 0..400 {
        let direct = below(2) as usize;
        let unit = if direct == 1 { 4096 } else { 1 };
        let length = ((1 + below(160_000 / unit)) * unit) as usize;
        let at = below(700_000 / unit) * unit;
        match below(10) {
            0 => {
                let size = below(900_000);
                files[0].set_len(size).expect("truncated");
                model.resize(size as usize, 0);
            }
            1..=5 => {
                let bytes = pattern(length, step);
                put(&files[direct], at, &bytes).expect("written");
                let end = at as usize + length;
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(&bytes);
            }
            _ => {
                let found = get(&files[direct], at, length).expect("read");
                let end = (at as usize + length).min(model.len());
                let wanted = model.get(at as usize..end).unwrap_or_default();
                assert!(found == wanted, "step {step}: {length} at {at}, direct {direct}: {} of {} bytes", found.len(), wanted.len());
            }
        }
    }
    assert!(std::fs::read(&path).expect("read") == model, "the file as a whole");
    drop(files);
}
