//! Whoever starts something that stays: shells, ssh, cron and continuous integration wait until nobody has a pipe open of theirs any more.

use crate::providers::SOURCES;
use crate::waiting::{PATIENCE, until};
use crate::world::{Failure, World, same, supervisor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Child;

/// Pipes of a caller that programs begin with: nobody may keep one.
struct Caller {
    /// End at which what they print is read.
    said: PipeReader,
    /// End that keeps what they read open.
    _asked: PipeWriter,
    /// Paths that descriptors on these pipes lead to.
    names: [String; 2],
}

/// Path that a descriptor on a pipe leads to.
fn name(pipe: impl AsFd) -> Result<String, Failure> {
    Ok(format!("pipe:[{}]", rustix::fs::fstat(pipe)?.st_ino))
}

impl Caller {
    /// Starts a script, its standard output, its standard error and its descriptor 9 on one pipe, and its standard input and descriptor 8 on another.
    fn start(world: &World, script: &str) -> Result<(Caller, Child), Failure> {
        let ((said, output), (input, asked)) = (std::io::pipe()?, std::io::pipe()?);
        let names = [name(&said)?, name(&input)?];
        let mut command = world.shell(&format!("exec 8<&0 9>&1\n{script}"));
        command.stdin(input).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn()?;
        // This process's own ends go with the command.
        drop(command);
        Ok((Caller { said, _asked: asked, names }, child))
    }

    /// Reads what is said until nobody can say anything any more; a failure that tells who still could.
    fn hear(&mut self) -> Result<String, Failure> {
        let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
        let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        loop {
            if poll(&mut [PollFd::new(&self.said, PollFlags::IN)], Some(&patience))? == 0 {
                let said = String::from_utf8_lossy(&text);
                return Err(format!("      a pipe stays open in {:?}; what was said: {said}", self.keepers()?).into());
            }
            match self.said.read(&mut bytes)? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                count => text.extend(bytes.iter().take(count)),
            }
        }
    }

    /// Processes, other than this one, that have one of the pipes open: their names and numbers.
    fn keepers(&self) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        let own = std::process::id().to_string();
        for process in std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path()) {
            let number = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if number == own || number.parse::<u32>().is_err() {
                continue;
            }
            // Those that are gone meanwhile, or somebody else's, have none of them.
            let descriptors = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
            let leads =
                |path: &Path| std::fs::read_link(path).is_ok_and(|to| self.names.iter().any(|name| to.as_os_str() == name.as_str()));
            let kept = descriptors.map(|entry| entry.path()).filter(|path| leads(path));
            let kept: Vec<String> = kept.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect();
            if !kept.is_empty() {
                let command = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
                found.push(format!("{} ({number}): {}", command.trim(), kept.join(" ")));
            }
        }
        Ok(found)
    }
}

/// Runs a script that has to succeed, and all that it started to give its pipes up; what was said.
fn heard(world: &World, script: &str) -> Result<String, Failure> {
    let (mut caller, mut child) = Caller::start(world, script)?;
    let text = caller.hear().inspect_err(|_| drop(child.kill()))?;
    let status = child.wait()?;
    same(&format!("'{script}', which said: {text}, succeeds"), status.success(), true)?;
    same(&format!("who keeps a pipe after '{script}'"), caller.keepers()?, Vec::new())?;
    Ok(text)
}

/// Fails where `text` lacks `part`.
fn says(text: &str, part: &str) -> Result<(), Failure> {
    if text.contains(part) { Ok(()) } else { Err(format!("      '{part}' is not in: {text}").into()) }
}

/// A daemon that was started by hand, by a command, by its watcher and by an upgrade, and the process of a provider: if one of them keeps a pipe of who
/// caused it, `x=$(zpool list)`, `ssh host zpool list` and whoever runs such a thing never return, and nobody sees why.
pub fn wait_for_nobody(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    says(&heard(world, "zirconiad --background; zirconia status")?, "zirconiad ")?;
    // One that cannot start says so, and who asked for it fails.
    let again = heard(world, "if zirconiad --background; then exit 1; fi")?;
    says(&again, &format!("zirconiad: cannot start the daemon: process {} owns ", world.daemon()?))?;
    says(&heard(world, "x=$(zpool list); zirconia stop; echo \"$x\"")?, "no pools available")?;
    says(&heard(world, "x=$(zpool create -m \"$M/tank\" tank \"$V/a\"; zpool list -H -o name); echo \"$x\"")?, "tank")?;
    // Started again after a death, by the process that watches it.
    let (caller, mut child) = Caller::start(world, "zirconia stop; zirconia start")?;
    same("a start", child.wait()?.success(), true)?;
    let daemon = world.daemon()?;
    let watcher = supervisor(&daemon).ok_or("      nobody watches the daemon")?;
    world.ok(&format!("kill -9 {daemon}"))?;
    until("the daemon after its death", || Ok(world.daemon().is_ok_and(|next| next != daemon && supervisor(&next).is_some())))?;
    same("the watcher", supervisor(&world.daemon()?), Some(watcher))?;
    same("who keeps a pipe after a death", caller.keepers()?, Vec::new())?;
    heard(world, "zirconia upgrade")?;
    // What a provider is computed by.
    let flags = "-std=c11 -O2 -fPIC -shared";
    world.ok(&format!("cc {flags} -I {SOURCES}/include -o {{dir}}/example.so {SOURCES}/examples/provider-c/provider.c"))?;
    says(&heard(world, "zirconia provider load ./example.so")?, "state:        active")?;
    heard(world, "zirconia stop").map(drop)
}
