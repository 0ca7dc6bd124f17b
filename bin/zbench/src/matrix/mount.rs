//! Our file system through its mount, as any program uses it: fio on files of a pool that a daemon of its own owns.

use super::cell::{Group, Measured, Mode, Pattern, Task};
use super::raw;
use crate::devices::DeviceSet;
use crate::fio::Job;
use crate::mounted::Mounted;
use std::path::PathBuf;

/// Daemon with the group's pool.
pub struct Mount {
    mounted: Mounted,
    devices: Vec<PathBuf>,
}

impl Mount {
    /// Starts the daemon and makes the pool.
    pub fn create(devices: &DeviceSet, group: &Group) -> Result<Mount, String> {
        let mounted = Mounted::start(super::arc_bytes(group))?;
        let devices = devices.first(group.layout.devices).to_vec();
        let properties = [format!("recordsize={}", group.size), "compression=off".to_string(), "atime=off".to_string()];
        mounted.create(group.layout, &devices, &properties)?;
        let mut mount = Mount { mounted, devices };
        let (first, write) = super::warm_up(group);
        mount.run(&first, write)?;
        Ok(mount)
    }

    /// Runs one task.
    pub fn run(&mut self, group: &Group, task: Task) -> Result<Measured, String> {
        match task.pattern {
            // What was written before makes room.
            Pattern::Write => {
                self.mounted.clear_files()?;
            }
            // A direct read may leave caches as they are; a buffered one must find them empty.
            Pattern::Read | Pattern::Random if task.mode == Mode::Buffered => self.mounted.reimport(&self.devices)?,
            Pattern::Read | Pattern::Random => {}
        }
        let each = (group.bytes / group.jobs as u64 / group.size).max(1) * group.size;
        let job = Job::new(&[], raw::fio_name(task.pattern), group.size)
            .with("directory", self.mounted.file("").display())
            .with("filename_format", "f.$jobnum")
            // Of full length from the start: the kernel lets direct writes overlap only inside a file.
            .with("fallocate", "truncate")
            .with("size", each);
        let job = raw::shape(job, group, task, group.in_flight);
        let (copied, direct) = (self.mounted.copied_bytes(), self.mounted.direct_bytes());
        let cpu = self.mounted.server.cpu_seconds();
        let outcome = job.run()?;
        let mut measured = raw::measured(&outcome);
        measured.cpu += self.mounted.server.cpu_seconds() - cpu;
        let copied = self.mounted.copied_bytes().zip(copied).map(|(after, before)| after - before);
        measured.copies = copied.map(|copied| copied as f64 / outcome.bytes.max(1) as f64);
        let direct = self.mounted.direct_bytes().zip(direct).map(|(after, before)| after - before);
        measured.direct_share = direct.map(|direct| direct as f64 / outcome.bytes.max(1) as f64);
        Ok(measured)
    }

    /// Exports the pool and ends the daemon.
    pub fn end(self) -> Result<(), String> {
        self.mounted.command("zpool", &["export", "zbench"]).map(drop)
    }
}
