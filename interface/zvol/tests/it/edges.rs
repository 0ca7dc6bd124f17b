//! Bounds, alignment, what is refused and what is counted.

use crate::bed::{BLOCK, Bed, CACHED, VOLUME, VOLUME_BYTES, contents, open_as, pattern, write};
use abd::Abd;
use direct_io::{Memory, Reason};
use dsl::DslError;
use zvol::{Access, Settings, VolumeError};

/// If this fails, a discard by a guest takes bytes that it still needs, or zeroing leaves old bytes.
#[test]
fn a_discard_frees_whole_blocks_and_zeroing_is_exact() {
    let bed = Bed::new(&[("compression", "off")]);
    let volume = bed.open();
    let mut model = pattern(VOLUME_BYTES as usize, 1);
    write(&volume, 0, &model).expect("written");
    // Within a block nothing is freed; success all the same.
    volume.discard(BLOCK + 1, BLOCK - 2).expect("discarded");
    volume.discard(BLOCK - 1, 2).expect("discarded");
    volume.discard(3 * BLOCK, 0).expect("nothing to discard");
    assert!(contents(&volume) == model);
    volume.discard(BLOCK + 1, 3 * BLOCK).expect("discarded");
    model[2 * BLOCK as usize..4 * BLOCK as usize].fill(0);
    assert!(contents(&volume) == model);
    volume.write_zeroes(10 * BLOCK + 100, 2 * BLOCK).expect("zeroed");
    model[10 * BLOCK as usize + 100..12 * BLOCK as usize + 100].fill(0);
    volume.discard(VOLUME_BYTES - BLOCK, BLOCK).expect("discarded to the end");
    model[(VOLUME_BYTES - BLOCK) as usize..].fill(0);
    assert!(contents(&volume) == model);
    bed.pool.sync().expect("synced");
    assert!(contents(&volume) == model, "once synced");
    assert_eq!(volume.seek_hole(0), Ok(Some(2 * BLOCK)));
    assert_eq!(volume.seek_data(2 * BLOCK), Ok(Some(4 * BLOCK)));
    assert_eq!(volume.seek_data(VOLUME_BYTES - BLOCK), Ok(None));
    assert_eq!((volume.seek_hole(VOLUME_BYTES - 1), volume.seek_hole(VOLUME_BYTES)), (Ok(Some(VOLUME_BYTES - 1)), Ok(None)));
    bed.check_space("freed");
}

/// If this fails, somebody writes behind the end of a disk, where a later growth shows it.
#[test]
fn nothing_goes_behind_the_end() {
    let bed = Bed::new(&[]);
    let volume = bed.open();
    let late = VOLUME_BYTES - 100;
    assert_eq!(write(&volume, late, &[1; 101]), Err(VolumeError::OutOfRange));
    assert_eq!(write(&volume, u64::MAX - 3, &[1; 8]), Err(VolumeError::OutOfRange));
    assert_eq!(volume.discard(late, 101), Err(VolumeError::OutOfRange));
    assert_eq!(volume.write_zeroes(u64::MAX, 1), Err(VolumeError::OutOfRange));
    assert_eq!(write(&volume, late, &[1; 100]), Ok(()));
    assert_eq!(volume.read(late, 1000, CACHED).expect("read").to_vec(), [1; 100]);
    assert!(volume.read(VOLUME_BYTES, 10, CACHED).expect("read").is_empty());
    assert!(volume.read(u64::MAX, 10, CACHED).expect("read").is_empty());
    assert_eq!(write(&volume, VOLUME_BYTES, &[]), Ok(()));
    volume.resize(VOLUME_BYTES / 2).expect("smaller");
    assert_eq!(write(&volume, late, &[1; 100]), Err(VolumeError::OutOfRange));
    volume.resize(2 * VOLUME_BYTES).expect("larger");
    assert_eq!(volume.read(VOLUME_BYTES / 2, VOLUME_BYTES, CACHED).expect("read").to_vec(), vec![0; VOLUME_BYTES as usize]);
    assert_eq!((volume.resize(BLOCK + 1), volume.resize(0)), (Err(DslError::BadValue), Err(DslError::BadValue)));
    assert_eq!(volume.size(), 2 * VOLUME_BYTES);
    assert_eq!(volume.counts()[0], 1, "what was refused is no write");
}

/// If this fails, a backup of a snapshot changes while it is made, or is changed.
#[test]
fn a_snapshot_stays_as_it_is() {
    let bed = Bed::new(&[]);
    let volume = bed.open();
    let old = pattern(VOLUME_BYTES as usize, 2);
    write(&volume, 0, &old).expect("written");
    bed.pool.dsl().snapshot(&[format!("{VOLUME}@s")], Vec::new()).expect("a snapshot");
    write(&volume, 4000, &[7; 9000]).expect("written");
    let snapshot = open_as(&bed.pool, &format!("{VOLUME}@s")).expect("it opens");
    assert!(snapshot.is_read_only() && contents(&snapshot) == old);
    assert_eq!(write(&snapshot, 0, &[1]), Err(VolumeError::ReadOnly));
    assert_eq!(snapshot.discard(0, BLOCK), Err(VolumeError::ReadOnly));
    assert_eq!(snapshot.flush(), Ok(()));
    assert_eq!(snapshot.read(0, BLOCK, Access::DIRECT).expect("read").to_vec(), old[..BLOCK as usize]);
    assert_eq!(open_as(&bed.pool, "tank").map(drop), Err(DslError::BadProperty));
}

