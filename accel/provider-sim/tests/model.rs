//! The modelled accelerator: bytes as software's, time as the rates say, in virtual and in real time.

use abd::{Abd, AbdPart};
use dpusm::{Compress, Device, Graph, OpError, OpKind, RegisterOptions, Registry, Tally};
use exec::{Exec, Inline, Mutex, Pool};
use ondisk::{ByteOrder, Checksum, Compression};
use provider_sim::{Rates, Sim, SimOptions};
use std::sync::Arc;

const RECORD: usize = 256 << 10;

fn options() -> RegisterOptions {
    RegisterOptions { test_bytes_max: 8192, scratch: Some(std::env::temp_dir()), ..RegisterOptions::default() }
}

fn how() -> Compress {
    Compress { kind: Compression::GZIP_1, level: 0, limit_bytes: RECORD - RECORD / 8, round_to_bytes: 4096 }
}

/// Records that shrink, differently.
fn record(number: usize) -> Abd {
    let bytes: Vec<u8> = (0..RECORD).map(|at| ((at / 7 * 31 + number) % 251) as u8 ^ (at as u8 & number as u8)).collect();
    Abd::from_slice(&bytes)
}

/// Bytes that are stored, and their checksum.
type Stored = (Vec<u8>, [u64; 4]);

fn software(block: &Abd) -> Stored {
    let mut out = vec![0; how().limit_bytes];
    let length = kernels::compress(how().kind, 0, &block.to_vec(), &mut out).unwrap();
    out.truncate(length);
    out.resize(how().stored_bytes(length), 0);
    let sum = kernels::checksum(Checksum::FLETCHER_4, &[&out], ByteOrder::Little).unwrap();
    (out, sum)
}

/// Submits the first round of every record; results come in any order.
fn write_all(exec: &Exec, device: &Device, records: &[Abd]) -> Vec<Stored> {
    let results: Arc<Mutex<Vec<Option<Stored>>>> = Arc::new(Mutex::new(records.iter().map(|_| None).collect()));
    let changed = Arc::new(exec::WaitQueue::new());
    for (number, block) in records.iter().enumerate() {
        let (source, target) = (device.alloc(RECORD).unwrap(), device.alloc(RECORD).unwrap());
        let mut graph = Graph::new();
        graph.copy_in(block, &source.whole());
        let packed = graph.compress(&source.whole(), &target.whole(), how());
        graph.zero_fill(packed.padding());
        let sum = graph.checksum(packed.result(), Checksum::FLETCHER_4, ByteOrder::Little);
        let out = graph.copy_out(packed.result(), vec![AbdPart::scratch(RECORD)]);
        let (results, changed) = (results.clone(), changed.clone());
        let done = move |mut report: dpusm::Report| {
            let stored = report.take_bytes(out).unwrap().to_vec();
            results.lock()[number] = Some((stored, report.checksum(sum).unwrap()));
            changed.notify_all();
        };
        device.submit(graph, 60_000_000_000, done).unwrap();
    }
    changed.wait_until(exec, &|| results.lock().iter().all(Option::is_some));
    std::mem::take(&mut *results.lock()).into_iter().flatten().collect()
}

/// A model that stores other bytes than software, or that is faster or slower than its rates, measures something else.
#[test]
fn bytes_are_softwares_and_time_is_the_models() {
    for memo_bytes_max in [0, 64 << 20] {
        let exec: Exec = Arc::new(Inline::new(2));
        let sim = Sim::new(&exec, SimOptions { rates: Rates::noload_u2(2), memo_bytes_max, ..SimOptions::new("sim") });
        let device = Registry::new(&exec).register(sim.clone(), &options()).unwrap();
        assert_eq!(device.disabled(), []);
        // Every record twice: the second time from memory, where there is one.
        let records: Vec<Abd> = (0..32).map(|number| record(number % 16)).collect();
        let began = exec.now_ns();
        let stored = write_all(&exec, &device, &records);
        let took = exec.now_ns() - began;
        for (number, (block, stored)) in records.iter().zip(&stored).enumerate() {
            assert!(*stored == software(block), "record {number}");
        }
        // Sixteen records one after the other on each of two compressors, plus one record's way in and out.
        let compress_ns = 16 * Rates::noload_u2(2).compress.time_ns(RECORD as u64);
        assert!((compress_ns..compress_ns + compress_ns / 5).contains(&took), "{took} ns, compression alone {compress_ns}");
        let device_ns = device.stats().get(OpKind::Compress, Tally::DeviceNs);
        assert_eq!(device_ns, 2 * compress_ns);
        assert!(sim.emulation_cpu_ns() > 0);
        assert_eq!((device.live_handles(), device.memory().unwrap().active.buffers), (0, 0));
    }
}

/// In real time the model must not be faster than its device, and must hold no thread while it waits.
#[test]
fn real_time_is_not_shorter_than_the_models() {
    let exec: Exec = Arc::new(Pool::new(1));
    let mut rates = Rates::noload_u2(1);
    rates.checksum.latency_ns = 20_000_000;
    let sim = Sim::new(&exec, SimOptions { rates, ..SimOptions::new("sim") });
    let device = Registry::new(&exec).register(sim, &RegisterOptions { test_bytes_max: 512, ..RegisterOptions::default() }).unwrap();
    let (records, began) = (vec![record(1), record(2)], exec.now_ns());
    let stored = write_all(&exec, &device, &records);
    assert!(exec.now_ns() - began >= 40_000_000, "two checksums on one engine");
    assert!(stored.iter().zip(&records).all(|(stored, block)| *stored == software(block)));
}

/// A device's memory is limited: the pool must hear so at once.
#[test]
fn memory_runs_out() {
    let exec: Exec = Arc::new(Inline::new(2));
    let sim = Sim::new(&exec, SimOptions { memory_bytes_max: 1 << 20, ..SimOptions::new("sim") });
    let device = Registry::new(&exec).register(sim, &RegisterOptions { test_bytes_max: 512, ..RegisterOptions::default() }).unwrap();
    let held = device.alloc(1 << 20).unwrap();
    assert_eq!(device.alloc(1).map(|_| ()), Err(OpError::NoMemory));
    drop(held);
    assert!(device.alloc(1).is_ok());
}
