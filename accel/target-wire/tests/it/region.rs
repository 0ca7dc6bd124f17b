//! Files that others pass for shared memory: only those are taken whose length nobody can change, and nothing is read or written outside.

use abd::{Abd, SharedPages};
use exec::SplitMix;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use target_wire::{
    CompletionRoom, Connection, ExecutePlaces, Limits, Malformed, Place, Region, RegionAnswer, RegionError, RegionOffer, WithFile,
};

const BYTES: u64 = 1 << 20;

fn pair() -> (Connection, Connection) {
    let (one, other) = UnixStream::pair().unwrap();
    (Connection::Unix(one), Connection::Unix(other))
}

fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("region", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// A file that becomes shorter under its reader would kill a process that has it mapped, and fail another at any moment.
#[test]
fn only_files_of_sealed_length_are_taken() {
    let both = SealFlags::SHRINK | SealFlags::GROW;
    assert!(Region::accept(Some(memory(BYTES, both)), BYTES).is_ok());
    assert_eq!(Region::accept(None, BYTES).unwrap_err(), RegionError::NoFile);
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        assert_eq!(Region::accept(Some(memory(BYTES, seals)), BYTES).unwrap_err(), RegionError::NotSealed, "{seals:?}");
    }
    for (real, said) in [(BYTES, BYTES + 1), (BYTES, BYTES - 1), (BYTES, 0), (0, 0), (BYTES, u64::MAX)] {
        assert_eq!(Region::accept(Some(memory(real, both)), said).unwrap_err(), RegionError::Length, "{real} {said}");
    }
    let huge = Region::BYTES_MAX + 1;
    assert_eq!(Region::accept(Some(memory(huge, both)), huge).unwrap_err(), RegionError::Length);
    let path = std::env::temp_dir().join(format!("target-wire-region-{}", std::process::id()));
    let plain = File::create(&path).unwrap();
    plain.set_len(BYTES).unwrap();
    std::fs::remove_file(&path).unwrap();
    let socket = UnixStream::pair().unwrap().0;
    let others: [OwnedFd; 4] =
        [plain.into(), socket.into(), File::open("/dev/zero").unwrap().into(), File::open(std::env::temp_dir()).unwrap().into()];
    for other in others {
        assert_eq!(Region::accept(Some(other), BYTES).unwrap_err(), RegionError::NotSealed);
    }
}

/// What one side wrote is what the other reads; neither can change the length, and no offset leads out of it.
#[test]
fn both_sides_see_the_same_bytes_and_no_others() {
    let (host, target) = pair();
    let own = Region::create(BYTES).unwrap();
    let (mut ours, mut theirs) = crate::channels();
    own.offer(&host, &mut ours.sealer).unwrap();
    let mut from = WithFile { connection: &target, file: None };
    let frame = theirs.opener.read(&mut from, &Limits::HANDSHAKE).unwrap();
    let offer = RegionOffer::decode(&frame.message).unwrap();
    let file = from.file.expect("the file comes with the frame");
    assert!(ftruncate(&file, 0).is_err() && ftruncate(&file, 2 * BYTES).is_err());
    let far = Region::accept(Some(file), offer.bytes).unwrap();
    let mut random = SplitMix::new(4);
    for _ in 0..200 {
        let bytes = random.below(9000) + 1;
        let data: Vec<u8> = random.bytes(bytes);
        let payload = Abd::gang(&[Abd::from_slice(&data[..bytes / 3]), Abd::from_slice(&data[bytes / 3..])]);
        let offset = random.below(BYTES as usize - bytes + 1) as u64;
        let crc = own.write(offset, &payload).unwrap();
        let (found, own_crc) = far.read(Place { offset, bytes: bytes as u64 }).unwrap();
        assert!(found == payload && crc == own_crc);
        // The copy stays what it was.
        own.write(offset, &Abd::zeroed(bytes)).unwrap();
        assert!(found == payload);
        assert_ne!(far.read(Place { offset, bytes: bytes as u64 }).unwrap().1, crc);
    }
    for (offset, bytes) in [(0, BYTES + 1), (BYTES, 1), (BYTES - 1, 2), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX), (0, 0)] {
        assert!(far.read(Place { offset, bytes }).is_err(), "{offset} {bytes}");
    }
    assert!(far.write(BYTES - 1, &Abd::zeroed(2)).is_err() && far.write(u64::MAX, &Abd::zeroed(1)).is_err());
    assert!(far.write(0, &Abd::zeroed(BYTES as usize + 1)).is_err() && far.write(0, &Abd::default()).is_err());
}

