//! The peer: OpenZFS's own engine in userspace, driven by the program `zpbench`.

use crate::layout::Layout;
use crate::machine;
use crate::measure::{Cost, text};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Run of the peer.
#[derive(Clone, Debug)]
pub struct PeerJob<'a> {
    /// Layout of its pool.
    pub layout: Layout,
    /// Folder of the vdev files; the peer uses them as they are and overwrites them.
    pub folder: &'a Path,
    /// Bytes of each vdev file.
    pub vdev_bytes: u64,
    /// Bytes of the object.
    pub bytes: u64,
    /// Bytes of a record.
    pub record: usize,
    /// Bytes of each call.
    pub io: usize,
    /// Value of the property `checksum`.
    pub checksum: &'a str,
    /// Value of the property `compression`.
    pub compression: &'a str,
    /// Number of streams at once.
    pub jobs: usize,
    /// Seconds of each random phase.
    pub seconds: u64,
    /// Budget of its cache in bytes.
    pub arc_bytes: u64,
    /// Phases as `zpbench` names them, comma-separated.
    pub phases: &'a str,
}

/// Report of the peer on one phase. CPU is as measured, with the library's assertions.
#[derive(Clone, Debug)]
pub struct PeerRow {
    /// Name of the phase for `zpbench`.
    pub phase: String,
    /// Cost in wall clock and CPU.
    pub cost: Cost,
    /// Number of bytes moved as the peer counts them: data, but allocated bytes for scrubs.
    pub bytes: u64,
    /// Number of I/Os per second.
    pub iops: f64,
}

/// Finds `zpbench`: as told, `$ZPBENCH`, or built once from the sources in `$ZIRCONIA_PEER` or `../shared/peer`.
pub fn find(told: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = told.map(Path::to_path_buf).or_else(|| std::env::var_os("ZPBENCH").map(PathBuf::from)) {
        return if path.is_file() { Ok(path) } else { Err(format!("{} is not there", path.display())) };
    }
    let root = machine::root();
    let built = root.join("target/peer");
    if built.join("zpbench").is_file() {
        return Ok(built.join("zpbench"));
    }
    let places = [std::env::var_os("ZIRCONIA_PEER").map(PathBuf::from), Some(root.join("../shared/peer"))];
    let folder = places.into_iter().flatten().find(|folder| folder.join("setup.sh").is_file());
    let folder = folder.ok_or("no sources in $ZIRCONIA_PEER or ../shared/peer, and neither --peer nor $ZPBENCH names the program")?;
    eprintln!("building the peer into {}", built.display());
    let said = Command::new("bash").arg(folder.join("setup.sh")).arg(&built).output().map_err(text)?;
    match built.join("zpbench").is_file() {
        true => Ok(built.join("zpbench")),
        false => Err(format!("{}/setup.sh failed: {}", folder.display(), String::from_utf8_lossy(&said.stderr).trim())),
    }
}

/// Finds the peer, or returns `None` with the reason on stderr: its columns stay empty then.
pub fn find_or_say(told: Option<&Path>) -> Option<PathBuf> {
    find(told).map_err(|why| eprintln!("the peer is not measured: {why}")).ok()
}

/// Runs the phases once each (after the peer's own unmeasured warm-up).
pub fn run(program: &Path, job: &PeerJob) -> Result<Vec<PeerRow>, String> {
    let json = job.folder.join(format!("peer-{}.jsonl", std::process::id()));
    let _ = std::fs::remove_file(&json);
    let output = Command::new(program)
        .args(["--layout", &job.layout.to_string(), "--cksum", job.checksum, "--comp", job.compression])
        .args(["--rs", &job.record.to_string(), "--iosize", &job.io.to_string()])
        .args(["--size", &job.bytes.to_string(), "--vsize", &job.vdev_bytes.to_string()])
        .args(["--jobs", &job.jobs.to_string(), "--secs", &job.seconds.to_string()])
        .args(["--arc", &job.arc_bytes.to_string()])
        .args(["--phases", job.phases, "--reps", "1"])
        .arg("--dir")
        .arg(job.folder)
        .arg("--json")
        .arg(&json)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(text)?;
    if !output.status.success() {
        let _ = std::fs::remove_file(&json);
        return Err(format!("the peer failed: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    let rows = read(&json);
    let _ = std::fs::remove_file(&json);
    rows
}

fn read(json: &Path) -> Result<Vec<PeerRow>, String> {
    let mut rows = Vec::new();
    for line in BufReader::new(std::fs::File::open(json).map_err(text)?).lines() {
        let line: serde_json::Value = serde_json::from_str(&line.map_err(text)?).map_err(text)?;
        let number = |key: &str| line[key].as_f64().unwrap_or(0.0);
        let Some(phase) = line["phase"].as_str() else { continue };
        rows.push(PeerRow {
            phase: phase.to_string(),
            cost: Cost { seconds: number("wall"), cpu: number("user") + number("sys") },
            bytes: number("bytes") as u64,
            iops: number("iops"),
        });
    }
    Ok(rows)
}
