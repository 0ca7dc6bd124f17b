//! An initiator by hand: it builds PDUs byte by byte, and shares no code with the target.

use crate::world::{TARGET, World};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A received PDU.
#[derive(Clone, Debug)]
pub struct Answer {
    pub header: [u8; 48],
    pub data: Vec<u8>,
}

impl Answer {
    pub fn opcode(&self) -> u8 {
        self.header[0]
    }

    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header[at..at + 4].try_into().expect("four bytes"))
    }

    /// Status class and detail of a login response.
    pub fn login_status(&self) -> u16 {
        u16::from_be_bytes([self.header[36], self.header[37]])
    }

    /// Value of a text key.
    pub fn key(&self, name: &str) -> Option<String> {
        self.keys().into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn keys(&self) -> Vec<(String, String)> {
        let text = String::from_utf8(self.data.clone()).expect("text");
        text.split('\0').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.into(), value.into())).collect()
    }
}

/// Result of a SCSI command.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u8,
    pub sense: Vec<u8>,
    pub data: Vec<u8>,
    /// Residual: positive for an overflow.
    pub residual: i64,
    /// Number of Data-In and R2T PDUs.
    pub pdus: usize,
}

impl Reply {
    /// Sense key, code and qualifier, of either format.
    pub fn sense(&self) -> (u8, u8, u8) {
        match self.sense.first() {
            Some(0x72) => (self.sense[1], self.sense[2], self.sense[3]),
            Some(_) => (self.sense[2] & 0xF, self.sense[12], self.sense[13]),
            None => (0, 0, 0),
        }
    }

    pub fn is_good(&self) -> bool {
        self.status == 0
    }
}

/// One connection.
pub struct Initiator {
    stream: TcpStream,
    pub command_number: u32,
    pub status_number: u32,
    pub tag: u32,
    pub has_digests: bool,
    /// Command whose answer may come before any other's, and is passed over.
    pub passed: Option<u32>,
    /// Bytes of data that go with a command.
    pub immediate_max: usize,
    /// Bytes that go unsolicited, immediate ones among them.
    pub first_burst: usize,
}

/// Header of a PDU.
pub fn header(opcode: u8, flags: u8, tag: u32) -> [u8; 48] {
    let mut header = [0; 48];
    header[0] = opcode;
    header[1] = flags;
    set(&mut header, 16, tag);
    header
}

