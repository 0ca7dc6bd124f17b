//! The system calls that no safe wrapper offers: CPU clocks of other processes, and signals.
#![expect(unsafe_code, reason = "clock_getcpuclockid, kill and signal have no safe wrapper here")]

use std::io::Read;
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

/// CPU seconds of another process so far, to the nanosecond, its ended threads included; 0 when it is gone.
pub fn cpu_seconds_of(pid: u32) -> f64 {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls only write to the locals whose addresses they get.
    let failed = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) != 0 || libc::clock_gettime(clock, &mut time) != 0 };
    if failed { 0.0 } else { time.tv_sec as f64 + time.tv_nsec as f64 / 1e9 }
}

/// Makes the command one that is asked to end when this thread ends, however it ends.
pub fn end_with_us(command: &mut Command) {
    let ask = || match rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM)) {
        Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    };
    // SAFETY: between fork and exec the closure makes one system call and touches no memory that others hold.
    unsafe { command.pre_exec(ask) };
}

/// Has a thread (0: this one) run on one processor, or on any. A thread that is gone is left alone.
pub fn pin(thread: i32, processor: Option<usize>) {
    let mut set = rustix::thread::CpuSet::new();
    match processor {
        Some(processor) => set.set(processor),
        None => (0..rustix::thread::CpuSet::MAX_CPU).for_each(|processor| set.set(processor)),
    }
    let _ = rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(thread), &set);
}

/// Asks a process to end.
pub fn terminate(pid: u32) {
    // SAFETY: kill takes two integers and touches no memory of ours.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) };
}

/// Asks a process to stop what it does, as ^C would.
pub fn interrupt(pid: u32) {
    // SAFETY: kill takes two integers and touches no memory of ours.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGINT) };
}

/// Descriptor by which the handler tells of a signal; -1 before [`Endings::catch`].
static TOLD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn tell(signal: libc::c_int) {
    let byte = signal as u8;
    // SAFETY: write is async-signal-safe, and reads one byte of a local.
    unsafe { libc::write(TOLD.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
}

/// Signals that end a program and that it can catch: SIGINT, SIGTERM and SIGHUP. Commands that it runs don't inherit the handler.
#[derive(Debug)]
pub struct Endings(std::fs::File);

impl Endings {
    /// Has the signals told to whoever waits from now on; they don't end the program.
    pub fn catch() -> std::io::Result<Endings> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        TOLD.store(writer.into_raw_fd(), Ordering::Relaxed);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the handler calls only what is async-signal-safe, and lives as long as the program.
            unsafe { libc::signal(signal, tell as *const () as libc::sighandler_t) };
        }
        Ok(Endings(reader.into()))
    }

    /// Waits for one of the signals and says which.
    pub fn wait(&mut self) -> i32 {
        let mut signal = [0];
        let _ = self.0.read_exact(&mut signal);
        i32::from(signal[0])
    }
}
