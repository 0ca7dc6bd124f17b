//! Our engine as a library: one thread per stream, each with its own object.

use super::cell::{Group, Measured, Mode, Pattern, Task};
use crate::devices::DeviceSet;
use crate::files::{AlignedBuffer, pattern};
use crate::measure::measure;
use crate::pipeline::{self, Direction, Stream};
use crate::subject::{Config, Subject};
use abd::Abd;
use dmu::Dnode;
use ondisk::ObjectId;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Pool of the group's layout, and the objects that the last write made.
pub struct Library {
    subject: Option<Subject>,
    objects: Vec<ObjectId>,
}

/// Latencies in microseconds at the median, 99th and 99.9th percentile.
pub fn percentiles(mut nanoseconds: Vec<u32>) -> Option<[f64; 3]> {
    if nanoseconds.is_empty() {
        return None;
    }
    nanoseconds.sort_unstable();
    let at = |part: f64| f64::from(nanoseconds[((nanoseconds.len() as f64 * part).ceil() as usize).max(1) - 1]) / 1e3;
    Some([at(0.5), at(0.99), at(0.999)])
}

/// Bytes that are written: the same for everybody, as buffers of which writes take slices.
fn data() -> &'static Abd {
    static DATA: OnceLock<Abd> = OnceLock::new();
    DATA.get_or_init(|| Abd::from_slice(&pattern(64 << 20)))
}

impl Library {
    /// Makes the pool.
    pub fn create(devices: &DeviceSet, group: &Group, threads: usize) -> Result<Library, String> {
        let config = Config {
            layout: group.layout,
            devices: devices.first(group.layout.devices).to_vec(),
            record: group.size as usize,
            checksum: "fletcher4".to_string(),
            compression: "off".to_string(),
            threads,
            arc_max: super::arc_bytes(group),
        };
        let mut library = Library { subject: Some(Subject::create(&config)?), objects: Vec::new() };
        let (first, write) = super::warm_up(group);
        library.run(&first, write)?;
        Ok(library)
    }

    fn subject(&self) -> Result<&Subject, String> {
        self.subject.as_ref().ok_or_else(|| "the pool is gone".to_string())
    }

    /// Runs one task.
    pub fn run(&mut self, group: &Group, task: Task) -> Result<Measured, String> {
        match task.pattern {
            Pattern::Write => {
                // What was written before makes room.
                let subject = self.subject()?;
                self.objects.iter().try_for_each(|object| subject.free_object(*object))?;
                let objects = (0..group.jobs).map(|_| subject.make_object()).collect::<Result<_, _>>()?;
                subject.settle()?;
                self.objects = objects;
            }
            Pattern::Read | Pattern::Random if task.mode == Mode::Buffered => {
                let subject = self.subject.take().ok_or("the pool is gone")?;
                self.subject = Some(subject.reimport()?);
            }
            Pattern::Read | Pattern::Random => {}
        }
        let subject = self.subject()?;
        let objects = self.objects.iter().map(|number| subject.object(*number)).collect::<Result<Vec<_>, _>>()?;
        let (copied, direct) = (abd::memory_stats().copied_bytes, subject.direct_bytes());
        let (streams, cost) = measure(|| {
            let streams = std::thread::scope(|scope| {
                let started: Vec<_> = objects.iter().map(|object| scope.spawn(|| stream(subject, object, group, task))).collect();
                started.into_iter().map(|thread| thread.join().map_err(|_| "a stream panicked".to_string())?).collect::<Result<Vec<_>, _>>()
            })?;
            if task.pattern == Pattern::Write && task.mode == Mode::Buffered {
                subject.sync()?;
            }
            Ok(streams)
        })?;
        let bytes: u64 = streams.iter().map(|stream| stream.bytes).sum();
        let latencies: Vec<u32> = streams.into_iter().flat_map(|stream| stream.latencies_ns).collect();
        Ok(Measured {
            bytes,
            seconds: cost.seconds,
            iops: latencies.len() as f64 / cost.seconds.max(1e-9),
            latency_us: percentiles(latencies),
            cpu: cost.cpu,
            copies: Some((abd::memory_stats().copied_bytes - copied) as f64 / bytes.max(1) as f64),
            direct_share: Some((subject.direct_bytes() - direct) as f64 / bytes.max(1) as f64),
        })
    }

    /// Exports the pool.
    pub fn end(mut self) -> Result<(), String> {
        self.subject.take().map_or(Ok(()), Subject::export)
    }
}

fn stream(subject: &Subject, object: &Arc<Dnode>, group: &Group, task: Task) -> Result<Stream, String> {
    let (size, bytes) = (group.size, group.bytes / group.jobs as u64 / group.size * group.size);
    let deadline = Instant::now() + Duration::from_secs_f64(group.seconds);
    let offsets: Box<dyn Iterator<Item = u64>> = match task.pattern {
        Pattern::Random => Box::new(pipeline::random_offsets(size, bytes, object.object().0, deadline)),
        _ => Box::new((0..bytes).step_by(size as usize)),
    };
    if task.mode == Mode::Direct {
        let direction = if task.pattern == Pattern::Write { Direction::Write } else { Direction::Read };
        return pipeline::run(subject, object, direction, group.in_flight.div_ceil(group.jobs), size, data(), offsets);
    }
    let (mut stream, mut buffer) = (Stream::default(), AlignedBuffer::new(size as usize));
    let bytes = data().as_contiguous().ok_or("the data is one buffer")?;
    for offset in offsets {
        let begun = Instant::now();
        match task.pattern {
            Pattern::Write => {
                let start = offset as usize % (bytes.len() - size as usize + 1) / 4096 * 4096;
                subject.write_at(object, offset, &bytes[start..start + size as usize])?;
            }
            _ => subject.read_at(object, offset, &mut buffer)?,
        }
        stream.note(size, begun);
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tail latencies are what users notice: an index off by one would report the best for the worst.
    #[test]
    fn percentiles_name_the_right_sample() {
        let thousand: Vec<u32> = (1..=1000).rev().map(|value| value * 1000).collect();
        assert_eq!(percentiles(thousand), Some([500.0, 990.0, 999.0]));
        assert_eq!(percentiles(vec![7000]), Some([7.0; 3]));
        assert_eq!(percentiles(Vec::new()), None);
    }
}
