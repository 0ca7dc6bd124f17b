//! The devices themselves under fio: what everything above is measured against.

use super::cell::{Group, Measured, Mode, Pattern, Task};
use crate::devices::DeviceSet;
use crate::files::DATA_START;
use crate::fio::{Job, Outcome};

/// Name of the pattern for fio.
pub fn fio_name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Write => "write",
        Pattern::Read => "read",
        Pattern::Random => "randread",
    }
}

/// Adds the options that follow from the task, for any target: engine, depth, duration.
pub fn shape(job: Job, group: &Group, task: Task, in_flight: usize) -> Job {
    let job = job.with("numjobs", group.jobs);
    let job = match task.mode {
        Mode::Buffered => job.with("ioengine", "psync").with("direct", 0),
        Mode::Direct => job.with("ioengine", "libaio").with("direct", 1).with("iodepth", in_flight.div_ceil(group.jobs)),
    };
    match task.pattern {
        Pattern::Random => job.with("runtime", format!("{:.0}ms", group.seconds * 1e3)).with("time_based", 1),
        // A direct write that was answered is on the devices.
        Pattern::Write if task.mode == Mode::Buffered => job.with("end_fsync", 1),
        Pattern::Write | Pattern::Read => job,
    }
}

/// Result of fio as a cell's.
pub fn measured(outcome: &Outcome) -> Measured {
    Measured {
        bytes: outcome.bytes,
        seconds: outcome.seconds,
        iops: outcome.iops,
        latency_us: Some(outcome.latency_us),
        cpu: outcome.cpu,
        copies: None,
        direct_share: None,
    }
}

/// Runs one task on the devices, striped over all that the group has.
pub fn run(devices: &DeviceSet, group: &Group, task: Task) -> Result<Measured, String> {
    let paths = devices.first(group.layout.devices);
    let each = group.bytes / (group.jobs * paths.len()) as u64 / group.size * group.size;
    let each = each.max(group.size);
    let job = Job::new(paths, fio_name(task.pattern), group.size)
        .with("offset", DATA_START)
        .with("offset_increment", each)
        .with("size", each * paths.len() as u64)
        .with("file_service_type", "roundrobin:1")
        .with("overwrite", 1);
    // Deep enough for every device to have work.
    let in_flight = group.in_flight.max(4 * paths.len());
    Ok(measured(&shape(job, group, task, in_flight).run()?))
}
