//! The end of a scenario that does not end by itself, from outside.
//!
//! Some scenarios store into mapped files of their mounts. Where the kernel waits for such a page to be written it keeps the memory of the process
//! locked: until the daemon answers, none of its threads begins another one or maps memory, so its own deadlines end nothing, and whoever asks for its
//! command line, as ps(1) does, waits with it. Whoever looks after it therefore is another process, and ends the daemons first.

use crate::world::{is_daemon, prefix, supervisor};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Does what [`Command::output`] does. A command that takes longer than `limit` is ended, and before it the daemons of its worlds below `base`.
pub fn output(command: &mut Command, base: &Path, limit: Duration) -> io::Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (process, (running, ended)) = (child.id(), channel::<()>());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                println!("      process {process} did not end within {} s: it is ended, with its daemons", limit.as_secs());
                end_daemons(&prefix(process), base);
                end(&process.to_string());
            }
        });
        let output = child.wait_with_output();
        drop(running);
        output
    })
}

/// Ends the daemons of worlds whose folders' names begin so, and first who would start them again. Only folders of state are looked into: others may be
/// mounts, where nobody answers.
fn end_daemons(prefix: &str, base: &Path) {
    let below = |folder: &Path, start: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start)).map(|entry| entry.path()).collect::<Vec<_>>()
    };
    for state in below(base, prefix).iter().flat_map(|world| below(world, "state")) {
        let lock = state.join("zirconiad.lock");
        // One of the scenarios makes it a pipe.
        if !std::fs::symlink_metadata(&lock).is_ok_and(|found| found.is_file()) {
            continue;
        }
        let daemon = std::fs::read_to_string(lock).unwrap_or_default().trim().to_string();
        if is_daemon(&daemon) {
            supervisor(&daemon).iter().for_each(|supervisor| end(supervisor));
            end(&daemon);
        }
    }
}

/// Ends a process.
fn end(process: &str) {
    // One that is gone is what was wanted.
    let _ = Command::new("kill").args(["-9", process]).output();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::ExitStatusExt;

    /// If this fails, one daemon that does not answer stops the gate, and every look at the machine's processes, until the machine is started again.
    #[test]
    fn what_does_not_end_is_ended_and_its_daemon_before_it() {
        let base = std::env::temp_dir().join(format!("zirconia-guard-{}", std::process::id()));
        let state = base.join(format!("{}0/state", prefix(7)));
        std::fs::create_dir_all(&state).expect("a folder");
        let program = base.join("zirconiad");
        symlink("/bin/sh", &program).expect("a shell of the daemon's name");
        let daemon = Command::new(&program).args(["-c", "read line"]).stdin(Stdio::piped()).spawn();
        let mut daemon = daemon.expect("it is started");
        std::fs::write(state.join("zirconiad.lock"), daemon.id().to_string()).expect("written");
        // The kernel lets the one that started it go on a moment before it has its name.
        while !is_daemon(&daemon.id().to_string()) {
            std::thread::yield_now();
        }
        end_daemons(&prefix(7), &base);
        assert_eq!(daemon.wait().expect("its end").signal(), Some(9));
        let ended = output(Command::new("sleep").arg("10000"), &base, Duration::from_millis(1)).expect("it is started");
        assert_eq!(ended.status.signal(), Some(9));
        let whole = output(Command::new("echo").arg("said"), &base, Duration::MAX).expect("it is started");
        assert_eq!((whole.status.code(), &whole.stdout[..]), (Some(0), &b"said\n"[..]));
        std::fs::remove_dir_all(&base).expect("removed");
    }
}
