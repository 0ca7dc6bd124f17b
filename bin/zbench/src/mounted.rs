//! A daemon of its own with a pool that is mounted: started for one run, ended with it, in a state directory nobody else uses.

use crate::cleanup::Guard;
use crate::files::Scratch;
use crate::layout::Layout;
use crate::measure::text;
use crate::subject::TXG_DEFER;
use crate::sys;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const START_SECONDS: u64 = 20;
const STOP_SECONDS: u64 = 60;

/// Path of another program of this build.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::current_exe().map_err(text)?.with_file_name(name);
    if path.is_file() { Ok(path) } else { Err(format!("{} is not built: cargo build --release --bins", path.display())) }
}

/// Process of a server whose CPU and memory are read.
#[derive(Debug)]
pub struct Server {
    pid: u32,
    child: Arc<Mutex<Child>>,
    _guard: Guard,
}

impl Server {
    /// Starts the server; what is still mounted below `folder` after its end is unmounted by force.
    pub fn spawn(command: &mut Command, folder: &Path) -> Result<Server, String> {
        sys::end_with_us(command);
        let child = command.stdin(Stdio::null()).spawn().map_err(text)?;
        let (pid, child) = (child.id(), Arc::new(Mutex::new(child)));
        let (undo, folder) = (child.clone(), folder.to_path_buf());
        let guard = Guard::new(move || {
            end(&undo);
            for place in mounts().iter().rev().filter(|place| place.starts_with(&folder)) {
                let _ = Command::new("umount").arg("-l").arg(place).stderr(Stdio::null()).status();
            }
        });
        Ok(Server { pid, child, _guard: guard })
    }

    /// Has all threads of the server, and those that they start, run on one processor, or on any.
    pub fn pin(&self, processor: Option<usize>) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).for_each(|task| sys::pin(task, processor));
    }

    /// CPU seconds of the server so far.
    pub fn cpu_seconds(&self) -> f64 {
        sys::cpu_seconds_of(self.pid)
    }

    /// Bytes of the largest resident size so far (`VmHWM`).
    pub fn peak_resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
    }

    fn has_ended(&self) -> bool {
        !matches!(self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait(), Ok(None))
    }
}

/// Asks the server to end, waits, and kills it when it does not.
fn end(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
    sys::terminate(child.id());
    let deadline = Instant::now() + Duration::from_secs(STOP_SECONDS);
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    if matches!(child.try_wait(), Ok(None)) {
        eprintln!("process {} did not end within {STOP_SECONDS} s: killed", child.id());
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Places where something is mounted, oldest first.
fn mounts() -> Vec<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from).collect()
}