/// Sets a field of four bytes.
pub fn set(header: &mut [u8; 48], at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// A command descriptor block.
pub fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// Text of keys.
pub fn text(keys: &[(&str, &str)]) -> Vec<u8> {
    keys.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

impl Initiator {
    /// A connection that has not logged in.
    pub fn connect(world: &World) -> Initiator {
        let stream = TcpStream::connect(world.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        stream.set_nodelay(true).expect("no delay");
        Initiator {
            stream,
            command_number: 7,
            status_number: 0,
            tag: 0,
            passed: None,
            has_digests: false,
            immediate_max: 8192,
            first_burst: 0,
        }
    }

    /// A session of `name` with its default values, whose first unit attention was taken.
    pub fn session(world: &World, name: &str) -> Initiator {
        let mut initiator = Initiator::fresh(world, name, &[]);
        assert_eq!(initiator.command(&[0; 6], &[], 0).sense().0, 6, "a new session is told that it is new");
        initiator
    }

    /// A session of `name` with further keys.
    pub fn fresh(world: &World, name: &str, keys: &[(&str, &str)]) -> Initiator {
        let mut initiator = Initiator::connect(world);
        let answer = initiator.log_in(name, keys);
        assert_eq!((answer.login_status(), answer.header[1]), (0, 0x87), "{:?}", answer.keys());
        assert_ne!(answer.header[14..16], [0, 0], "a session has a handle");
        initiator
    }

    /// Logs in to the target as `name`, in one step; the number of the session (ISID) is the name's.
    pub fn log_in(&mut self, name: &str, keys: &[(&str, &str)]) -> Answer {
        let mut all = vec![("InitiatorName", name), ("TargetName", TARGET), ("SessionType", "Normal")];
        all.extend(keys);
        self.log_in_with(0x87, &text(&all), u32::from(name.as_bytes()[0]))
    }

    /// Sends one login request and takes its response.
    pub fn log_in_with(&mut self, flags: u8, text: &[u8], isid: u32) -> Answer {
        let mut request = header(0x43, flags, self.tag);
        set(&mut request, 8, 0x8000_0000 | isid);
        set(&mut request, 24, self.command_number);
        self.send(request, text);
        self.receive().expect("a login is answered")
    }

    /// Sends a PDU.
    pub fn send(&mut self, mut header: [u8; 48], data: &[u8]) {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = header.to_vec();
        if self.has_digests {
            bytes.extend(crc32c::crc32c(&header).to_le_bytes());
        }
        let mut padded = data.to_vec();
        padded.resize(data.len().next_multiple_of(4), 0);
        bytes.extend(&padded);
        if self.has_digests && !data.is_empty() {
            bytes.extend(crc32c::crc32c(&padded).to_le_bytes());
        }
        self.send_raw(&bytes);
    }

    /// Sends bytes; the target may have closed the connection.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn read(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).ok().map(|()| bytes)
    }

    /// The next PDU; None at the end of the connection.
    pub fn receive(&mut self) -> Option<Answer> {
        let header: [u8; 48] = self.read(48)?.try_into().expect("48 bytes");
        if self.has_digests {
            assert_eq!(self.read(4)?, crc32c::crc32c(&header).to_le_bytes(), "the digest of a header");
        }
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let padded = self.read(length.next_multiple_of(4))?;
        if self.has_digests && length > 0 {
            assert_eq!(self.read(4)?, crc32c::crc32c(&padded).to_le_bytes(), "the digest of data");
        }
        Some(Answer { header, data: padded[..length].to_vec() })
    }

    /// True when the target closes the connection and sends nothing before.
    pub fn is_closed(&mut self) -> bool {
        self.receive().is_none()
    }

    /// Header of a command with the next number.
    pub fn request(&mut self, opcode: u8, flags: u8) -> [u8; 48] {
        self.tag += 1;
        let mut request = header(opcode, flags, self.tag);
        set(&mut request, 24, self.command_number);
        self.command_number = self.command_number.wrapping_add(1);
        request
    }

    /// Carries out a command on unit 0 that sends `out` or expects `expected` bytes.
    pub fn command(&mut self, bytes: &[u8], out: &[u8], expected: usize) -> Reply {
        self.command_on(0, bytes, out, expected, out.len())
    }

    /// Carries out a command; `announced` is the length that the initiator says it means to send.
    pub fn command_on(&mut self, lun: u8, bytes: &[u8], out: &[u8], expected: usize, announced: usize) -> Reply {
        let immediate = out.len().min(self.immediate_max);
        let unsolicited = out.len().min(self.first_burst.max(immediate));
        let direction = if announced > 0 {
            0x20
        } else if expected > 0 {
            0x40
        } else {
            0
        };
        let last = if unsolicited > immediate { 0 } else { 0x80 };
        let mut request = self.request(0x01, direction | last);
        request[9] = lun;
        set(&mut request, 20, announced.max(expected) as u32);
        request[32..48].copy_from_slice(&cdb(bytes));
        self.send(request, &out[..immediate]);
        let tag = self.tag;
        if unsolicited > immediate {
            self.data_out(tag, u32::MAX, immediate, &out[immediate..unsolicited]);
        }
        self.finish(tag, out)
    }

    /// Sends data in PDUs of 8 KiB.
    pub fn data_out(&mut self, tag: u32, transfer_tag: u32, offset: usize, data: &[u8]) {
        let pieces: Vec<&[u8]> = data.chunks(8192).collect();
        for (number, piece) in pieces.iter().enumerate() {
            let mut pdu = header(0x05, if number + 1 == pieces.len() { 0x80 } else { 0 }, tag);
            set(&mut pdu, 20, transfer_tag);
            set(&mut pdu, 36, number as u32);
            set(&mut pdu, 40, (offset + number * 8192) as u32);
            self.send(pdu, piece);
        }
    }

    /// Takes what comes for a command until its status.
    pub fn finish(&mut self, tag: u32, out: &[u8]) -> Reply {
        let mut data = Vec::new();
        let mut pdus = 0;
        loop {
            let answer = self.receive().expect("a command is answered");
            if self.passed.take_if(|passed| answer.word(16) == *passed).is_some() {
                continue;
            }
            assert_eq!(answer.word(16), tag, "{answer:?}");
            let (flags, count) = (answer.header[1], i64::from(answer.word(44)));
            let residual = if flags & 4 != 0 {
                count
            } else if flags & 2 != 0 {
                -count
            } else {
                0
            };
            let is_status = answer.opcode() == 0x21 || (answer.opcode() == 0x25 && flags & 1 != 0);
            if is_status {
                assert!(self.status_number == 0 || answer.word(24) == self.status_number.wrapping_add(1), "responses are numbered");
                self.status_number = answer.word(24);
            }
            match answer.opcode() {
                0x31 => {
                    let (offset, length) = (answer.word(40) as usize, answer.word(44) as usize);
                    let end = (offset + length).min(out.len());
                    self.data_out(tag, answer.word(20), offset, &out[offset..end]);
                }
                0x25 => {
                    assert_eq!((answer.word(40) as usize, answer.word(36) as usize), (data.len(), pdus), "data are in order");
                    data.extend(&answer.data);
                    if is_status {
                        return Reply { status: answer.header[3], sense: Vec::new(), data, residual, pdus: pdus + 1 };
                    }
                }
                0x21 => {
                    let sense = answer.data.get(2..).unwrap_or_default().to_vec();
                    return Reply { status: answer.header[3], sense, data, residual, pdus };
                }
                other => panic!("an unexpected PDU {other:02x}"),
            }
            pdus += 1;
        }
    }

    /// Task management function; returns the response.
    pub fn manage(&mut self, function: u8, referenced: u32) -> u8 {
        let mut request = self.request(0x42, 0x80 | function);
        // It is immediate: its number is not used up.
        self.command_number = self.command_number.wrapping_sub(1);
        set(&mut request, 20, referenced);
        self.send(request, &[]);
        let answer = self.receive().expect("it is answered");
        assert_eq!(answer.opcode(), 0x22);
        self.status_number = answer.word(24);
        answer.header[2]
    }

    /// Ping with data; returns the echo.
    pub fn ping(&mut self, data: &[u8]) -> Answer {
        let mut request = self.request(0x00, 0x80);
        set(&mut request, 20, u32::MAX);
        self.send(request, data);
        let answer = self.receive().expect("a ping is answered");
        self.status_number = answer.word(24);
        answer
    }
}

/// READ(10).
pub fn read10(first: u32, blocks: u16) -> Vec<u8> {
    let ([a, b, c, d], [e, f]) = (first.to_be_bytes(), blocks.to_be_bytes());
    vec![0x28, 0, a, b, c, d, 0, e, f, 0]
}

/// WRITE(10).
pub fn write10(first: u32, blocks: u16) -> Vec<u8> {
    let mut cdb = read10(first, blocks);
    cdb[0] = 0x2A;
    cdb
}

/// A command of 16 bytes with a first block and a number of blocks.
pub fn long(opcode: u8, flags: u8, first: u64, blocks: u32) -> Vec<u8> {
    [&[opcode, flags][..], &first.to_be_bytes(), &blocks.to_be_bytes(), &[0, 0]].concat()
}
