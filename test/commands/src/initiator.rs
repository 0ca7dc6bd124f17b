//! An initiator of iSCSI that was written for this: one command at a time, over a connection that ends where somebody wants it to.

use crate::world::{Failure, same};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Name of the target.
pub const TARGET: &str = "iqn.2026-01.zirconia:tank:vol";
/// Name of the initiator.
pub const INITIATOR: &str = "iqn.2026-11.example:a";
/// Time by which a daemon that can do something has done it.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that go with one command without being asked for, and with each PDU after that.
pub const IMMEDIATE_BYTES: usize = 8192;
/// Actions of PERSISTENT RESERVE OUT: REGISTER AND IGNORE EXISTING KEY, and RESERVE.
const REGISTER: u8 = 6;
const RESERVE: u8 = 1;
/// Type of a reservation under which its holder alone writes.
pub const WRITE_EXCLUSIVE: u8 = 1;

/// End that the initiator brings about.
#[derive(Clone, Debug, Default)]
pub enum End {
    /// None.
    #[default]
    Never,
    /// Connection that is cut off after so many bytes, sent and received ones together.
    Bytes(usize),
    /// Death of a process, by its number, when so many PDUs were sent.
    Death(u64, String),
}

/// Session by hand: one command at a time.
pub struct Session {
    stream: TcpStream,
    number: u32,
    end: End,
}

