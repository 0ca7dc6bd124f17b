//! Loads that remember what was acknowledged, and programs of others that are told what to do line by line.

use crate::waiting::until;
use crate::world::Failure;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(20);

/// Load on a file system, which remembers what it was promised.
pub trait Load {
    /// Name of what is acknowledged, in the plural.
    fn name(&self) -> &'static str;
    /// Numbers of what was acknowledged so far, for each of its programs.
    fn acknowledged(&self) -> Vec<usize>;
    /// Number of times that something was not acknowledged.
    fn failures(&self) -> usize;
    /// Ends the load.
    fn finish(&mut self) -> Result<(), Failure>;
    /// Checks that everything acknowledged is there.
    fn check(&mut self, when: &str) -> Result<(), Failure>;
}

/// Thread that does one thing after another, and keeps what was acknowledged.
pub struct Worker<T> {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<T>>>,
    failures: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Clone + Send + 'static> Worker<T> {
    /// Does `step` again and again; what it gives is acknowledged.
    pub fn start(mut step: impl FnMut() -> Option<T> + Send + 'static) -> Worker<T> {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let failures = Arc::<AtomicUsize>::default();
        let (told, kept, failed) = (stop.clone(), acknowledged.clone(), failures.clone());
        let work = move || {
            while !told.load(Ordering::Acquire) {
                match step() {
                    Some(done) => kept.lock().unwrap_or_else(PoisonError::into_inner).push(done),
                    None => {
                        failed.fetch_add(1, Ordering::AcqRel);
                        std::thread::sleep(PAUSE);
                    }
                }
            }
        };
        Worker { stop, acknowledged, failures, thread: Some(std::thread::spawn(work)) }
    }

    /// Number of things that were acknowledged.
    pub fn count(&self) -> usize {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Number of times that nothing was acknowledged.
    pub fn failures(&self) -> usize {
        self.failures.load(Ordering::Acquire)
    }

    /// Things that were acknowledged.
    pub fn list(&self) -> Vec<T> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the thread.
    pub fn finish(&mut self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        until("a program comes back from what it does", || Ok(thread.is_finished()))?;
        thread.join().map_err(|_| "      a program failed".into())
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// Program that is told lines and answers with lines. It ends with this value.
pub struct Dialog {
    child: Child,
    told: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Dialog {
    /// Starts the program, which answers on its standard output.
    pub fn start(command: &mut Command) -> Option<Dialog> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let (told, answers) = (child.stdin.take(), BufReader::new(child.stdout.take()?));
        Some(Dialog { child, told, answers })
    }

    /// Says a line and waits for the answer `last`; gives those before it, None when the program ended.
    pub fn ask(&mut self, line: &str, last: &str) -> Option<Vec<String>> {
        let told = self.told.as_mut()?;
        told.write_all(line.as_bytes()).ok()?;
        told.write_all(b"\n").ok()?;
        let mut answers = Vec::new();
        loop {
            let mut answer = String::new();
            if self.answers.read_line(&mut answer).ok()? == 0 {
                return None;
            }
            if answer.trim_end() == last {
                return Some(answers);
            }
            answers.push(answer.trim_end().to_string());
        }
    }
}

impl Drop for Dialog {
    fn drop(&mut self) {
        self.told = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that what was found has everything that was acknowledged.
pub fn none_is_lost(place: &str, acknowledged: &[u64], found: &BTreeSet<u64>) -> Result<(), Failure> {
    let lost: Vec<&u64> = acknowledged.iter().filter(|number| !found.contains(number)).collect();
    match lost.first() {
        None => Ok(()),
        Some(first) => Err(format!(
            "      {place}: lacks {} of {} that were acknowledged, the first is {first}, of {} that are there",
            lost.len(),
            acknowledged.len(),
            found.len()
        )
        .into()),
    }
}
