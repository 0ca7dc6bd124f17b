//! Buffers: what a reader would see wrongly, and what memory would be lost. All of it runs under the interpreter too.

use crate::{
    Abd, AbdPart, PAGE_BYTES, SharedPages, fill_parts, io_slices_mut, memory_stats, slice_is_zero, trim_cache, with_lent, with_lent_mut,
};

fn pattern(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31) ^ salt ^ (i >> 8) as u8).collect()
}

/// Two holders of one buffer: a write by one must never show to the other.
#[test]
fn a_shared_buffer_is_copied_on_write() {
    let original = Abd::from_slice(&pattern(10_000, 1));
    let mut copy = original.clone();
    assert!(copy.get_mut().is_none());
    copy.copy_from(5, &[9; 3]);
    assert_eq!(original.to_vec(), pattern(10_000, 1));
    assert_eq!(copy.slice(5..8).to_vec(), [9; 3]);
    let before = memory_stats().copied_bytes;
    let address = copy.as_contiguous().unwrap().as_ptr();
    copy.make_mut()[0] = 1;
    assert_eq!(copy.as_contiguous().unwrap().as_ptr(), address, "an unshared buffer is written in place");
    assert!(memory_stats().copied_bytes >= before);
}

/// A slice that kept its parent's bytes writable would let a block change under a reader.
#[test]
fn slices_and_gangs_give_the_same_bytes() {
    let whole = pattern(9_000, 2);
    let abd = Abd::from_slice(&whole);
    let gang = Abd::gang(&[abd.slice(4_000..9_000), abd.slice(0..0), abd.slice(0..4_000)]);
    assert_eq!(gang.chunks().count(), 2);
    assert!(gang.as_contiguous().is_none());
    let expected: Vec<u8> = whole[4_000..].iter().chain(&whole[..4_000]).copied().collect();
    assert_eq!(gang.to_vec(), expected);
    assert_eq!(gang.to_contiguous().as_contiguous(), Some(expected.as_slice()));
    for (start, end) in [(0, 9_000), (4_999, 5_001), (5_000, 5_000), (0, 5_000), (5_000, 9_000), (8_999, 9_000)] {
        assert_eq!(gang.slice(start..end).to_vec(), &expected[start..end]);
    }
    let mut out = [0; 7];
    gang.copy_to(4_997, &mut out);
    assert_eq!(out, expected[4_997..5_004]);
    assert_eq!(gang, Abd::from_slice(&expected));
    assert_eq!(gang.io_slices().iter().map(|slice| slice.len()).sum::<usize>(), 9_000);
    let rejoined = Abd::gang(&[abd.slice(0..100), abd.slice(100..9_000)]);
    assert_eq!(rejoined.as_contiguous(), Some(whole.as_slice()), "neighbours of one buffer are one run");
}

/// The columns of a RAID-Z read, filled on their own threads, must be one block afterwards, without a copy.
#[test]
fn parts_filled_apart_join_to_one_buffer() {
    let lengths = [4_096, 4_096, 512, 0, 3_000];
    let source = pattern(lengths.iter().sum(), 3);
    let parts = Abd::scratch_parts(&lengths);
    let first = parts[0].as_ptr();
    let mut at = 0;
    let filled: Vec<AbdPart> = std::thread::scope(|scope| {
        let fills: Vec<_> = parts
            .into_iter()
            .map(|mut part| {
                let bytes = &source[at..at + part.len()];
                at += part.len();
                scope.spawn(move || {
                    part.copy_from_slice(bytes);
                    part
                })
            })
            .collect();
        fills.into_iter().map(|fill| fill.join().unwrap()).collect()
    });
    let mut joined = Abd::join(filled);
    assert_eq!(joined.as_contiguous(), Some(source.as_slice()));
    assert_eq!(joined.as_contiguous().unwrap().as_ptr(), first);
    assert!(joined.get_mut().is_some(), "all parts are back, so the buffer is not shared");
}

/// While a column is still being written, readers of the others must be neither refused nor able to write.
#[test]
fn a_frozen_part_is_readable_while_its_neighbour_is_written() {
    let mut parts = Abd::scratch_parts(&[100, 100]);
    let mut tail = parts.pop().unwrap();
    let mut head = parts.pop().unwrap();
    head.fill(1);
    let mut head = head.freeze();
    assert!(head.get_mut().is_none());
    tail.fill(2);
    assert_eq!(head.to_vec(), [1; 100]);
    head.make_mut().fill(3);
    assert_eq!(tail[..], [2; 100]);
    let joined = Abd::join([tail]);
    assert_eq!(joined.to_vec(), [2; 100]);
}

