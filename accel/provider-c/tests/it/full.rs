//! A provider in C that uses every part of the interface and answers from a thread of its own.

use crate::common::{Folder, build};
use abd::{Abd, AbdPart};
use dpusm::{
    Claim, Compress, Device, Graph, MemoryCount, NoHost, OpError, Provider, RaidContext, RegisterOptions, Registry, StoreKind, StoreTarget,
    verify,
};
use exec::{Exec, Pool, completion};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_c::CProvider;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK: usize = 16 << 10;

fn register(exec: &Exec, registry: &Registry, folder: &Folder) -> Device {
    let library = build(folder, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/full.c"), &["-pthread"]);
    let provider = CProvider::load(exec, &library).unwrap();
    let options = RegisterOptions { scratch: Some(folder.0.clone()), test_bytes_max: 64 << 10, ..RegisterOptions::default() };
    registry.register(provider, &options).unwrap()
}

fn file(folder: &Folder, name: &str) -> (PathBuf, StoreTarget) {
    let path = folder.0.join(name);
    std::fs::write(&path, []).unwrap();
    (path.clone(), StoreTarget { kind: StoreKind::File, path, host: Arc::new(NoHost) })
}

/// Every operation and operand of the interface, as a record is written: what is in the files is the record and its parity.
#[test]
fn a_record_is_written_by_a_provider_in_c() {
    let folder = Folder::new("full");
    let exec: Exec = Arc::new(Pool::new(2));
    let device = register(&exec, &Registry::new(&exec), &folder);
    assert_eq!(device.disabled(), []);
    assert_eq!(device.capabilities().list.len(), 13, "an unknown operation is passed over");
    let files: Vec<_> = (0..3).map(|number| file(&folder, &format!("disk{number}"))).collect();
    let stores: Vec<_> = files.iter().map(|(_, target)| device.open(target).unwrap()).collect();
    // Half zeros shrinks; no zeros does not.
    for (number, block) in
        [(0..BLOCK).map(|at| if at % 512 < 300 { 0 } else { at as u8 | 1 }).collect(), vec![7u8; BLOCK]].iter().enumerate()
    {
        let block = Abd::from_slice(block);
        let how = Compress { kind: Compression::ZLE, level: 0, limit_bytes: BLOCK - BLOCK / 8, round_to_bytes: 1024 };
        let (source, target) = (device.alloc(BLOCK).unwrap(), device.alloc(BLOCK).unwrap());
        let mut graph = Graph::new();
        graph.copy_in(&block, &source.whole());
        let packed = graph.compress(&source.whole(), &target.whole(), how);
        graph.zero_fill(packed.padding());
        let sum = graph.checksum(packed.result(), Checksum::FLETCHER_4, ByteOrder::Little);
        let out = graph.copy_out(packed.result(), vec![AbdPart::scratch(500), AbdPart::scratch(BLOCK)]);
        let mut report = device.run(graph, 60_000_000_000).unwrap();
        report.all().unwrap();
        let (length, words, stored) = (report.compressed(packed).unwrap(), report.checksum(sum).unwrap(), report.take_bytes(out).unwrap());
        assert_eq!(length.is_some(), number == 0);
        match length {
            Some(length) => assert!(verify(&Claim::Compress { kind: how.kind, source: &block, output: &stored.slice(0..length) })),
            None => assert!(stored == block),
        }
        assert!(verify(&Claim::Checksum { kind: Checksum::FLETCHER_4, order: ByteOrder::Little, data: &stored, words }));
        let whole = if length.is_some() { &target } else { &source };
        let half = stored.len() / 2;
        let parity = device.alloc(half).unwrap();
        let data = vec![whole.view(0..half).unwrap(), whole.view(half..stored.len()).unwrap()];
        let row = RaidContext::new(vec![parity.whole()], data).unwrap();
        let at = (number * BLOCK) as u64;
        let mut graph = Graph::new();
        graph.raid_generate(&row);
        for (column, store) in row.columns().iter().zip(&stores) {
            graph.store(column, store, at);
            graph.flush(store);
        }
        device.run(graph, 60_000_000_000).unwrap().all().unwrap();
        let columns: Vec<Abd> =
            files.iter().map(|(path, _)| Abd::from_slice(&std::fs::read(path).unwrap()[at as usize..at as usize + half])).collect();
        assert!(columns[1] == stored.slice(0..half) && columns[2] == stored.slice(half..stored.len()), "{number}");
        assert!(verify(&Claim::Row { parity: &columns[..1], data: &columns[1..] }), "{number}");
    }
    drop(stores);
    assert_eq!(device.live_handles(), 0);
    let memory = device.memory().unwrap();
    assert!(memory.active == MemoryCount::default() && memory.total.buffers > 100, "{memory:?}");
    let mut missing = file(&folder, "gone").1;
    missing.path = folder.0.join("other");
    assert_eq!(device.open(&missing).map(|_| ()), Err(OpError::Io(5)));
}

/// A library that answers with a number that cannot be (an error's -1): its entries are memory that nobody wrote, and testing a thousand of them held
/// up whoever loaded it for a minute.
#[test]
fn a_number_of_capabilities_that_cannot_be_is_refused() {
    let folder = Folder::new("many");
    let exec: Exec = Arc::new(Pool::new(2));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/full.c");
    let refusal = |define: &str| {
        let library = build(&folder, &source, &["-pthread", define]);
        CProvider::load(&exec, &library).map(|provider| provider.capabilities().list.len()).map_err(|error| error.to_string())
    };
    let said = |count: u64, most: u64| Err(format!("it says that it has {count} capabilities, and may have {most}"));
    assert_eq!(refusal("-DSAID_AT_FIRST=UINT64_MAX"), said(u64::MAX, 1024));
    assert_eq!(refusal("-DSAID_AT_FIRST=1025"), said(1025, 1024));
    assert_eq!(refusal("-DSAID_AT_LAST=15"), said(15, 14));
    assert_eq!(refusal("-DSAID_AT_LAST=3"), Ok(3), "fewer than it said at first are those that it wrote");
}

/// A device that is declared dead while its own thread is at work: every graph ends, once, and nothing of it is touched later.
#[test]
fn death_in_the_middle_of_work_ends_every_graph() {
    let folder = Folder::new("dies");
    let exec: Exec = Arc::new(Pool::new(2));
    let registry = Registry::new(&exec);
    let device = register(&exec, &registry, &folder);
    let block = Abd::from_slice(&vec![5; BLOCK]);
    let ends: Vec<_> = (0..30)
        .map(|_| {
            let buffer = device.alloc(BLOCK).unwrap();
            let mut graph = Graph::new();
            graph.copy_in(&block, &buffer.whole());
            graph.checksum(buffer.whole(), Checksum::FLETCHER_4, ByteOrder::Little);
            let (completer, ended) = completion();
            device.submit(graph, 60_000_000_000, move |report| completer.complete(report.all())).unwrap();
            ended
        })
        .collect();
    registry.invalidate("full").unwrap();
    for ended in ends {
        let end = ended.wait(&exec);
        assert!(matches!(end, Ok(()) | Err(OpError::Down)), "{end:?}");
    }
    assert_eq!(device.graphs_in_flight(), 0);
    assert_eq!(device.alloc(1).map(|_| ()), Err(OpError::Down));
}
