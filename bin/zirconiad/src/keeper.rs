//! Keeping of mounts between two daemons: what the process that starts daemons has meanwhile, and the daemon's side of it.

use crate::held::{Death, Held};
use crate::line::{self, DESCRIPTORS_MAX, KNOWN, Word};
use control::{Heirloom, Heritage, Keeper};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SeekFrom};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that the next daemon has to go on with mounts; then they are cut off.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Time that the process of a next daemon has to say that it has begun: that is the first thing that one does.
const BEGINNING: Duration = Duration::from_secs(20);
/// Time that a next daemon which has begun has to go on with mounts or to cut them off: it does the latter itself, [`DEADLINE`] after it began.
const LAST: Duration = Duration::from_secs(90);

/// Notes on kept connections.
struct Notes {
    memory: OwnedFd,
    /// Lock of the state directory, until the next daemon has it.
    lock: Option<OwnedFd>,
    since: Instant,
    /// True when the process that is to go on is a daemon, and has begun.
    has_begun: bool,
}

/// Mounts that no daemon serves.
#[derive(Default)]
pub struct Kept {
    connections: BTreeMap<u32, OwnedFd>,
    notes: Option<Notes>,
    /// Program of the next daemon, once it was said.
    next: Option<PathBuf>,
    /// Things that outlive a daemon that dies.
    pub held: Held,
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
            Word::Notes(memory, lock, program, _) => {
                self.notes = Some(Notes { memory, lock, since: Instant::now(), has_begun: false });
                self.next = Some(PathBuf::from(OsStr::from_bytes(&program)));
                // All of it is among what was said, and on disk.
                self.held.clear();
            }
            Word::Begun => {
                self.notes.iter_mut().for_each(|notes| (notes.lock, notes.has_begun) = (None, true));
                self.clear_if_empty();
            }
            Word::Taken(number) => self.take(number),
            Word::Done => {
                self.clear_handed();
                self.held.clear_waiting();
            }
            Word::Nothing(_) => {}
            Word::Held(number, notes, thing) => {
                self.held.hold(number, notes, thing);
                // It goes on with one that was handed over.
                self.take(number);
            }
            Word::Let(number) => self.held.let_go(number),
            Word::Lock(lock) => self.held.hold_lock(lock),
        }
    }

    fn take(&mut self, number: u32) {
        if self.connections.remove(&number).is_some() {
            self.clear_if_empty();
        }
    }

    fn clear_if_empty(&mut self) {
        if self.connections.is_empty() {
            self.clear_handed();
        }
    }

    /// Lets go of what was handed over.
    fn clear_handed(&mut self) {
        *self = Kept { held: std::mem::take(&mut self.held), ..Kept::default() };
    }

    /// Lets go of all that nobody goes on with: those mounts are cut off.
    pub fn clear_waiting(&mut self) {
        self.clear_handed();
        self.held.clear_waiting();
    }

    /// Begins the time anew in which a process has to go on with what was handed over: another one gets it.
    pub fn renew(&mut self, now: Instant) {
        self.notes.iter_mut().for_each(|notes| (notes.since, notes.has_begun) = (now, false));
    }

    /// Notes that the daemon has ended: what it did not say to the end is nothing, what was held waits for the next. Returns the program of the next
    /// one if it has handed over.
    pub fn ended(&mut self, death: Death, now: Instant) -> Option<PathBuf> {
        if self.notes.is_none() {
            self.clear_handed();
        }
        self.held.died(death, now);
        self.next.take()
    }

    /// True while mounts that were handed over wait for the next daemon.
    pub fn is_waiting(&self) -> bool {
        self.notes.is_some()
    }

    /// True when the lock of the state directory is kept: nobody else can have begun.
    pub fn has_lock(&self) -> bool {
        self.notes.as_ref().is_some_and(|notes| notes.lock.is_some()) || self.held.has_lock()
    }

    /// Time at which the process that was to go on with what was handed over has not got on.
    pub fn stuck(&self) -> Option<Instant> {
        self.notes.as_ref().map(|notes| notes.since + if notes.has_begun { LAST } else { BEGINNING })
    }

    /// Words for a daemon that begins.
    pub fn words(&self) -> io::Result<Vec<Word>> {
        let mut words = self.held.words()?;
        let Some(Notes { memory, lock, .. }) = &self.notes else {
            words.push(Word::Nothing(KNOWN));
            return Ok(words);
        };
        for (number, connection) in &self.connections {
            words.push(Word::Connections(*number, vec![connection.try_clone()?]));
        }
        let lock = lock.as_ref().map(OwnedFd::try_clone).transpose()?;
        words.push(Word::Notes(memory.try_clone()?, lock, Vec::new(), KNOWN));
        Ok(words)
    }
}

