//! What a daemon and the process that starts it say to each other, over a pair of sockets that nobody else has: descriptors of mounts that are
//! to outlive the daemon, and what becomes of them (docs/adr/0018).
//!
//! The keeper's program may be older than the daemon's: words and their numbers stay what they are, and what the keeper understands goes with
//! the last word that a daemon begins with ([`KNOWN`]).

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Number of descriptors that go with one word, at most: the system sends 253.
pub const DESCRIPTORS_MAX: usize = 200;
/// Bytes of a word, at most: a path.
const WORD_BYTES: usize = 8192;

/// Number of what this program understands: 1 with [`Word::Held`], 0 before.
pub const KNOWN: u32 = 1;

/// Word, either way.
#[derive(Debug)]
pub enum Word {
    /// Connections, numbered from this one on.
    Connections(u32, Vec<OwnedFd>),
    /// Notes on all connections that were said before, in a file, the lock of the state directory unless a daemon has it, and the path of the next
    /// daemon's program. With it everything was said. The number is what its sender understands.
    Notes(OwnedFd, Option<OwnedFd>, Vec<u8>, u32),
    /// There is nothing more to go on with. The number is what its sender understands.
    Nothing(u32),
    /// Daemon has the lock: the keeper lets go of it.
    Begun,
    /// Daemon serves the connection of this number from now on.
    Taken(u32),
    /// Daemon goes on with none of those that are left.
    Done,
    /// Something of this number that outlives a daemon that dies: notes on it in a file, and its descriptor. What had the number goes.
    Held(u32, OwnedFd, OwnedFd),
    /// End of what was held by this number.
    Let(u32),
    /// Lock of the state directory, which is to outlive the daemon with what is held.
    Lock(OwnedFd),
}

const CONNECTIONS: u8 = 1;
const NOTES: u8 = 2;
const NOTHING: u8 = 3;
const BEGUN: u8 = 4;
const TAKEN: u8 = 5;
const DONE: u8 = 6;
const HELD: u8 = 7;
const LET: u8 = 8;
const LOCK: u8 = 9;

/// Pair of ends of a line, which keeps words apart.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Own copy of an end of a line; None for whatever else it may be.
pub fn taken_from(standard_input: impl AsFd) -> Option<OwnedFd> {
    let kind = rustix::net::sockopt::socket_type(&standard_input).ok()?;
    if kind == SocketType::SEQPACKET { rustix::io::fcntl_dupfd_cloexec(standard_input, 3).ok() } else { None }
}

/// Says a word; waits until there is room for it.
pub fn say(line: impl AsFd, word: &Word) -> io::Result<()> {
    let (kind, number, rest, descriptors): (u8, u32, &[u8], Vec<BorrowedFd<'_>>) = match word {
        Word::Connections(first, connections) => (CONNECTIONS, *first, &[], connections.iter().map(AsFd::as_fd).collect()),
        Word::Notes(notes, lock, program, known) => (NOTES, *known, program, std::iter::once(notes).chain(lock).map(AsFd::as_fd).collect()),
        Word::Nothing(known) => (NOTHING, *known, &[], Vec::new()),
        Word::Begun => (BEGUN, 0, &[], Vec::new()),
        Word::Taken(number) => (TAKEN, *number, &[], Vec::new()),
        Word::Done => (DONE, 0, &[], Vec::new()),
        Word::Held(number, notes, thing) => (HELD, *number, &[], vec![notes.as_fd(), thing.as_fd()]),
        Word::Let(number) => (LET, *number, &[], Vec::new()),
        Word::Lock(lock) => (LOCK, 0, &[], vec![lock.as_fd()]),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let number = number.to_le_bytes();
    let parts = [IoSlice::new(std::slice::from_ref(&kind)), IoSlice::new(&number), IoSlice::new(rest)];
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match rustix::net::sendmsg(&line, &parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut polled = [rustix::event::PollFd::new(&line, rustix::event::PollFlags::OUT)];
                rustix::event::poll(&mut polled, None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Hears a word; None when nobody is at the other end any more. `WouldBlock` where there is none yet and the line does not wait.
pub fn hear(line: impl AsFd) -> io::Result<Option<Word>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut bytes = [0; WORD_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match rustix::net::recvmsg(&line, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?.bytes,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    let Some((kind, rest)) = bytes.get(..received).and_then(<[u8]>::split_first) else { return Ok(None) };
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let (number, rest) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
    let number = u32::from_le_bytes(*number);
    if *kind == CONNECTIONS {
        return Ok(Some(Word::Connections(number, descriptors)));
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(wrong);
    let word = match *kind {
        NOTES => Word::Notes(next()?, next().ok(), rest.to_vec(), number),
        NOTHING => Word::Nothing(number),
        BEGUN => Word::Begun,
        TAKEN => Word::Taken(number),
        DONE => Word::Done,
        HELD => Word::Held(number, next()?, next()?),
        LET => Word::Let(number),
        LOCK => Word::Lock(next()?),
        _ => return Err(wrong()),
    };
    Ok(Some(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn file_with(text: &str) -> OwnedFd {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
        rustix::io::write(&file, text.as_bytes()).expect("written");
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).expect("at its start");
        file
    }

    fn text_in(file: OwnedFd) -> String {
        let mut text = String::new();
        std::fs::File::from(file).read_to_string(&mut text).expect("text");
        text
    }

    /// If this fails, an upgrade gives mounts to the wrong file systems, or to none.
    #[test]
    fn words_arrive_with_their_descriptors() {
        let (ours, theirs) = pair().expect("a line");
        say(&ours, &Word::Connections(7, vec![file_with("a"), file_with("b")])).expect("said");
        say(&ours, &Word::Notes(file_with("notes"), Some(file_with("lock")), b"/bin/next".to_vec(), KNOWN)).expect("said");
        say(&ours, &Word::Taken(8)).expect("said");
        say(&ours, &Word::Held(9, file_with("of it"), file_with("itself"))).expect("said");
        drop(ours);
        match hear(&theirs) {
            Ok(Some(Word::Connections(7, files))) => assert_eq!(files.into_iter().map(text_in).collect::<Vec<_>>(), ["a", "b"]),
            other => panic!("{other:?}"),
        }
        match hear(&theirs) {
            Ok(Some(Word::Notes(notes, Some(lock), program, KNOWN))) => {
                assert_eq!((text_in(notes), text_in(lock), program), ("notes".into(), "lock".into(), b"/bin/next".to_vec()));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(hear(&theirs), Ok(Some(Word::Taken(8)))));
        match hear(&theirs) {
            Ok(Some(Word::Held(9, notes, thing))) => assert_eq!((text_in(notes), text_in(thing)), ("of it".into(), "itself".into())),
            other => panic!("{other:?}"),
        }
        assert!(matches!(hear(&theirs), Ok(None)), "nobody is there any more");
    }

    /// A daemon that is started by hand with anything as its standard input must not take that for its keeper.
    #[test]
    fn only_a_line_is_taken_for_one() {
        let (ours, _theirs) = pair().expect("a line");
        assert!(taken_from(&ours).is_some());
        let nothing = std::fs::File::open("/dev/null").expect("there");
        let (stream, _other) = std::os::unix::net::UnixStream::pair().expect("a stream");
        assert!(taken_from(&nothing).is_none() && taken_from(&stream).is_none());
    }
}
