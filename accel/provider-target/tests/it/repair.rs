//! Lost columns, computed where the disks are: the target reads what is left, and only the program, a checksum and an answer cross the link.

use crate::common::proxy::{Armed, Fate, NEVER, Proxy};
use crate::common::{
    DATA, DEADLINE_NS, Host, PARITY, Side, Written, blocks, exec, features, is_on, setup, software, until, write_in_software,
};
use dpusm::{Device, Feature, Graph, OpError, RaidContext, Store, StoreKind, View};
use ondisk::{ByteOrder, Checksum};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Long enough for a slow machine between two frames, short enough for many deaths.
const LEASE_MS: u64 = 1000;

fn all_features() -> Vec<Feature> {
    let mut list = features();
    list.push(Feature::RaidReconstruct { parity: PARITY as u8, data_columns_max: DATA as u16 });
    list.push(Feature::Load { kind: StoreKind::File });
    list
}

/// Computes column `lost` (parity first) of a record from what is on the other disks, and writes it when the record's checksum says that all is right;
/// false when it does not.
fn repair(device: &Device, stores: &[Store], record: &Written, lost: usize, offset: u64) -> Result<bool, OpError> {
    let lengths: Vec<usize> = record.columns.iter().map(Vec::len).collect();
    let block = device.alloc(lengths[PARITY..].iter().sum())?;
    let parity = (0..PARITY).map(|number| Ok(device.alloc(lengths[number])?.whole())).collect::<Result<Vec<View>, OpError>>()?;
    let mut at = 0;
    let mut data = Vec::new();
    for length in &lengths[PARITY..] {
        data.push(block.view(at..at + length)?);
        at += length;
    }
    let row = RaidContext::new(parity, data)?;
    // The second parity is not read: one is enough for one column.
    let targets = if lost < PARITY { vec![lost] } else { vec![1, lost] };
    let mut graph = Graph::new();
    for (index, column) in row.columns().iter().enumerate() {
        let is_needed = index >= PARITY || lost >= PARITY;
        if is_needed && !targets.contains(&index) && !column.is_empty() {
            graph.load(column, &stores[index], offset);
        }
    }
    graph.raid_reconstruct(&row, &targets);
    let sum = graph.checksum(block.whole(), Checksum::FLETCHER_4, ByteOrder::Little);
    let report = device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?;
    report.all()?;
    if report.checksum(sum)? != record.checksum {
        return Ok(false);
    }
    let mut graph = Graph::new();
    graph.store(&row.columns()[lost], &stores[lost], offset);
    graph.flush(&stores[lost]);
    device.run(graph, DEADLINE_NS).map_err(|refused| refused.error)?.all()?;
    Ok(true)
}

/// Puts zeros in the place of a column.
fn lose(disks: &[PathBuf], record: &Written, lost: usize, offset: u64) {
    let zeros = vec![0; record.columns[lost].len()];
    File::options().write(true).open(&disks[lost]).unwrap().write_all_at(&zeros, offset).unwrap();
}

/// A resilver that has every column cross the network to the host and back is as slow as the network: one of a target moves next to nothing.
#[test]
fn a_repair_moves_next_to_nothing_over_the_link() {
    let side = Side::new("repair", all_features(), setup(30_000));
    let listening = side.tcp();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    for bytes in [128 << 10, 1 << 20] {
        let records: Vec<Written> = blocks(8, bytes, false).iter().map(software).collect();
        let offset = |number: usize| (number * bytes) as u64;
        let lost = |number: usize| PARITY + number % DATA;
        let mut repaired = 0;
        for (number, record) in records.iter().enumerate() {
            write_in_software(&disks, record, offset(number));
            lose(&disks, record, lost(number), offset(number));
            repaired += record.columns[lost(number)].len();
        }
        let before = host.provider.stats();
        for (number, record) in records.iter().enumerate() {
            assert_eq!(repair(&host.device, &stores, record, lost(number), offset(number)), Ok(true), "record {number} of {bytes}");
        }
        let crossed = host.provider.stats().since(&before);
        for (number, record) in records.iter().enumerate() {
            assert!(is_on(&disks, record, offset(number)), "record {number} of {bytes}");
        }
        let ratio = crossed.bytes() as f64 / repaired as f64;
        println!("records of {bytes}: {ratio:.4} link bytes per repaired byte, {crossed:?}");
        assert!(ratio <= 0.05, "{ratio} link bytes per repaired byte");
        assert_eq!((crossed.round_trips, crossed.resent), (2 * records.len() as u64, 0));
    }
}