/// Waits until `path` is a mount point of a server that lives.
pub fn wait_mounted(server: &Server, path: &Path) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(START_SECONDS);
    while !mounts().iter().any(|place| place == path) {
        if server.has_ended() || Instant::now() > deadline {
            return Err(format!("nothing was mounted on {}", path.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Daemon and the pool `zbench` mounted in its scratch directory.
#[derive(Debug)]
pub struct Mounted {
    /// Process of the daemon.
    pub server: Server,
    /// Mountpoint of the pool's root file system; the dataset of the measurements is `fs` in it.
    pub mountpoint: PathBuf,
    state: PathBuf,
    _scratch: Scratch,
}

impl Mounted {
    /// Starts a daemon whose cache holds `arc_max` bytes.
    pub fn start(arc_max: u64) -> Result<Mounted, String> {
        Mounted::start_with(arc_max, &[])
    }

    /// Starts one with more in its environment.
    pub fn start_with(arc_max: u64, environment: &[(&str, &str)]) -> Result<Mounted, String> {
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let (state, mountpoint) = (scratch.path.join("state"), scratch.path.join("mnt"));
        std::fs::create_dir_all(&state).map_err(text)?;
        let log = std::fs::File::create(scratch.path.join("zirconiad.log")).map_err(text)?;
        let mut command = Command::new(program("zirconiad")?);
        command.env("ZIRCONIA_STATE", &state).env("ZIRCONIA_ARC_MAX", arc_max.to_string());
        command.envs(environment.iter().copied());
        let server = Server::spawn(command.stdout(log.try_clone().map_err(text)?).stderr(log), &scratch.path)?;
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS);
        while !state.join("zirconiad.sock").exists() {
            if server.has_ended() || Instant::now() > deadline {
                let log = std::fs::read_to_string(scratch.path.join("zirconiad.log")).unwrap_or_default();
                return Err(format!("the daemon did not start: {}", log.trim()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Mounted { server, mountpoint, state, _scratch: scratch })
    }

    /// Runs `zpool` or `zfs` of this build against the daemon.
    pub fn command(&self, name: &str, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(program(name)?).args(arguments).env("ZIRCONIA_STATE", &self.state).output().map_err(text)?;
        if !output.status.success() {
            return Err(format!("{name} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes the pool `zbench` and its dataset `zbench/fs` with the given properties.
    pub fn create(&self, layout: Layout, devices: &[PathBuf], properties: &[String]) -> Result<(), String> {
        let (mountpoint, kind) = (self.mountpoint.display().to_string(), layout.to_string());
        let mut words = vec!["create", "-f", "-m", &mountpoint, "zbench"];
        words.extend(match kind.split(':').next() {
            Some("stripe") => None,
            // A dRAID needs the numbers behind its name.
            Some(name) if name.starts_with("draid") => Some(kind.as_str()),
            name => name,
        });
        let devices: Vec<String> = devices.iter().map(|path| path.display().to_string()).collect();
        words.extend(devices.iter().map(String::as_str));
        self.command("zpool", &words)?;
        let mut words = vec!["create"];
        for property in properties {
            words.extend(["-o", property.as_str()]);
        }
        words.push("zbench/fs");
        self.command("zfs", &words).map(drop)
    }

    /// Exports and imports: nothing is cached afterwards, in the kernel either.
    pub fn reimport(&self, devices: &[PathBuf]) -> Result<(), String> {
        self.command("zpool", &["export", "zbench"])?;
        let devices: Vec<String> = devices.iter().map(|path| path.display().to_string()).collect();
        let mut words = vec!["import"];
        for device in &devices {
            words.extend(["-d", device.as_str()]);
        }
        words.push("zbench");
        self.command("zpool", &words).map(drop)
    }

    /// Removes the dataset's files and waits until their space can be used again.
    pub fn clear_files(&self) -> Result<(), String> {
        for entry in std::fs::read_dir(self.file("")).map_err(text)?.flatten() {
            std::fs::remove_file(entry.path()).map_err(text)?;
        }
        for _ in 0..TXG_DEFER + 2 {
            self.command("zpool", &["sync", "zbench"])?;
        }
        Ok(())
    }

    /// Bytes that went the direct path since the pool was opened, reads and writes, when the daemon counts them.
    pub fn direct_bytes(&self) -> Option<u64> {
        let table = self.command("zfs", &["direct-stats", "-H", "-p", "zbench/fs"]).ok()?;
        let bytes = |part: &str| {
            let line = table.lines().map(|line| line.split('\t').collect::<Vec<_>>()).find(|words| words.get(1) == Some(&part))?;
            line.get(3)?.parse::<u64>().ok()
        };
        Some(bytes("direct_read")? + bytes("direct_write")? + bytes("coalesced_write")?)
    }

    /// Bytes that the daemon copied between its buffers since it started; None where it shows no statistics.
    pub fn copied_bytes(&self) -> Option<u64> {
        self.count("abd_copied_bytes")
    }

    /// Number of FUSE requests since it started; None where it shows no statistics, or does not count them.
    pub fn requests(&self) -> Option<u64> {
        Some(self.count("fuse_requests_read")? + self.count("fuse_requests_uring")?)
    }

    /// One of the daemon's own counters.
    fn count(&self, name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.state.join("proc/spl/kstat/zfs/zirconia")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(' ')))?;
        line.split_whitespace().last()?.parse().ok()
    }

    /// Path of the file of a volume of the pool.
    pub fn volume(&self, name: &str) -> PathBuf {
        self.state.join("dev/zvol/zbench").join(name)
    }

    /// Path of a file in the dataset.
    pub fn file(&self, name: &str) -> PathBuf {
        self.mountpoint.join("fs").join(name)
    }
}
