//! The pool that is surveyed through its mount: a daemon of its own has it, and objects are files that this process writes and reads.

use super::bed::{Ground, Setup, Target, Used};
use crate::files::{AlignedBuffer, pattern};
use crate::matrix::cell::Mode;
use crate::measure::{cpu_seconds, text};
use crate::mounted::Mounted;
use crate::subject::TXG_DEFER;
use exec::Exec;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

/// Daemon with a pool.
pub struct Mount {
    exec: Exec,
    devices: Vec<PathBuf>,
    setup: Setup,
    mounted: Arc<Mounted>,
}

/// Files in the mount.
struct Files {
    mounted: Arc<Mounted>,
    paths: Vec<PathBuf>,
    files: Vec<File>,
    data: AlignedBuffer,
}

impl Target for Files {
    fn write(&self, object: usize, range: Range<u64>) -> Result<(), String> {
        let data = &self.data[..(range.end - range.start) as usize];
        self.files[object].write_all_at(data, range.start).map_err(text)
    }

    fn read(&self, object: usize, range: Range<u64>) -> Result<(), String> {
        let mut buffer = AlignedBuffer::new((range.end - range.start) as usize);
        self.files[object].read_exact_at(&mut buffer, range.start).map_err(text)
    }

    fn direct_bytes(&self) -> u64 {
        self.mounted.direct_bytes().unwrap_or(0)
    }

    fn destroy(&self) -> Result<(), String> {
        self.paths.iter().try_for_each(|path| std::fs::remove_file(path).map_err(text))
    }
}

impl Mount {
    /// Starts the daemon and makes the pool on devices with these paths, as many as its layout has.
    pub fn create(exec: &Exec, devices: &[PathBuf], setup: &Setup) -> Result<Mount, String> {
        let mounted = Mounted::start(setup.arc_max)?;
        let direct = if setup.mode == Mode::Direct { "standard" } else { "disabled" };
        let properties = [
            format!("recordsize={}", setup.record),
            format!("checksum={}", setup.checksum),
            format!("compression={}", setup.compression),
            format!("direct={direct}"),
            "atime=off".to_string(),
        ];
        mounted.create(setup.layout, devices, &properties)?;
        Ok(Mount { exec: exec.clone(), devices: devices.to_vec(), setup: setup.clone(), mounted: Arc::new(mounted) })
    }

    /// Bytes that all devices read and wrote since the pool was opened.
    fn device_bytes(&self) -> Result<u64, String> {
        let devices: Vec<String> = self.devices.iter().map(|path| path.display().to_string()).collect();
        let mut words = vec!["get", "-H", "-p", "-o", "value", "read_bytes,write_bytes", "zbench"];
        words.extend(devices.iter().map(String::as_str));
        let values = self.mounted.command("zpool", &words)?;
        values.split_whitespace().map(|value| value.parse::<u64>().map_err(text)).sum()
    }
}

impl Ground for Mount {
    fn exec(&self) -> &Exec {
        &self.exec
    }

    fn sync(&self) -> Result<(), String> {
        self.mounted.command("zpool", &["sync", "zbench"]).map(drop)
    }

    fn settle(&self) -> Result<(), String> {
        (0..TXG_DEFER + 2).try_for_each(|_| self.sync())
    }

    fn open(&self, numbers: Range<u32>, request: u64, makes: bool) -> Result<Arc<dyn Target>, String> {
        let flags = if self.setup.mode == Mode::Direct { libc::O_DIRECT } else { 0 };
        let paths: Vec<PathBuf> = numbers.map(|number| self.mounted.file(&format!("f{number}"))).collect();
        let open = |path: &PathBuf| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(makes).truncate(false).custom_flags(flags);
            options.open(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let files = paths.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Arc::new(Files { mounted: self.mounted.clone(), paths, files, data: pattern(request as usize) }))
    }

    fn used(&self) -> Result<Option<Used>, String> {
        let copied = self.mounted.copied_bytes().unwrap_or(0);
        let cpu = cpu_seconds() + self.mounted.server.cpu_seconds();
        Ok(Some(Used { device_bytes: self.device_bytes()?, copied, cpu }))
    }

    fn again(self: Box<Self>) -> Result<Box<dyn Ground>, String> {
        self.mounted.reimport(&self.devices)?;
        Ok(self)
    }

    fn end(self: Box<Self>) -> Result<(), String> {
        self.mounted.command("zpool", &["export", "zbench"]).map(drop)
    }
}