/// Every column can be the one that is lost, parity too.
#[test]
fn every_column_can_be_repaired() {
    let side = Side::new("columns", all_features(), setup(30_000));
    let listening = side.unix();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    let record = software(&blocks(1, 40 << 10, false)[0]);
    for lost in 0..PARITY + DATA {
        write_in_software(&disks, &record, 4096);
        lose(&disks, &record, lost, 4096);
        assert_eq!(repair(&host.device, &stores, &record, lost, 4096), Ok(true), "column {lost}");
        assert!(is_on(&disks, &record, 4096), "column {lost}");
    }
}

/// A column that rotted on another disk would spread to the one that is repaired: the host compares the record's checksum first, and nothing is written.
#[test]
fn a_repair_from_damaged_columns_writes_nothing() {
    let side = Side::new("rotten", all_features(), setup(30_000));
    let listening = side.tcp();
    let host = Host::new(&exec(), listening.address(), &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    let record = software(&blocks(1, 64 << 10, false)[0]);
    let (lost, rotten) = (PARITY, PARITY + 3);
    write_in_software(&disks, &record, 0);
    lose(&disks, &record, lost, 0);
    lose(&disks, &record, rotten, 0);
    assert_eq!(repair(&host.device, &stores, &record, lost, 0), Ok(false));
    let mut found = vec![1; record.columns[lost].len()];
    File::open(&disks[lost]).unwrap().read_exact_at(&mut found, 0).unwrap();
    assert!(found.iter().all(|byte| *byte == 0), "something was written");
    // Bytes behind the end of a disk are an error, not zeros.
    let buffer = host.device.alloc(4096).unwrap();
    let mut graph = Graph::new();
    graph.load(&buffer.whole(), &stores[0], 16 << 20);
    assert!(matches!(host.device.run(graph, DEADLINE_NS).unwrap().all(), Err(OpError::Io(_))));
}

/// Dies at a frame of two repairs; how many were acknowledged, and how many frames went by.
fn die_at(frame: u64, fate: Fate, is_killed: bool) -> (usize, u64) {
    let side = Side::new("repair-deaths", all_features(), setup(LEASE_MS));
    let listening = side.tcp();
    let (armed, judge) = Armed::new(&side.target, fate, is_killed);
    let proxy = Proxy::new(listening.address(), judge);
    let host = Host::new(&exec(), &proxy.address, &side.folder.0, 512);
    let disks = side.disks("disk");
    let stores = host.open(&disks).unwrap();
    let records: Vec<Written> = blocks(2, 32 << 10, false).iter().map(software).collect();
    for (number, record) in records.iter().enumerate() {
        write_in_software(&disks, record, (number << 20) as u64);
        lose(&disks, record, PARITY, (number << 20) as u64);
    }
    let before = armed.passed();
    armed.arm(frame);
    let what = format!("{fate:?} at {frame} killed {is_killed}");
    let mut acknowledged = 0;
    for (number, record) in records.iter().enumerate() {
        let offset = (number << 20) as u64;
        match repair(&host.device, &stores, record, PARITY, offset) {
            Ok(is_right) => {
                assert!(is_right && is_on(&disks, record, offset), "{what}: record {number} was acknowledged and is not there");
                acknowledged += 1;
            }
            Err(error) => assert!(matches!(error, OpError::Down | OpError::Tripped | OpError::Io(_)), "{what}: {error}"),
        }
    }
    let frames = armed.passed() - before;
    if frame != NEVER {
        until(|| host.provider.is_down());
    }
    for (number, record) in records.iter().enumerate() {
        let mut found = vec![1; record.columns[PARITY].len()];
        File::open(&disks[PARITY]).unwrap().read_exact_at(&mut found, (number << 20) as u64).unwrap();
        assert!(found == record.columns[PARITY] || found.iter().all(|byte| *byte == 0), "{what}: something else was written");
    }
    (acknowledged, frames)
}

/// The target, or the way to it, dies at every frame of a repair: what was acknowledged is on the disk, and nothing else is.
#[test]
fn a_death_at_any_frame_of_a_repair_loses_nothing_that_was_acknowledged() {
    let (all, frames) = die_at(NEVER, Fate::Pass, false);
    assert!(all == 2 && frames >= 8, "{all} repairs, {frames} frames");
    let ways: Vec<(u64, Fate, bool)> =
        (0..8).flat_map(|frame| [(frame, Fate::Cut, false), (frame, Fate::CutAfter, false), (frame, Fate::Cut, true)]).collect();
    std::thread::scope(|scope| {
        for group in ways.chunks(ways.len().div_ceil(8)) {
            scope.spawn(move || {
                for (frame, fate, is_killed) in group {
                    die_at(*frame, *fate, *is_killed);
                }
            });
        }
    });
}
