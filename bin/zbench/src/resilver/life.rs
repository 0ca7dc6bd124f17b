//! One pool that loses the same device again and again, and gets it back under different loads.

use super::args::Args;
use super::disks::Disks;
use super::load::{self, Ground, Latencies, Load};
use super::sample::{self, Sample};
use crate::files::{AlignedBuffer, pattern};
use crate::layout::Layout;
use crate::machine::Ticks;
use crate::measure::cpu_seconds;
use crate::pipeline::{self, Direction};
use crate::subject::{Config, Subject};
use abd::{Abd, AbdPart};
use dmu::Dnode;
use pool::{RebuildState, ScanFunction, ScanState};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of objects, each with a stream of the load.
const STREAMS: u64 = 8;
const FILL_IN_FLIGHT: usize = 4;
/// Time of the load's reference without a resilver: longer than what the engine remembers of devices that took no time (`zio`, `idle`).
const IDLE: Duration = Duration::from_secs(6);
/// Bytes of buffers' memory that are there before anything is timed.
const WARM_BYTES: usize = 512 << 20;
const SAMPLE: Duration = Duration::from_millis(100);
/// Multiple of the time that the device's bandwidth allows after which a resilver is given up.
const PATIENCE: f64 = 20.0;

/// Figures of one recovery.
#[derive(Debug)]
pub struct Recovery {
    /// Seconds from the request to replace until the replaced device is gone from the pool.
    pub seconds: f64,
    /// Bytes that the new device was given meanwhile.
    pub written: u64,
    /// CPU seconds of the process, the load's included.
    pub cpu: f64,
    /// Percent of the processors' time that the machine's host kept for others.
    pub stolen_percent: f64,
    /// Latencies of the load before.
    pub idle: Latencies,
    /// Latencies of the load meanwhile.
    pub busy: Latencies,
    /// Samples of the recovery, moment by moment.
    pub samples: Vec<Sample>,
}