/// Pages that the other side takes out again are zeros, bytes that change while they are written are under the CRC of what was written.
#[test]
fn whoever_changes_the_memory_harms_nobody() {
    let own = Region::create(BYTES).unwrap();
    let crc = own.write(0, &Abd::from_slice(&[7; 10_000])).unwrap();
    fallocate(&own, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BYTES).unwrap();
    let (found, other) = own.read(Place { offset: 0, bytes: 10_000 }).unwrap();
    assert!(found.is_zero() && other != crc);
    // A payload that its user changes at any time.
    let pages = SharedPages::new(10_000);
    let crc = own.write(4096, &pages.abd(0..10_000)).unwrap();
    pages.write(0, &[1; 100]);
    assert_eq!(own.read(Place { offset: 4096, bytes: 10_000 }).unwrap().1, crc);
    // Memory that may only be read, or only be written, is an error.
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own.as_fd()));
    let only_read = Region::accept(Some(File::open(&name).unwrap().into()), BYTES).unwrap();
    assert!(only_read.write(0, &Abd::zeroed(1)).is_err());
    let only_written = Region::accept(Some(File::options().write(true).open(&name).unwrap().into()), BYTES).unwrap();
    assert!(only_written.read(Place { offset: 0, bytes: 1 }).is_err());
}

/// Files that nobody asked for must not stay open: a host could use all that a target may have.
#[test]
fn files_come_only_where_they_are_wanted() {
    let (mut host, mut target) = pair();
    let (_, mut witness) = {
        let (reader, writer) = std::io::pipe().unwrap();
        host.send_with_file(b"0123456789", writer.as_fd()).unwrap();
        host.send_with_file(b"abc", writer.as_fd()).unwrap();
        drop(writer);
        ((), reader)
    };
    let mut bytes = [0; 10];
    target.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"0123456789");
    let (count, file) = target.read_with_file(&mut bytes).unwrap();
    assert_eq!((count, &bytes[..3]), (3, &b"abc"[..]));
    drop(file.expect("a file"));
    // Nobody has the pipe's other end any more.
    assert_eq!(witness.read(&mut bytes).unwrap(), 0);
    host.write_all(b"x").unwrap();
    assert!(matches!(target.read_with_file(&mut bytes), Ok((1, None))));
}

/// A place that came back as another would be other bytes.
#[test]
fn places_come_back_as_they_were() {
    let mut random = SplitMix::new(5);
    let number = |random: &mut SplitMix| random.next_u64() >> random.below(64);
    for _ in 0..2000 {
        let mut place = || Place { offset: number(&mut random), bytes: number(&mut random) };
        let (one, two) = (place(), place());
        let payload = (random.below(2) == 0).then_some((one, random.next_u64() as u32));
        let places = ExecutePlaces { payload, room: (random.below(2) == 0).then_some(two) };
        assert_eq!(ExecutePlaces::decode(&places.encode(b"rest")), Ok((places, &b"rest"[..])));
        let room = CompletionRoom { bytes: one.bytes, crc: random.next_u64() as u32 };
        assert_eq!(CompletionRoom::decode(&room.encode(b"rest")), Ok((room, &b"rest"[..])));
        let count = random.below(20);
        let bytes = random.bytes(count);
        if let Ok((places, rest)) = ExecutePlaces::decode(&bytes) {
            assert_eq!(places.encode(rest), bytes, "two forms of the same places");
        }
        let _ = (CompletionRoom::decode(&bytes), RegionOffer::decode(&bytes), RegionAnswer::decode(&bytes));
    }
    assert_eq!(ExecutePlaces::decode(&[4]), Err(Malformed::Tag(4)));
    for is_taken in [false, true] {
        assert_eq!(RegionAnswer::decode(&RegionAnswer { is_taken }.encode()), Ok(RegionAnswer { is_taken }));
    }
}