/// Reading into a buffer that somebody still holds must not change what he sees.
#[test]
fn taking_a_buffer_for_writing_copies_only_when_shared() {
    let abd = Abd::from_slice(&pattern(5_000, 4));
    let address = abd.as_contiguous().unwrap().as_ptr();
    let part = abd.into_part();
    assert_eq!(part.as_ptr(), address);
    let abd = part.freeze();
    let mut own = abd.clone().into_part();
    own.fill(0);
    assert_eq!(abd.to_vec(), pattern(5_000, 4));
    let gang = Abd::gang(&[abd.slice(10..20), abd.slice(0..10)]).into_part();
    assert_eq!(gang[..10], pattern(5_000, 4)[10..20]);
    let mut parts = [AbdPart::scratch(10), AbdPart::scratch(4)];
    assert_eq!(fill_parts(&mut parts, &pattern(12, 5)), 12);
    assert_eq!(parts[1][..2], pattern(12, 5)[10..]);
    assert_eq!(io_slices_mut(&mut parts).len(), 2);
}

/// A hole is detected by this; one byte missed is user data dropped.
#[test]
fn zero_detection_sees_every_byte() {
    for length in [0, 1, 255, 256, 257, 1_000] {
        let mut bytes = vec![0; length];
        assert!(slice_is_zero(&bytes));
        for at in (0..length).step_by(if cfg!(miri) { 37 } else { 1 }) {
            bytes[at] = 0x80;
            assert!(!slice_is_zero(&bytes), "byte {at} of {length}");
            bytes[at] = 0;
        }
    }
    let half = Abd::gang(&[Abd::zeroed(300), Abd::from_slice(&[0, 0, 1])]);
    assert!(!half.is_zero() && half.slice(0..302).is_zero());
}

/// Recycled memory must not overlap memory in use: every live buffer keeps its own bytes through a storm of others.
#[test]
fn recycled_buffers_never_overlap() {
    let rounds = if cfg!(miri) { 60 } else { 4_000 };
    let lengths = [1, 512, 4_096, 4_097, 20_000, 70_000, 131_072, 600_000, 1 << 20, (1 << 20) + 1];
    std::thread::scope(|scope| {
        for thread in 0..if cfg!(miri) { 2 } else { 4u64 } {
            scope.spawn(move || {
                let mut live: Vec<(u64, Abd)> = Vec::new();
                let mut random = thread + 1;
                for round in 0..rounds {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let length = lengths[(random >> 33) as usize % if cfg!(miri) { 5 } else { lengths.len() }];
                    let tag = thread << 32 | round;
                    let mut abd = Abd::scratch(length);
                    assert_eq!(abd.as_contiguous().unwrap().as_ptr() as usize % PAGE_BYTES, 0);
                    stamp(abd.make_mut(), tag);
                    live.push((tag, abd));
                    if live.len() > 12 {
                        let (tag, abd) = live.swap_remove((random >> 40) as usize % 12);
                        check_stamp(abd.as_contiguous().unwrap(), tag);
                    }
                }
                live.iter().for_each(|(tag, abd)| check_stamp(abd.as_contiguous().unwrap(), *tag));
            });
        }
    });
    let stats = memory_stats();
    assert!(stats.mapped_bytes >= stats.live_bytes && stats.mapped_bytes >= stats.cached_bytes, "{stats:?}");
    trim_cache();
}

fn stamp(bytes: &mut [u8], tag: u64) {
    let end = bytes.len();
    bytes[0] = tag as u8;
    bytes[end / 2] = tag as u8;
    bytes[end - 1] = tag as u8;
}

fn check_stamp(bytes: &[u8], tag: u64) {
    assert_eq!([bytes[0], bytes[bytes.len() / 2], bytes[bytes.len() - 1]], [tag as u8; 3]);
}

fn inline() -> exec::Exec {
    std::sync::Arc::new(exec::Inline::new(1))
}

/// A lent buffer must be the caller's own bytes (else direct I/O copies), and must never be written to by us.
#[test]
fn lent_bytes_are_used_in_place_and_not_written_to() {
    let bytes = pattern(8_192, 6);
    let before = crate::copied();
    with_lent(&inline(), &bytes, |abd| {
        assert_eq!(abd.as_contiguous().unwrap().as_ptr(), bytes.as_ptr());
        assert!(!abd.is_unstable());
        let mut own = abd.slice(0..4_096);
        drop(abd);
        assert!(own.get_mut().is_none(), "the caller lent it for reading");
        own.make_mut()[0] ^= 1;
    });
    assert!(crate::copied() >= before + 4_096);
    assert_eq!(bytes, pattern(8_192, 6));
    let mut target = vec![0; 8_192];
    with_lent_mut(&inline(), &mut target, |part| {
        let (mut head, tail) = part.split_at(4_096);
        head.copy_from_slice(&bytes[..4_096]);
        let joined = Abd::join([head, tail]);
        assert_eq!(joined.to_vec()[..4_096], bytes[..4_096]);
    });
    assert_eq!(target[..4_096], bytes[..4_096]);
}