impl Recovery {
    /// Rate in 10⁶ bytes per second written to the new device.
    pub fn rate(&self) -> f64 {
        self.written as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

/// Figures of one rebuild onto a distributed spare.
#[derive(Debug)]
pub struct Rebuilt {
    /// Seconds from the request until nothing is rebuilt any more.
    pub seconds: f64,
    /// Bytes that the spare was given.
    pub written: u64,
    /// CPU seconds of the process.
    pub cpu: f64,
}

/// Pool that is filled.
pub struct Life {
    subject: Subject,
    layout: Layout,
    objects: Vec<Arc<Dnode>>,
    /// Bytes of each object.
    bytes: u64,
    record: u64,
    data: Abd,
}

/// Content of record `number`.
fn content(data: &Abd, record: u64, number: u64) -> &[u8] {
    let places = (data.len() as u64 / record).max(1);
    let start = (number % places * record) as usize;
    data.as_contiguous().map_or(&[], |bytes| &bytes[start..start + record as usize])
}

impl Life {
    /// Makes the pool and fills it, without caps.
    pub fn begin(args: &Args, layout: Layout, devices: &Disks, cache_bytes: u64) -> Result<Life, String> {
        let record = args.record();
        devices.take_time(false)?;
        let config = Config {
            layout,
            devices: devices.first(layout.devices).to_vec(),
            record: record as usize,
            checksum: "fletcher4".to_string(),
            compression: "off".to_string(),
            threads: 2,
            arc_max: cache_bytes,
        };
        let subject = Subject::create_with(&config, devices.opener())?;
        if let Some(target) = &args.target {
            subject.set_pool_property("background_latency_target", target)?;
        }
        let raw = devices.bytes * layout.full_devices() as u64 * args.fill_percent / 100;
        let bytes = (raw as f64 * layout.efficiency()) as u64 / STREAMS / record * record;
        let data = Abd::from_slice(&pattern(64 << 20));
        let numbers = (0..STREAMS).map(|_| subject.make_object()).collect::<Result<Vec<_>, _>>()?;
        subject.sync()?;
        let objects = numbers.into_iter().map(|number| subject.object(number)).collect::<Result<Vec<_>, _>>()?;
        for object in &objects {
            let offsets = (0..bytes).step_by(record as usize);
            pipeline::run(&subject, object, Direction::Write, FILL_IN_FLIGHT, record, &data, offsets)?;
        }
        subject.settle()?;
        Ok(Life { subject, layout, objects, bytes, record, data })
    }

    /// Sets a parameter of the I/O scheduler of this pool.
    pub fn tune(&self, name: &str, value: u64) -> Result<(), String> {
        self.subject.tune(name, value)
    }

    /// Has the buffers' memory there: a huge page that the host of a virtual machine has to find first takes some 8 ms, for which the I/O
    /// that needed it seems to take that long. A daemon that has been in use for a while has its memory.
    fn warm_up() {
        abd::set_cache_bytes_max(WARM_BYTES);
        let mut parts: Vec<AbdPart> = (0..WARM_BYTES >> 20).map(|_| AbdPart::scratch(1 << 20)).collect();
        parts.iter_mut().for_each(|part| part.fill(0xA5));
    }

    /// Takes the device away, wipes it, and brings it back as a new one, beside `load`; then everything is read without other devices.
    pub fn recover(&mut self, args: &Args, load: Load, devices: &Disks) -> Result<Recovery, String> {
        Life::warm_up();
        devices.take_time(true)?;
        let cap = devices.bandwidth[usize::from(load.only_writes())];
        let per_second = cap as f64 * self.layout.data_devices() as f64 * args.load_percent as f64 / 100.0 / self.record as f64;
        let (subject, data, record) = (&self.subject, &self.data, self.record);
        let content = |number| content(data, record, number);
        let ground = Ground { subject, objects: &self.objects, bytes: self.bytes, record, content: &content };
        let (idle, ()) = load::beside(&ground, load, per_second, || {
            if load != Load::None {
                std::thread::sleep(IDLE);
            }
        })?;
        subject.fault(0)?;
        devices.wipe(0)?;
        let (busy, recovery) = load::beside(&ground, load, per_second, || self.replace(devices))?;
        let recovery = Recovery { idle, busy, ..recovery? };
        devices.take_time(false)?;
        self.verify()?;
        Ok(recovery)
    }

    fn replace(&self, devices: &Disks) -> Result<Recovery, String> {
        let count = self.layout.devices;
        let (before, cpu, ticks, begun) = (devices.disk(0), cpu_seconds(), Ticks::now(), Instant::now());
        let enough = devices.bytes as f64 / devices.bandwidth[1] as f64 * PATIENCE;
        self.subject.replace(0)?;
        let mut samples = Vec::new();
        loop {
            let status = self.subject.scan_status();
            let progress = status.map_or((0, 0), |status| (status.issued, status.to_examine));
            let disks = (0..count).map(|index| devices.disk(index)).collect();
            samples.push(sample::take(begun, disks, self.subject.shares_milli(), progress));
            let is_done = status.is_some_and(|status| status.function == ScanFunction::Resilver && status.state == ScanState::Finished);
            if is_done && self.subject.leaf_count() == count {
                break;
            }
            if begun.elapsed().as_secs_f64() > enough {
                return Err(format!("the resilver did not end in {enough:.0} s: {status:?}"));
            }
            std::thread::sleep(SAMPLE);
        }
        Ok(Recovery {
            seconds: begun.elapsed().as_secs_f64(),
            written: devices.disk(0).written - before.written,
            cpu: cpu_seconds() - cpu,
            stolen_percent: Ticks::now().stolen_percent_since(ticks),
            idle: Latencies::default(),
            busy: Latencies::default(),
            samples,
        })
    }

    /// Takes the device away for good, and the vdev's distributed spare stands in for it; then everything is read without other devices.
    pub fn rebuild(&self, devices: &Disks) -> Result<Rebuilt, String> {
        self.subject.fault(0)?;
        devices.wipe(0)?;
        devices.take_time(true)?;
        let (cpu, begun) = (cpu_seconds(), Instant::now());
        self.subject.rebuild_onto_spare(0)?;
        let status = loop {
            let status = self.subject.rebuild_status().ok_or("no rebuild began")?;
            if status.state != RebuildState::Active {
                break status;
            }
            std::thread::sleep(SAMPLE / 10);
        };
        let rebuilt = Rebuilt { seconds: begun.elapsed().as_secs_f64(), written: status.rebuilt, cpu: cpu_seconds() - cpu };
        devices.take_time(false)?;
        if status.state != RebuildState::Complete || status.errors > 0 {
            return Err(format!("the rebuild did not end well: {status:?}"));
        }
        self.subject.wait_for_scan()?;
        self.verify()?;
        Ok(rebuilt)
    }

    /// Checks that everything is right when as many other devices are out as the layout bears; they come back afterwards.
    fn verify(&self) -> Result<(), String> {
        let out: Vec<usize> = (1..=self.layout.tolerance()).collect();
        out.iter().try_for_each(|leaf| self.subject.fault(*leaf))?;
        let mut buffer = AlignedBuffer::new(self.record as usize);
        for (index, object) in self.objects.iter().enumerate() {
            for number in 0..self.bytes / self.record {
                self.subject.read_direct_at(object, number * self.record, &mut buffer)?;
                if buffer[..] != *content(&self.data, self.record, number) {
                    return Err(format!("record {number} of object {index} is not what was written"));
                }
            }
        }
        out.iter().try_for_each(|leaf| self.subject.online(*leaf))?;
        self.subject.wait_for_scan()
    }

    /// Exports the pool.
    pub fn end(self) -> Result<(), String> {
        let Life { subject, objects, .. } = self;
        drop(objects);
        subject.export()
    }
}