/// Line of a daemon to the process that keeps its mounts.
pub struct Line {
    socket: OwnedFd,
    lock: OwnedFd,
    /// True when the keeper can hold things from their beginning.
    can_hold: bool,
    /// True when the keeper has the lock too.
    gave_lock: AtomicBool,
}

/// File in memory with these bytes.
fn memory_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut memory = File::from(rustix::fs::memfd_create("zirconia-notes", MemfdFlags::CLOEXEC)?);
    memory.write_all(bytes)?;
    Ok(memory.into())
}

/// Bytes of a file in memory.
fn bytes_of(memory: OwnedFd) -> io::Result<Vec<u8>> {
    rustix::fs::seek(&memory, SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    File::from(memory).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Line {
    /// Makes it; `lock` is that of the state directory.
    pub fn new(socket: OwnedFd, lock: &File, can_hold: bool) -> io::Result<Line> {
        line::say(&socket, &Word::Begun)?;
        Ok(Line { socket, lock: lock.as_fd().try_clone_to_owned()?, can_hold, gave_lock: AtomicBool::new(false) })
    }

    fn give(&self, heritage: Heritage, program: &Path) -> io::Result<()> {
        let memory = memory_of(&heritage.notes)?;
        let mut connections: Vec<(u32, OwnedFd)> = heritage.connections.into_iter().collect();
        while !connections.is_empty() {
            let first = connections[0].0;
            // Those of one word are numbered without a gap.
            let count = connections.iter().zip(first..).take(DESCRIPTORS_MAX).take_while(|((number, _), at)| number == at).count();
            let word = Word::Connections(first, connections.drain(..count).map(|(_, connection)| connection).collect());
            line::say(&self.socket, &word)?;
        }
        let lock = self.lock.try_clone()?;
        line::say(&self.socket, &Word::Notes(memory, Some(lock), program.as_os_str().as_bytes().to_vec(), KNOWN))
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

    fn can_hold(&self) -> bool {
        self.can_hold
    }

    fn hold(&self, number: u32, notes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
        // Nobody else is to begin while it waits for the next daemon.
        if !self.gave_lock.swap(true, Ordering::AcqRel) {
            line::say(&self.socket, &Word::Lock(self.lock.try_clone()?))?;
        }
        line::say(&self.socket, &Word::Held(number, memory_of(notes)?, descriptor.try_clone_to_owned()?))
    }

    fn let_go(&self, number: u32) {
        let _ = line::say(&self.socket, &Word::Let(number));
    }
}

/// Things that a daemon begins with.
#[derive(Default)]
pub struct Begin {
    pub heritage: Heritage,
    /// Lock of the state directory, which the daemon before had.
    pub lock: Option<File>,
    /// True when the keeper can hold things from their beginning.
    pub can_hold: bool,
}

/// Hears what the daemon before left.
pub fn begin(socket: &OwnedFd) -> io::Result<Begin> {
    let mut begin = Begin::default();
    loop {
        match line::hear(socket)? {
            Some(Word::Connections(first, connections)) => begin.heritage.connections.extend((first..).zip(connections)),
            Some(Word::Held(number, notes, descriptor)) => {
                begin.heritage.held.insert(number, Heirloom { notes: bytes_of(notes)?, descriptor });
            }
            Some(Word::Lock(lock)) => begin.lock = Some(File::from(lock)),
            Some(Word::Notes(memory, lock, _, known)) => {
                begin.heritage.notes = bytes_of(memory)?;
                begin.lock = lock.map(File::from).or(begin.lock);
                begin.can_hold = known >= KNOWN;
                return Ok(begin);
            }
            Some(Word::Nothing(known)) => {
                begin.can_hold = known >= KNOWN;
                return Ok(begin);
            }
            None => return Ok(begin),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a daemon that dies leaves its mounts to nobody, or another daemon takes its place before the next one.
    #[test]
    fn what_a_daemon_that_dies_had_held_arrives_at_the_next() {
        let lock = || File::open("/dev/null").expect("there");
        let (mut kept, (ours, theirs)) = (Kept::default(), line::pair().expect("a line"));
        let daemon = Line::new(theirs, &lock(), true).expect("begun");
        for (number, notes) in [(5, "old"), (6, "ended"), (5, "new")] {
            daemon.hold(number, notes.as_bytes(), memory_of(b"thing").expect("memory").as_fd()).expect("held");
        }
        daemon.let_go(6);
        drop(daemon);
        assert!(kept.hear(&ours).expect("heard"), "the daemon is gone");
        assert_eq!(kept.ended(Death::Killed, Instant::now()), None);
        assert!(kept.has_lock() && kept.held.deadline().is_some() && kept.stuck().is_none() && !kept.is_waiting());
        let (ours, theirs) = line::pair().expect("a line");
        kept.words().expect("words").iter().try_for_each(|word| line::say(&ours, word)).expect("said");
        let Begin { mut heritage, lock, can_hold } = begin(&theirs).expect("heard");
        assert!(lock.is_some() && can_hold && heritage.connections.is_empty());
        let Heirloom { notes, descriptor } = heritage.held.remove(&5).expect("it was held");
        assert_eq!((notes, bytes_of(descriptor).expect("read")), (b"new".to_vec(), b"thing".to_vec()));
        assert!(heritage.held.is_empty());
    }

    /// If this fails, a daemon that was replaced leaves a mount twice: as one that was handed over, and as one of a daemon that died.
    #[test]
    fn what_is_handed_over_is_not_held_any_more() {
        let nothing = || OwnedFd::from(File::open("/dev/null").expect("there"));
        let (mut kept, (ours, theirs)) = (Kept::default(), line::pair().expect("a line"));
        let daemon = Line::new(theirs, &File::open("/dev/null").expect("there"), true).expect("begun");
        for number in [1, 2] {
            daemon.hold(number, b"", nothing().as_fd()).expect("held");
        }
        let connections = BTreeMap::from([(1, nothing()), (2, nothing())]);
        daemon.keep(Heritage { connections, ..Heritage::default() }, Path::new("/next")).expect("handed over");
        drop(daemon);
        assert!(kept.hear(&ours).expect("heard"));
        assert_eq!(kept.ended(Death::Killed, Instant::now()), Some("/next".into()));
        assert!(kept.is_waiting() && !kept.held.has_any());
        let now = Instant::now();
        kept.renew(now);
        assert_eq!(kept.stuck(), Some(now + BEGINNING), "programs wait for a process that says nothing");
        let (ours, theirs) = line::pair().expect("a line");
        let next = Line::new(theirs, &File::open("/dev/null").expect("there"), true).expect("begun");
        next.hold(1, b"", nothing().as_fd()).expect("held");
        drop(next);
        assert!(kept.hear(&ours).expect("heard"));
        assert_eq!(kept.stuck(), Some(now + LAST), "a daemon opens pools meanwhile");
        kept.ended(Death::Killed, Instant::now());
        // Each once: the one that it went on with, and the other.
        assert!(kept.held.has_any() && kept.connections.keys().eq([&2]));
    }
}