fn set(header: &mut [u8; 48], at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn word(header: &[u8; 48], at: usize) -> u32 {
    header[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// Head of what came, and its data.
type Received = ([u8; 48], Vec<u8>);

impl Session {
    /// Logs in without a proof; the status of the answer where that is refused.
    pub fn log_in(port: u16) -> Result<Result<Session, u16>, Failure> {
        Session::log_in_as(port, 1, End::Never)
    }

    /// Does [`Session::log_in`] with a number of one's own, so that it takes the place of the session with the same one, and with an end.
    pub fn log_in_as(port: u16, isid: u32, end: End) -> Result<Result<Session, u16>, Failure> {
        Session::begin((INITIATOR, isid), port, PATIENCE, end)
    }

    fn begin((initiator, isid): (&str, u32), port: u16, patience: Duration, end: End) -> Result<Result<Session, u16>, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let mut session = Session { stream, number: 1, end };
        let mut header = [0; 48];
        (header[0], header[1]) = (0x43, 0x87);
        set(&mut header, 8, 0x8000_0000 | isid);
        set(&mut header, 24, session.number);
        let keys = format!("InitiatorName={initiator}\0TargetName={TARGET}\0SessionType=Normal\0");
        session.send(header, keys.as_bytes())?;
        let (answer, _) = session.receive()?.ok_or("      a login is not answered")?;
        match u16::from_be_bytes([answer[36], answer[37]]) {
            0 => Ok(Ok(session)),
            status => Ok(Err(status)),
        }
    }

    /// Logs in, and takes the news that the session is new.
    pub fn new(port: u16) -> Result<Session, Failure> {
        Session::of(INITIATOR, port, PATIENCE)
    }

    /// Does [`Session::new`] with this name; no answer takes longer than `patience`.
    pub fn of(initiator: &str, port: u16, patience: Duration) -> Result<Session, Failure> {
        let session = Session::begin((initiator, 1), port, patience, End::Never)?;
        let mut session = session.map_err(|status| format!("      the login is refused: {status:#06x}"))?;
        session.command(&[0; 6], &[], 0)?;
        Ok(session)
    }

    /// Number of the next so many bytes that may still pass.
    fn allowed(&mut self, length: usize) -> usize {
        let End::Bytes(left) = &mut self.end else { return length };
        let now = length.min(*left);
        *left -= now;
        now
    }

    fn cut(&self) -> std::io::Result<()> {
        self.stream.shutdown(Shutdown::Both)?;
        Err(ErrorKind::ConnectionAborted.into())
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let now = self.allowed(bytes.len());
        self.stream.write_all(&bytes[..now])?;
        if now < bytes.len() { self.cut() } else { Ok(()) }
    }

    fn get(&mut self, bytes: &mut [u8]) -> std::io::Result<()> {
        let now = self.allowed(bytes.len());
        self.stream.read_exact(&mut bytes[..now])?;
        if now < bytes.len() { self.cut() } else { Ok(()) }
    }

    fn send(&mut self, mut header: [u8; 48], data: &[u8]) -> Result<(), Failure> {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = [&header[..], data].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.put(&bytes)?;
        if let End::Death(left, process) = &mut self.end {
            *left = left.saturating_sub(1);
            if *left == 0 {
                Command::new("kill").args(["-9", process]).status()?;
                self.end = End::Never;
            }
        }
        Ok(())
    }

    /// Next PDU; None at the end of the connection.
    fn receive(&mut self) -> Result<Option<Received>, Failure> {
        let mut header = [0; 48];
        match self.get(&mut header) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(error.into()),
            Err(_) => return Ok(None),
        }
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        self.get(&mut data)?;
        data.truncate(length);
        Ok(Some((header, data)))
    }

    /// Carries out a command that sends `out`, or gets `expected` bytes; gives its status and them.
    pub fn command(&mut self, cdb: &[u8], out: &[u8], expected: usize) -> Result<(u8, Vec<u8>), Failure> {
        let mut header = [0; 48];
        let direction = if out.is_empty() { 0x40 } else { 0x20 };
        (header[0], header[1]) = (0x01, 0x80 | if out.len() + expected == 0 { 0 } else { direction });
        let tag = self.number;
        set(&mut header, 16, tag);
        set(&mut header, 20, out.len().max(expected) as u32);
        set(&mut header, 24, self.number);
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        self.send(header, &out[..out.len().min(IMMEDIATE_BYTES)])?;
        let mut data = Vec::new();
        loop {
            let (answer, part) = self.receive()?.ok_or("      the session ended in the middle of a command")?;
            match answer[0] & 0x3F {
                0x25 => {
                    data.extend(part);
                    if answer[1] & 1 != 0 {
                        return Ok((answer[3], data));
                    }
                }
                0x21 => return Ok((answer[3], data)),
                0x31 => self.give(&answer, out)?,
                // Pings and messages.
                _ => {}
            }
        }
    }

    /// Sends the data that the target asks for.
    fn give(&mut self, request: &[u8; 48], out: &[u8]) -> Result<(), Failure> {
        let (offset, length) = (word(request, 40) as usize, word(request, 44) as usize);
        let wanted = out.get(offset..offset + length).ok_or("      the target asks for more than there is")?;
        for (number, piece) in wanted.chunks(IMMEDIATE_BYTES).enumerate() {
            let at = offset + number * IMMEDIATE_BYTES;
            let mut header = [0; 48];
            (header[0], header[1]) = (0x05, if at + piece.len() == offset + length { 0x80 } else { 0 });
            for field in [16, 20] {
                set(&mut header, field, word(request, field));
            }
            set(&mut header, 36, number as u32);
            set(&mut header, 40, at as u32);
            self.send(header, piece)?;
        }
        Ok(())
    }

    /// Writes at a block of 512 bytes, past the disk's cache (FUA).
    pub fn write(&mut self, block: u32, bytes: &[u8]) -> Result<(), Failure> {
        let done = self.command(&moving(0x2A, 0x08, block, bytes.len()), bytes, 0)?;
        same("the status of a write", done.0, 0)
    }

    /// Reads at a block of 512 bytes.
    pub fn read(&mut self, block: u32, length: usize) -> Result<Vec<u8>, Failure> {
        let (status, bytes) = self.command(&moving(0x28, 0, block, length), &[], length)?;
        same("the status of a read", status, 0)?;
        Ok(bytes)
    }

    /// Waits for the end of the connection, which the target brings about.
    pub fn ends(mut self) -> Result<(), Failure> {
        while self.receive()?.is_some() {}
        Ok(())
    }

    /// Registers a key, such that it outlives a loss of power, and reserves writing for itself.
    pub fn reserve(&mut self, key: u64) -> Result<(), Failure> {
        let list = |own: u64, new: u64| {
            let mut list = [0; 24];
            list[..8].copy_from_slice(&own.to_be_bytes());
            list[8..16].copy_from_slice(&new.to_be_bytes());
            list[20] = u8::from(new != 0);
            list
        };
        for (action, list) in [(REGISTER, list(0, key)), (RESERVE, list(key, 0))] {
            let done = self.command(&[0x5F, action, WRITE_EXCLUSIVE, 0, 0, 0, 0, 0, 24, 0], &list, 0)?;
            same("the status of a reservation", done.0, 0)?;
        }
        Ok(())
    }

    /// Keys that are registered, and the key and the type of the reservation.
    pub fn reservations(&mut self) -> Result<(Vec<u64>, Option<(u64, u8)>), Failure> {
        let (_, keys) = self.command(&[0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[], 256)?;
        let (_, held) = self.command(&[0x5E, 1, 0, 0, 0, 0, 0, 1, 0, 0], &[], 256)?;
        let keys = keys.get(8..).unwrap_or_default().chunks_exact(8).map(be64).collect();
        let holder = held.get(8..16).map(be64).zip(held.get(21).map(|kind| kind & 0xF));
        Ok((keys, holder))
    }
}

fn be64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// READ(10) or WRITE(10).
pub fn moving(opcode: u8, flags: u8, block: u32, length: usize) -> [u8; 10] {
    let ([a, b, c, d], [e, f]) = (block.to_be_bytes(), ((length / 512) as u16).to_be_bytes());
    [opcode, flags, a, b, c, d, 0, e, f, 0]
}

/// A port that nobody uses now.
pub fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