/// If the loan ended while another thread still used the buffer, that thread would read memory that is somebody else's.
#[test]
fn a_loan_ends_when_the_last_user_is_gone() {
    let exec: exec::Exec = std::sync::Arc::new(exec::Pool::new(2));
    for round in 0..if cfg!(miri) { 3 } else { 200 } {
        let bytes = pattern(4_096, round);
        let sum = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        with_lent(&exec, &bytes, |abd| {
            for part in 0..4 {
                let (slice, sum) = (abd.slice(part * 1_024..(part + 1) * 1_024), sum.clone());
                let job = move || {
                    let part: u64 = slice.as_contiguous().unwrap().iter().map(|&byte| u64::from(byte)).sum();
                    sum.fetch_add(part, std::sync::atomic::Ordering::Relaxed);
                    drop(slice);
                };
                exec.spawn(exec::TaskClass::Read, Box::new(job));
            }
        });
        let whole: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(sum.load(std::sync::atomic::Ordering::Relaxed), whole, "every user was done when the loan ended");
    }
}

/// Memory that a guest or another process writes to: no slice of it, and every accessor sees its bytes.
#[test]
fn unstable_pages_are_copied_and_folded_but_never_lent_as_slices() {
    let pages = SharedPages::new(3 * PAGE_BYTES);
    let bytes = pattern(pages.len(), 7);
    pages.write(0, &bytes);
    pages.write(3, &bytes[3..1_000]);
    let abd = pages.abd(0..pages.len());
    assert!(abd.is_unstable() && abd.as_contiguous().is_none());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| abd.chunks().count())).is_err());
    assert_eq!(abd.to_vec(), bytes);
    let folded = abd.fold(Vec::new(), |mut sum, piece| {
        sum.extend_from_slice(piece);
        Some(sum)
    });
    assert_eq!(folded.unwrap(), bytes);
    let mut out = [0; 77];
    abd.slice(5..2_000).copy_to(13, &mut out);
    assert_eq!(out, bytes[18..95]);
    let stable = abd.to_stable();
    pages.write(10, &[!bytes[10]]);
    assert_eq!(stable.to_vec(), bytes, "a stable copy stays as it was");
    assert_ne!(abd, stable);
    assert!(!abd.is_zero() && SharedPages::new(1).abd(0..512).is_zero());
    let gang = Abd::gang(&[stable.slice(0..512), abd.slice(512..1_024)]);
    assert!(gang.is_unstable() && gang.slice(0..512).as_contiguous().is_some());
    assert_eq!(gang.extents().count(), 2);
    let mut own = abd.clone();
    own.make_mut()[0] ^= 0xFF;
    let mut first = [0];
    pages.read(0, &mut first);
    assert_eq!(first[0], bytes[0], "our changes never reach the pages by themselves");
    let (mut head, mut tail) = pages.part(0..1_024).split_at(100);
    head.copy_from_slice(&[7; 100]);
    tail.zero();
    tail.copy_at(1, &[9]);
    head.copy_from_abd(&Abd::from_slice(&[8; 100]));
    let mut out = [0; 102];
    pages.read(0, &mut out);
    assert_eq!((&out[..100], out[100], out[101]), (&[8; 100][..], 0, 9));
}

/// If this fails, memory that another process shares is not what that process sees, or a process that makes its memory shorter ends this one.
#[cfg(not(miri))]
#[test]
fn pages_of_a_memory_file_are_those_that_others_see() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::from(memfd_create("pages", MemfdFlags::ALLOW_SEALING).expect("a file"));
    file.set_len(2 * PAGE_BYTES as u64).expect("long");
    assert_eq!(SharedPages::of_memory_file(file.as_fd(), PAGE_BYTES).err(), Some(rustix::io::Errno::PERM), "it can be made shorter");
    fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
    for length in [0, 100, 3 * PAGE_BYTES] {
        assert_eq!(SharedPages::of_memory_file(file.as_fd(), length).err(), Some(rustix::io::Errno::INVAL), "{length}");
    }
    let pages = SharedPages::of_memory_file(file.as_fd(), 2 * PAGE_BYTES).expect("mapped");
    file.write_all_at(b"theirs", 5000).expect("written");
    let abd = pages.abd(5000..5006);
    assert!(abd.is_unstable() && abd.to_vec() == b"theirs");
    pages.write(5000, b"ours");
    drop(pages);
    let mut out = [0; 6];
    file.read_exact_at(&mut out, 5000).expect("read");
    assert_eq!((&out, abd.to_vec()), (b"oursrs", b"oursrs".to_vec()), "mapped as long as somebody has a part of it");
}
