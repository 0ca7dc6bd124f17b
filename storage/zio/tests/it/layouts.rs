//! Blocks survive what their layout promises: round trips, failed and corrupt leaves, and what lies beyond parity.

use crate::common::*;
use device::DeviceError;
use ondisk::{Checksum, Compression};
use vdev::TopKind;
use zio::ErrorKind;

/// A user loses data if any combination of layout, sector size, size, compression and checksum does not read back.
#[test]
fn every_layout_reads_back_what_was_written() {
    for (name, layout) in layouts() {
        for ashift in [9, 12] {
            for (threaded, exec) in [(false, inline()), (true, threads())] {
                let rig = Rig::new(exec, &layout, ashift);
                let mut block = 0;
                for size in [512, 1536, 4096, 16384, 131_072, 1 << 20] {
                    for compression in [Compression::OFF, Compression::LZ4, Compression::ZSTD, Compression::GZIP_1, Compression::ZLE] {
                        for checksum in [Checksum::FLETCHER_4, Checksum::SHA256, Checksum::FLETCHER_2, Checksum::OFF] {
                            if size > 200_000 && (checksum != Checksum::FLETCHER_4 || threaded) {
                                continue;
                            }
                            block += 1;
                            let data = if block % 2 == 0 { noise(block, size) } else { text(block, size) };
                            let mut wanted = request(data.clone(), block);
                            (wanted.compression, wanted.checksum) = (compression, checksum);
                            let what = format!("{name} ashift {ashift} size {size} {compression} {checksum}");
                            let bp = rig.write(wanted).unwrap_or_else(|error| panic!("{what}: {error}"));
                            assert_eq!(bp.lsize(), size, "{what}");
                            assert!(rig.read(&bp).is_ok_and(|back| back == data), "{what}: {bp:?}");
                            rig.zio.free(TXG, &bp);
                        }
                    }
                }
            }
        }
    }
}

/// Up to parity's worth of dead or lying leaves must cost nothing but redundancy, and a scrub must restore that.
#[test]
fn every_tolerable_set_of_bad_leaves_reads_right_and_heals() {
    for (name, layout) in layouts() {
        let (leaves, tolerance) = match layout[0] {
            (TopKind::Mirror, count) => (count, count - 1),
            (TopKind::Raidz(parity), count) => (count, usize::from(parity)),
            _ => continue,
        };
        for ashift in [9, 12] {
            for size in [1024, 16384, 131_072] {
                let rig = Rig::new(inline(), &layout, ashift);
                let data = noise(3, size);
                let bp = rig.write(request(data.clone(), 1)).expect("a healthy pool takes a write");
                let intact = rig.contents();
                for count in 1..=tolerance {
                    for bad in subsets(leaves, count) {
                        let what = format!("{name} ashift {ashift} size {size} bad {bad:?}");
                        rig.kill(&bad, DeviceError::Gone);
                        assert!(rig.read(&bp).is_ok_and(|back| back == data), "{what}: gone");
                        rig.revive();
                        rig.kill(&bad, DeviceError::Io);
                        assert!(rig.read(&bp).is_ok_and(|back| back == data), "{what}: failing");
                        rig.revive();
                        rig.corrupt(&bad);
                        assert!(rig.read(&bp).is_ok_and(|back| back == data), "{what}: corrupt");
                        assert!(rig.scrub(&bp).is_ok(), "{what}: scrub");
                        let healed = rig.devices.iter().all(|device| {
                            device.reads.lock().clear();
                            true
                        }) && rig.scrub(&bp).is_ok()
                            && same_where_read(&rig, &intact);
                        assert!(healed, "{what}: not healed");
                        for (device, bytes) in rig.devices.iter().zip(&intact) {
                            device.mem.tamper(|now| now[HEAD].copy_from_slice(bytes));
                        }
                    }
                }
            }
        }
    }
}

/// True when the bytes that the last scrub read are those of the intact pool.
fn same_where_read(rig: &Rig, intact: &[Vec<u8>]) -> bool {
    rig.devices.iter().zip(intact).all(|(device, bytes)| {
        let now = device.head();
        device.reads.lock().iter().all(|&(offset, length)| {
            let range = offset as usize - HEAD.start..(offset + length) as usize - HEAD.start;
            now[range.clone()] == bytes[range]
        })
    })
}

/// One leaf too many must give an error of the right kind, never wrong bytes.
#[test]
fn beyond_parity_is_a_typed_error() {
    for (name, layout) in layouts() {
        let (leaves, tolerance) = match layout[0] {
            (TopKind::Mirror, count) => (count, count - 1),
            (TopKind::Raidz(parity), count) => (count, usize::from(parity)),
            _ => (2, 1),
        };
        for size in [16384, 131_072] {
            let rig = Rig::new(inline(), &layout, 12);
            let data = noise(3, size);
            let bp = rig.write(request(data.clone(), 1)).expect("a healthy pool takes a write");
            for bad in subsets(leaves, tolerance + 1) {
                let what = format!("{name} size {size} bad {bad:?}");
                for (error, kind) in [(DeviceError::Gone, ErrorKind::NoDevice), (DeviceError::Io, ErrorKind::Io)] {
                    rig.kill(&bad, error);
                    assert_eq!(rig.read(&bp).map_err(|error| error.kind), Err(kind), "{what}");
                    rig.revive();
                }
                rig.corrupt(&bad);
                assert_eq!(rig.read(&bp).map_err(|error| error.kind), Err(ErrorKind::Checksum), "{what}");
                rig.corrupt(&bad);
                assert!(rig.read(&bp).is_ok_and(|back| back == data), "{what}: the bytes are back");
            }
        }
    }
}

/// A healthy raidz read must not cost parity I/O.
#[test]
fn a_healthy_raidz_read_reads_data_columns_only() {
    let rig = Rig::new(inline(), &[(TopKind::Raidz(2), 5)], 12);
    let bp = rig.write(request(noise(1, 131_072), 0)).expect("a healthy pool takes a write");
    rig.devices.iter().for_each(|device| device.reads.lock().clear());
    rig.read(&bp).expect("a healthy pool reads");
    let bytes: u64 = rig.devices.iter().flat_map(|device| device.reads.lock().clone()).map(|(_, length)| length).sum();
    assert_eq!(bytes, 131_072, "only the block's own bytes are read");
}
