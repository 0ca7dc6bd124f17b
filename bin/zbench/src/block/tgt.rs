//! The peer: `tgtd`, the target of Debian's package tgt, over files that somebody else's file system keeps.
//!
//! What it agrees to at a login is what our daemon agrees to: tgt's own defaults (segments of 8 KiB, nothing unasked) would be measured else.

use super::initiator::{BURST_BYTES, SEGMENT_BYTES};
use crate::cleanup::Guard;
use crate::measure::text;
use crate::mounted::Server;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const START: Duration = Duration::from_secs(20);
/// Number of the disk: unit 0 of a target of tgt is its controller.
pub const LUN: u8 = 1;

/// Process of tgtd, with nothing but what is added here.
pub struct Tgt {
    // It is asked to end by its own program before it is killed: it ignores signals that ask.
    _end: Guard,
    /// Process itself.
    pub server: Server,
    /// Address that it listens at.
    pub portal: SocketAddr,
    control: String,
    targets: u32,
}

/// Name of the package's programs that this machine lacks.
pub fn lacks() -> Option<&'static str> {
    let is_there = |name: &&str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).chain(["/usr/sbin".into()]).any(|folder| folder.join(name).is_file())
    };
    ["tgtd", "tgtadm"].into_iter().find(|name| !is_there(name))
}

/// Command of a program of the package, which `PATH` may not lead to.
fn command(name: &str) -> Command {
    let path = Path::new("/usr/sbin").join(name);
    if path.is_file() { Command::new(path) } else { Command::new(name) }
}

/// Runs tgtadm against the daemon with this control port.
fn control(port: &str, words: &[&str]) -> Result<(), String> {
    let output = command("tgtadm").args(["-C", port, "--lld", "iscsi"]).args(words).stdin(Stdio::null()).output().map_err(text)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("tgtadm {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Ends the daemon: it does so when it has no target any more.
fn end(port: &str, targets: u32) {
    for target in 1..=targets {
        let _ = control(port, &["--op", "delete", "--mode", "target", "--tid", &target.to_string(), "--force"]);
    }
    let _ = command("tgtadm").args(["-C", port, "--op", "delete", "--mode", "system"]).output();
}

impl Tgt {
    /// Starts it; at most `targets` will be added.
    pub fn start(folder: &Path, portal: SocketAddr, targets: u32) -> Result<Tgt, String> {
        let port = (std::process::id() % 32_000 + 1).to_string();
        let mut tgtd = command("tgtd");
        tgtd.args(["-f", "-C", &port, "--iscsi", &format!("portal={portal}")]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server::spawn(&mut tgtd, folder)?;
        let undo = port.clone();
        let guard = Guard::new(move || end(&undo, targets));
        let deadline = Instant::now() + START;
        while let Err(why) = control(&port, &["--op", "show", "--mode", "target"]) {
            if Instant::now() > deadline {
                return Err(format!("tgtd does not start (it needs to be run by root): {why}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Tgt { _end: guard, server, portal, control: port, targets: 0 })
    }

    /// Adds a target with one disk, which is a file that is there; gives its name.
    pub fn add(&mut self, file: &Path) -> Result<String, String> {
        self.targets += 1;
        let (number, name) = (self.targets.to_string(), format!("iqn.2026-11.example.tgt:disk{}", self.targets));
        let of_target = |operation: &str, more: &[&str]| {
            let words = [&["--op", operation, "--mode", "target", "--tid", &number][..], more].concat();
            control(&self.control, &words)
        };
        of_target("new", &["-T", &name])?;
        let lengths = [SEGMENT_BYTES, BURST_BYTES, SEGMENT_BYTES].map(|bytes| bytes.to_string());
        let [segment, burst, first] = &lengths;
        for (key, value) in [
            ("MaxRecvDataSegmentLength", segment.as_str()),
            ("MaxBurstLength", burst.as_str()),
            ("FirstBurstLength", first.as_str()),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
        ] {
            of_target("update", &["--name", key, "--value", value])?;
        }
        let (lun, path) = (LUN.to_string(), file.display().to_string());
        control(&self.control, &["--op", "new", "--mode", "logicalunit", "--tid", &number, "--lun", &lun, "-b", &path])?;
        of_target("bind", &["-I", "ALL"])?;
        Ok(name)
    }
}
