//! fio as the load generator: one job described by options, one result read from its JSON.
//!
//! CPU is what the job itself used between its first and last I/O, as fio measured it; fio's own start and end do not count.

use crate::measure::text;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Run of fio: its options.
#[derive(Clone, Debug)]
pub struct Job {
    arguments: Vec<String>,
}

/// Report of fio about one direction of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Number of bytes moved.
    pub bytes: u64,
    /// Seconds that the job took (its final fsync included).
    pub seconds: f64,
    /// Number of I/Os per second.
    pub iops: f64,
    /// Completion latencies in microseconds: median, 99th and 99.9th percentile.
    pub latency_us: [f64; 3],
    /// CPU seconds of the jobs together.
    pub cpu: f64,
}

impl Outcome {
    /// Rate in 10⁶ bytes per second.
    pub fn mb_per_second(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

/// Fails with advice when fio is not there.
pub fn require() -> Result<(), String> {
    let found = Command::new("fio").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err("fio is needed and is not installed: ZIRCONIA_FIO=1 tools/deps.sh installs it".to_string()),
    }
}

impl Job {
    /// Makes a job over `files` (served in turn when there are several; none when an option names them) with I/Os of `block` bytes; `rw` as fio names it.
    pub fn new(files: &[PathBuf], rw: &str, block: u64) -> Job {
        let names: Vec<String> = files.iter().map(|path| path.display().to_string().replace(':', "\\:")).collect();
        let job = Job { arguments: vec!["--name=zbench".into(), "--thread".into(), "--group_reporting".into()] };
        let job = if names.is_empty() { job } else { job.with("filename", names.join(":")) };
        job.with("rw", rw).with("bs", block).with("output-format", "json").with("fallocate", "none")
    }

    /// Adds one more option.
    pub fn with(mut self, option: &str, value: impl std::fmt::Display) -> Job {
        self.arguments.push(format!("--{option}={value}"));
        self
    }

    /// Text of the command line, for people.
    pub fn command(&self) -> String {
        format!("fio {}", self.arguments.join(" "))
    }

    /// Runs the job to its end.
    pub fn run(&self) -> Result<Outcome, String> {
        let output = Command::new("fio").args(&self.arguments).current_dir(std::env::temp_dir()).output().map_err(text)?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("{} failed: {}{}", self.command(), said.trim(), String::from_utf8_lossy(&output.stderr).trim()));
        }
        // Notes may stand before the JSON.
        let start = said.find("\n{").map_or(said.find('{').unwrap_or(0), |at| at + 1);
        parse(&serde_json::from_str(&said[start..]).map_err(text)?)
    }
}

fn parse(report: &Value) -> Result<Outcome, String> {
    let job = &report["jobs"][0];
    if job.is_null() {
        return Err("fio reported no job".to_string());
    }
    if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
        return Err(format!("fio: {}", std::io::Error::from_raw_os_error(error as i32)));
    }
    let busiest = |key: &str| job[key]["io_bytes"].as_u64().unwrap_or(0);
    let direction = &job[if busiest("write") >= busiest("read") { "write" } else { "read" }];
    let percentile = |name: &str| direction["clat_ns"]["percentile"][name].as_f64().unwrap_or(f64::NAN) / 1e3;
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let cpu_percent = number(&job["usr_cpu"]) + number(&job["sys_cpu"]);
    Ok(Outcome {
        bytes: direction["io_bytes"].as_u64().unwrap_or(0),
        seconds: number(&direction["runtime"]) / 1e3,
        iops: number(&direction["iops"]),
        latency_us: [percentile("50.000000"), percentile("99.000000"), percentile("99.900000")],
        cpu: cpu_percent / 100.0 * number(&job["job_runtime"]) / 1e3,
    })
}

/// CPU seconds for moving `bytes` on `files` in blocks of `block`: the floor under every engine that uses the same files.
///
/// psync moves the bytes with one system call a block, and fio takes no time stamps: the least that anybody can pay.
pub fn floor(files: &[PathBuf], rw: &str, block: u64, bytes: u64, offset: u64, room: u64) -> Result<Outcome, String> {
    let bytes = bytes.div_ceil(block).max(1) * block;
    let each = (room / block).max(1) * block;
    Job::new(files, rw, block)
        .with("ioengine", "psync")
        .with("offset", offset)
        .with("size", each * files.len() as u64)
        .with("io_size", bytes)
        .with("file_service_type", "roundrobin:1")
        .with("gtod_reduce", 1)
        .with("overwrite", 1)
        .run()
}

/// True for a directory on tmpfs.
pub fn is_tmpfs(folder: &Path) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    rustix::fs::statfs(folder).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A read job must not be reported with the zeros of its write half, nor its CPU by percent of the wrong time.
    #[test]
    fn the_direction_that_moved_bytes_is_reported() {
        let clat = json!({"percentile": {"50.000000": 2000, "99.000000": 9000, "99.900000": 11000}});
        let report = json!({"jobs": [{
            "error": 0, "usr_cpu": 25.0, "sys_cpu": 50.0, "job_runtime": 4000,
            "read": {"io_bytes": 1u64 << 30, "runtime": 2000, "iops": 512.0, "clat_ns": clat}, "write": {"io_bytes": 0},
        }]});
        let outcome = parse(&report).expect("a report");
        assert_eq!((outcome.bytes, outcome.seconds, outcome.cpu), (1 << 30, 2.0, 3.0));
        assert_eq!(outcome.latency_us, [2.0, 9.0, 11.0]);
    }

    /// A job that failed half way would otherwise give a figure.
    #[test]
    fn a_failed_job_is_no_figure() {
        assert!(parse(&json!({"jobs": [{"error": 28, "write": {"io_bytes": 5}}]})).is_err());
        assert!(parse(&json!({"jobs": []})).is_err());
    }
}