/// If this fails, `readonly=on` does not keep a guest from writing, or a program cannot tell a full quota.
#[test]
fn what_cannot_be_written_says_why() {
    let bed = Bed::new(&[("compression", "off")]);
    let volume = bed.open();
    let settings = Settings { read_only: true, ..Settings::default() };
    volume.set_settings(settings);
    assert_eq!((write(&volume, 0, &[1]), volume.write_zeroes(0, 1)), (Err(VolumeError::ReadOnly), Err(VolumeError::ReadOnly)));
    volume.set_settings(Settings::default());
    let parent = bed.pool.dsl().hold("tank").expect("held");
    let quota = parent.space().used + (128 << 10);
    parent.set_props(&[("quota".to_string(), quota.to_string())]).expect("set");
    let mut refused = None;
    for block in 0..VOLUME_BYTES / BLOCK {
        match write(&volume, block * BLOCK, &pattern(BLOCK as usize, block)) {
            Ok(()) => bed.pool.sync().expect("synced"),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert_eq!(refused, Some(VolumeError::OverQuota));
    volume.discard(0, VOLUME_BYTES).expect("space is given back when nothing else works");
}

/// If this fails, direct I/O of a volume is something else than it says, or a program that is aligned to sectors is refused.
#[test]
fn whole_blocks_go_past_the_cache_where_that_is_asked_for() {
    let bed = Bed::new(&[("compression", "off")]);
    let volume = bed.open();
    let data = pattern(4 * BLOCK as usize, 3);
    let put = |offset: u64, bytes: &[u8], access: Access| volume.write(offset, Abd::from_slice(bytes), access, false).expect("written");
    put(0, &data, CACHED);
    assert_eq!(volume.direct_counts().asked, (0, 0));
    put(0, &data, Access::DIRECT);
    assert_eq!(volume.direct_counts().direct_writes, (1, 4 * BLOCK));
    // Aligned to pages: the blocks that it covers are direct.
    put(4096, &data[..2 * BLOCK as usize], Access::DIRECT);
    assert_eq!(volume.direct_counts().direct_writes, (2, 5 * BLOCK));
    // Aligned to sectors, or to nothing.
    put(512, &data[..512], Access::DIRECT);
    put(8192, &data[..BLOCK as usize], Access { memory: Memory::Misaligned, ..Access::DIRECT });
    let counts = volume.direct_counts();
    assert_eq!((counts.rejected, counts.direct_writes), ((0, 0), (2, 5 * BLOCK)));
    let reasons: Vec<Reason> = counts.fallbacks.iter().map(|count| count.reason).collect();
    assert!(reasons.contains(&Reason::MisalignedOffset) && reasons.contains(&Reason::MisalignedMemory), "{reasons:?}");
    let whole = contents(&volume);
    assert!(volume.read(0, 4 * BLOCK, Access::DIRECT).expect("read").to_vec() == whole[..4 * BLOCK as usize]);
    assert!(volume.read(100, 1000, Access::DIRECT).expect("read").to_vec() == whole[100..1100]);
    assert_eq!(volume.direct_counts().direct_reads, (1, 4 * BLOCK));
    volume.set_settings(Settings { direct: direct_io::Property::Always, ..Settings::default() });
    put(4 * BLOCK, &data[..BLOCK as usize], CACHED);
    assert_eq!(volume.direct_counts().direct_writes, (3, 6 * BLOCK));
}

/// If this fails, a flush of a guest costs a txg, or promises what was not written.
#[test]
fn a_flush_is_a_commit_of_the_log() {
    let bed = Bed::new(&[("compression", "off")]);
    let volume = bed.open();
    for _ in 0..3 {
        write(&volume, 0, &[1; 512]).expect("written");
        volume.flush().expect("flushed");
    }
    let (txg, before) = (bed.pool.txg(), bed.sim.operations());
    write(&volume, 8192, &[2; 4096]).expect("written");
    assert_eq!(bed.sim.operations(), before, "in memory");
    volume.flush().expect("flushed");
    let flushed = bed.sim.operations();
    assert!(flushed > before);
    volume.flush().expect("flushed");
    assert_eq!(bed.sim.operations(), flushed, "nothing is new");
    assert_eq!(bed.pool.txg(), txg, "no txg was waited for");
    volume.dataset().set_props(&[("sync".to_string(), "disabled".to_string())]).expect("set");
    // What a write needs of old blocks is in memory.
    contents(&volume);
    let disabled = bed.sim.operations();
    volume.write(8192, Abd::from_slice(&[3; 512]), CACHED, true).expect("written");
    volume.flush().expect("flushed");
    assert_eq!(bed.sim.operations(), disabled, "nobody is promised anything");
}
