//! Keeping of mounts between two daemons: what the process that starts daemons has meanwhile, and the daemon's side of it.

use crate::line::{self, DESCRIPTORS_MAX, Word};
use control::{Heritage, Keeper};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SeekFrom};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time that the next daemon has to go on with mounts; then they are cut off.
const DEADLINE: Duration = Duration::from_secs(60);

/// Notes on kept connections.
struct Notes {
    memory: OwnedFd,
    /// Lock of the state directory, until the next daemon has it.
    lock: Option<OwnedFd>,
    since: Instant,
}

/// Mounts that no daemon serves.
#[derive(Default)]
pub struct Kept {
    connections: BTreeMap<u32, OwnedFd>,
    notes: Option<Notes>,
    /// Program of the next daemon, once it was said.
    next: Option<PathBuf>,
}

impl Kept {
    /// Hears everything that the daemon has said; true when the line does not wait for more.
    pub fn hear(&mut self, line: impl AsFd) -> io::Result<bool> {
        loop {
            match line::hear(&line) {
                Ok(Some(word)) => self.note(word),
                Ok(None) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn note(&mut self, word: Word) {
        match word {
            Word::Connections(first, connections) => self.connections.extend((first..).zip(connections)),
            Word::Notes(memory, lock, program) => {
                self.notes = Some(Notes { memory, lock, since: Instant::now() });
                self.next = Some(PathBuf::from(OsStr::from_bytes(&program)));
            }
            Word::Begun => {
                self.notes.iter_mut().for_each(|notes| notes.lock = None);
                self.clear_if_empty();
            }
            Word::Taken(number) => {
                self.connections.remove(&number);
                self.clear_if_empty();
            }
            Word::Done => self.clear(),
            Word::Nothing => {}
        }
    }

    fn clear_if_empty(&mut self) {
        if self.connections.is_empty() {
            self.clear();
        }
    }

    /// Lets go of all: the mounts are cut off.
    pub fn clear(&mut self) {
        *self = Kept::default();
    }

    /// Notes that the daemon has ended: what it did not say to the end is nothing. Returns the program of the next one if it has handed over.
    pub fn ended(&mut self) -> Option<PathBuf> {
        if self.notes.is_none() {
            self.clear();
        }
        self.next.take()
    }

    /// True while mounts wait for the next daemon.
    pub fn is_waiting(&self) -> bool {
        self.notes.is_some()
    }

    /// True when the lock of the state directory is kept: nobody else can have begun.
    pub fn has_lock(&self) -> bool {
        self.notes.as_ref().is_some_and(|notes| notes.lock.is_some())
    }

    /// Time at which mounts are cut off.
    pub fn deadline(&self) -> Option<Instant> {
        self.notes.as_ref().map(|notes| notes.since + DEADLINE)
    }

    /// Words for a daemon that begins.
    pub fn words(&self) -> io::Result<Vec<Word>> {
        let Some(Notes { memory, lock, .. }) = &self.notes else { return Ok(vec![Word::Nothing]) };
        let mut words = Vec::new();
        for (number, connection) in &self.connections {
            words.push(Word::Connections(*number, vec![connection.try_clone()?]));
        }
        let lock = lock.as_ref().map(OwnedFd::try_clone).transpose()?;
        words.push(Word::Notes(memory.try_clone()?, lock, Vec::new()));
        Ok(words)
    }
}

/// Line of a daemon to the process that keeps its mounts.
pub struct Line {
    socket: OwnedFd,
    lock: OwnedFd,
}

impl Line {
    /// Makes it; `lock` is that of the state directory.
    pub fn new(socket: OwnedFd, lock: &File) -> io::Result<Line> {
        line::say(&socket, &Word::Begun)?;
        Ok(Line { socket, lock: lock.as_fd().try_clone_to_owned()? })
    }

    fn give(&self, heritage: Heritage, program: &Path) -> io::Result<()> {
        let mut memory = File::from(rustix::fs::memfd_create("zirconia-notes", MemfdFlags::CLOEXEC)?);
        memory.write_all(&heritage.notes)?;
        let mut connections: Vec<(u32, OwnedFd)> = heritage.connections.into_iter().collect();
        while !connections.is_empty() {
            let first = connections[0].0;
            // Those of one word are numbered without a gap.
            let count = connections.iter().zip(first..).take(DESCRIPTORS_MAX).take_while(|((number, _), at)| number == at).count();
            let word = Word::Connections(first, connections.drain(..count).map(|(_, connection)| connection).collect());
            line::say(&self.socket, &word)?;
        }
        let lock = self.lock.try_clone()?;
        line::say(&self.socket, &Word::Notes(memory.into(), Some(lock), program.as_os_str().as_bytes().to_vec()))
    }
}

impl Keeper for Line {
    fn keep(&self, heritage: Heritage, program: &Path) -> io::Result<()> {
        self.give(heritage, program).inspect_err(|_| self.done())
    }

    fn taken(&self, number: u32) {
        let _ = line::say(&self.socket, &Word::Taken(number));
    }

    fn done(&self) {
        let _ = line::say(&self.socket, &Word::Done);
    }
}

/// Things that a daemon begins with.
#[derive(Default)]
pub struct Begin {
    pub heritage: Heritage,
    /// Lock of the state directory, which the daemon before had.
    pub lock: Option<File>,
}

/// Hears what the daemon before left.
pub fn begin(socket: &OwnedFd) -> io::Result<Begin> {
    let mut begin = Begin::default();
    loop {
        match line::hear(socket)? {
            Some(Word::Connections(first, connections)) => begin.heritage.connections.extend((first..).zip(connections)),
            Some(Word::Notes(memory, lock, _)) => {
                rustix::fs::seek(&memory, SeekFrom::Start(0))?;
                File::from(memory).read_to_end(&mut begin.heritage.notes)?;
                begin.lock = lock.map(File::from);
                return Ok(begin);
            }
            Some(Word::Nothing) | None => return Ok(begin),
            Some(_) => {}
        }
    }
}
