//! An initiator of iSCSI (RFC 7143) that costs as little as one can: one session of one connection, without digests, many requests in flight.
//!
//! It is the same for every target. Commands that can go out go with one vectored write, their data from where they lie; what comes is read in large
//! pieces, of which headers are looked at and data are counted in place. Data go with their command or unasked as far as the login agreed, the rest as
//! the target asks for them.

#[cfg(test)]
mod tests;

use crate::measure::text;
use crate::pipeline::Stream;
use iscsi::{Keys, Outgoing, Pdu, opcode};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Name of the initiator.
pub const NAME: &str = "iqn.2026-11.example.zirconia:zbench";
/// Bytes of a block of every disk that is measured.
pub const BLOCK_BYTES: u32 = 512;
/// Bytes of the longest data segment, and of a first burst, that are asked for.
pub const SEGMENT_BYTES: u32 = 256 << 10;
/// Bytes of the longest burst that is asked for.
pub const BURST_BYTES: u32 = 1 << 20;

/// Bytes of a basic header segment.
const HEADER_BYTES: usize = 48;
/// Bytes that are read at once, at most.
const INPUT_BYTES: usize = 256 << 10;
/// Pieces of one vectored write, at most (`IOV_MAX`).
const PIECES_MAX: usize = 1024;
/// Tag that stands for none.
const NO_TAG: u32 = u32::MAX;
const IMMEDIATE: u8 = 0x40;
const FINAL: u8 = 0x80;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
/// Attribute of a task that goes in any order with others.
const SIMPLE: u8 = 0x01;
/// Bit of a Data-In PDU that carries the command's status.
const HAS_STATUS: u8 = 0x01;
/// Flags of a login request: from the operational stage to full feature phase at once.
const LOGIN_FLAGS: u8 = 0x87;
const LOGIN_ROUNDS_MAX: usize = 8;
/// News about the unit that a new session may be told before it is served.
const NEWS_MAX: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);
const TEST_UNIT_READY: [u8; 16] = [0; 16];
/// Data of what has none.
const NOTHING: &[u8] = &[];

/// Keys that are offered at the login, beside the lengths.
const OFFERS: [(&str, &str); 9] = [
    ("SessionType", "Normal"),
    ("HeaderDigest", "None"),
    ("DataDigest", "None"),
    ("InitialR2T", "No"),
    ("ImmediateData", "Yes"),
    ("MaxConnections", "1"),
    ("MaxOutstandingR2T", "1"),
    ("ErrorRecoveryLevel", "0"),
    ("DefaultTime2Retain", "0"),
];

/// Number that the next session goes by: one that another session still has would end that.
static NEXT_SESSION: AtomicU32 = AtomicU32::new(1);

/// Place of a disk in the network.
#[derive(Clone, Debug)]
pub struct Place {
    /// Address that the target listens at.
    pub portal: SocketAddr,
    /// Name of the target.
    pub target: String,
    /// Number of the unit.
    pub lun: u8,
}

/// One read or write of whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// True for a write.
    pub is_write: bool,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u32,
}

impl Request {
    /// Bytes that the request writes, a part of `data`, which is at least as long.
    pub fn content(self, data: &[u8]) -> &[u8] {
        let length = self.bytes as usize;
        let start = self.offset as usize % (data.len() - length + 1);
        &data[start..start + length]
    }

    /// Command that asks for it: READ(16) or WRITE(16).
    fn cdb(self) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[0] = if self.is_write { 0x8A } else { 0x88 };
        cdb[2..10].copy_from_slice(&(self.offset / u64::from(BLOCK_BYTES)).to_be_bytes());
        cdb[10..14].copy_from_slice(&(self.bytes / BLOCK_BYTES).to_be_bytes());
        cdb
    }
}

/// Lengths that hold for a session.
#[derive(Clone, Copy, Debug)]
struct Agreed {
    /// True when no data go unasked but those in a command.
    initial_r2t: bool,
    /// True when a command may carry data.
    immediate_data: bool,
    /// Bytes that go unasked for one command, at most.
    first_burst: usize,
    /// Bytes of a data segment that the target takes, at most.
    send_max: usize,
}

/// Values before anything is agreed (RFC 7143, section 13).
impl Default for Agreed {
    fn default() -> Agreed {
        Agreed { initial_r2t: true, immediate_data: true, first_burst: 65_536, send_max: 8192 }
    }
}

impl Agreed {
    /// Takes the target's answers.
    fn take(&mut self, answers: &Keys) {
        let number = |name: &str| answers.get(name).and_then(|value| value.parse::<usize>().ok());
        let is_yes = |name: &str| answers.get(name).map(|value| value == "Yes");
        self.initial_r2t = is_yes("InitialR2T").unwrap_or(self.initial_r2t);
        self.immediate_data = is_yes("ImmediateData").unwrap_or(self.immediate_data);
        self.first_burst = number("FirstBurstLength").unwrap_or(self.first_burst);
        self.send_max = number("MaxRecvDataSegmentLength").unwrap_or(self.send_max).max(BLOCK_BYTES as usize);
    }

    /// Bytes of a write that go in its command.
    fn immediate(&self, bytes: usize) -> usize {
        if self.immediate_data { bytes.min(self.first_burst).min(self.send_max) } else { 0 }
    }

    /// Bytes of a write that go unasked, those in its command among them.
    fn unasked(&self, bytes: usize) -> usize {
        if self.initial_r2t { self.immediate(bytes) } else { bytes.min(self.first_burst) }
    }
}

/// Headers and data that go out together.
#[derive(Default)]
struct Batch<'a>(Vec<([u8; HEADER_BYTES], &'a [u8])>);

impl Batch<'_> {
    fn send(&self, stream: &mut TcpStream) -> Result<(), String> {
        let pieces = self.0.iter().flat_map(|(head, data)| [IoSlice::new(head), IoSlice::new(data)]);
        let mut pieces: Vec<IoSlice<'_>> = pieces.filter(|piece| !piece.is_empty()).collect();
        let mut rest = &mut pieces[..];
        while !rest.is_empty() {
            let count = rest.len().min(PIECES_MAX);
            match stream.write_vectored(&rest[..count]) {
                Ok(0) => return Err("the target takes nothing more".to_string()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("to the target: {error}")),
            }
        }
        Ok(())
    }
}

/// Bytes that came and were not looked at yet.
struct Input {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Reads more; what is there already moves to the front, less than a header.
    fn fill(&mut self) -> Result<(), String> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err("the target closed the connection".to_string()),
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("from the target: {error}")),
            }
        }
    }

    /// True when a header has come whole.
    fn has_header(&self) -> bool {
        self.end - self.start >= HEADER_BYTES
    }

    /// Next PDU, whose data are not taken yet.
    fn header(&mut self) -> Result<Pdu, String> {
        while !self.has_header() {
            self.fill()?;
        }
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&self.buffer[self.start..self.start + HEADER_BYTES]);
        self.start += HEADER_BYTES;
        Ok(Pdu::new(header))
    }

    /// Takes the data of a PDU, piece by piece, and the padding behind them.
    fn data(&mut self, pdu: &Pdu, mut seen: impl FnMut(&[u8])) -> Result<(), String> {
        let length = data_bytes(pdu);
        let (mut data, mut rest) = (length, length.next_multiple_of(4));
        while rest > 0 {
            if self.start == self.end {
                self.fill()?;
            }
            let count = rest.min(self.end - self.start);
            seen(&self.buffer[self.start..self.start + count.min(data)]);
            self.start += count;
            data -= count.min(data);
            rest -= count;
        }
        Ok(())
    }
}

/// Bytes of the data segment of a PDU.
fn data_bytes(pdu: &Pdu) -> usize {
    (pdu.word(4) & 0x00FF_FFFF) as usize
}

/// Request that is under way.
#[derive(Clone, Copy)]
struct Flight {
    request: Request,
    begun: Instant,
    /// Bytes that came for it.
    received: u64,
}

/// Session with a target.
pub struct Initiator {
    input: Input,
    lun: u64,
    agreed: Agreed,
    /// Number of the next command, and of the last one that the target takes now.
    command: u32,
    last_command: u32,
    /// Number of the next response.
    response: u32,
}

impl Initiator {
    /// Logs in and takes the news that the session is new.
    pub fn log_in(place: &Place) -> Result<Initiator, String> {
        let stream = TcpStream::connect(place.portal).map_err(|error| format!("{}: {error}", place.portal))?;
        stream.set_nodelay(true).map_err(text)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        let mut initiator = Initiator {
            input: Input { stream, buffer: vec![0; INPUT_BYTES], start: 0, end: 0 },
            lun: u64::from(place.lun) << 48,
            agreed: Agreed::default(),
            command: 1,
            last_command: 1,
            response: 0,
        };
        initiator.negotiate(&place.target)?;
        for _ in 0..NEWS_MAX {
            if initiator.control(TEST_UNIT_READY, 0)?.0 == 0 {
                return Ok(initiator);
            }
        }
        Err(format!("{} does not become ready", place.target))
    }

    /// Does the login: the operational stage only, in as many rounds as the target wants.
    fn negotiate(&mut self, target: &str) -> Result<(), String> {
        let session = NEXT_SESSION.fetch_add(1, Ordering::Relaxed) & 0x00FF_FFFF;
        let mut offers = Keys::default();
        offers.push("InitiatorName", NAME);
        offers.push("TargetName", target);
        OFFERS.iter().for_each(|(name, value)| offers.push(name, *value));
        offers.push("MaxRecvDataSegmentLength", SEGMENT_BYTES.to_string());
        offers.push("MaxBurstLength", BURST_BYTES.to_string());
        offers.push("FirstBurstLength", SEGMENT_BYTES.to_string());
        let mut words = offers.encode();
        for _ in 0..LOGIN_ROUNDS_MAX {
            let length = words.len() as u32;
            words.resize(words.len().next_multiple_of(4), 0);
            let head = Outgoing::new(opcode::LOGIN | IMMEDIATE, LOGIN_FLAGS, 0).word(4, length).word(8, 0x8000_0000 | session);
            let head = head.word(24, self.command).word(28, self.response).header;
            Batch(vec![(head, &words[..])]).send(&mut self.input.stream)?;
            let answer = self.input.header()?;
            let mut keys = Vec::new();
            self.input.data(&answer, |bytes| keys.extend_from_slice(bytes))?;
            if answer.opcode() != opcode::LOGIN_RESPONSE || answer.half(36) != 0 {
                return Err(format!("the login to {target} is refused: {:#06x}", answer.half(36)));
            }
            let answers = Keys::parse(&keys).map_err(|error| format!("{target} answers the login by what is no text: {error:?}"))?;
            self.agreed.take(&answers);
            self.note(&answer, true);
            if answer.flags() & LOGIN_FLAGS == LOGIN_FLAGS {
                return Ok(());
            }
            words.clear();
        }
        Err(format!("the login to {target} does not end"))
    }

    /// Notes the numbers that a PDU carries.
    fn note(&mut self, pdu: &Pdu, has_status: bool) {
        self.last_command = pdu.word(32);
        if has_status {
            self.response = pdu.word(24).wrapping_add(1);
        }
    }

    /// True when the target takes another command now.
    fn may_send(&self) -> bool {
        self.last_command.wrapping_sub(self.command) as i32 >= 0
    }

    /// Head of the next command, which carries `data` bytes and expects `expected` to be moved.
    fn head(&mut self, tag: u32, flags: u8, [data, expected]: [u32; 2], cdb: &[u8; 16]) -> [u8; HEADER_BYTES] {
        let pdu = Outgoing::new(opcode::SCSI_COMMAND, flags | SIMPLE, tag).lun(self.lun).word(4, data).word(20, expected);
        let mut head = pdu.word(24, self.command).word(28, self.response).header;
        head[32..].copy_from_slice(cdb);
        self.command = self.command.wrapping_add(1);
        head
    }

    /// Carries out a command that writes nothing and reads `expected` bytes at most: its status, and what it read.
    pub fn control(&mut self, cdb: [u8; 16], expected: u32) -> Result<(u8, Vec<u8>), String> {
        let flags = if expected > 0 { FINAL | READS } else { FINAL };
        let head = self.head(0, flags, [0, expected], &cdb);
        Batch(vec![(head, NOTHING)]).send(&mut self.input.stream)?;
        let mut data = Vec::new();
        loop {
            let pdu = self.answer()?;
            let is_data = pdu.opcode() == opcode::DATA_IN;
            self.input.data(&pdu, |bytes| {
                if is_data {
                    data.extend_from_slice(bytes)
                }
            })?;
            if !is_data || pdu.flags() & HAS_STATUS != 0 {
                return Ok((pdu.byte(3), data));
            }
        }
    }

    /// Next PDU about a command, whose data are not taken yet. Pings are answered.
    fn answer(&mut self) -> Result<Pdu, String> {
        loop {
            let pdu = self.input.header()?;
            let (kind, flags) = (pdu.opcode(), pdu.flags());
            self.note(&pdu, kind == opcode::SCSI_RESPONSE || (kind == opcode::DATA_IN && flags & HAS_STATUS != 0));
            match kind {
                opcode::DATA_IN | opcode::SCSI_RESPONSE | opcode::R2T => return Ok(pdu),
                opcode::NOP_IN => self.answer_ping(&pdu)?,
                other => return Err(format!("the target sent a PDU {other:#04x} that nobody asked for")),
            }
        }
    }

    fn answer_ping(&mut self, ping: &Pdu) -> Result<(), String> {
        self.input.data(ping, |_| ())?;
        if ping.word(20) == NO_TAG {
            return Ok(());
        }
        let pdu = Outgoing::new(opcode::NOP_OUT | IMMEDIATE, FINAL, NO_TAG).lun(ping.lun()).word(20, ping.word(20));
        let head = pdu.word(24, self.command).word(28, self.response).header;
        Batch(vec![(head, NOTHING)]).send(&mut self.input.stream)
    }

    /// Adds a request to what goes out, with the data that go unasked.
    fn begin<'a>(&mut self, tag: u32, request: Request, data: &'a [u8], batch: &mut Batch<'a>) {
        if !request.is_write {
            let head = self.head(tag, FINAL | READS, [0, request.bytes], &request.cdb());
            return batch.0.push((head, NOTHING));
        }
        let (content, length) = (request.content(data), request.bytes as usize);
        let (immediate, unasked) = (self.agreed.immediate(length), self.agreed.unasked(length));
        let flags = if unasked == immediate { FINAL | WRITES } else { WRITES };
        let head = self.head(tag, flags, [immediate as u32, request.bytes], &request.cdb());
        batch.0.push((head, &content[..immediate]));
        if unasked > immediate {
            self.add_data([tag, NO_TAG], immediate..unasked, content, batch);
        }
    }

    /// Adds Data-Out PDUs of one sequence.
    fn add_data<'a>(&self, [tag, transfer]: [u32; 2], range: Range<usize>, content: &'a [u8], batch: &mut Batch<'a>) {
        for (number, start) in range.clone().step_by(self.agreed.send_max).enumerate() {
            let end = (start + self.agreed.send_max).min(range.end);
            let flags = if end == range.end { FINAL } else { 0 };
            let pdu = Outgoing::new(opcode::DATA_OUT, flags, tag).lun(self.lun).word(4, (end - start) as u32).word(20, transfer);
            let head = pdu.word(28, self.response).word(36, number as u32).word(40, start as u32).header;
            batch.0.push((head, &content[start..end]));
        }
    }

    /// Runs requests, at most `depth` in flight, until there are no more and all have ended. Writes write their part of `data`
    /// ([`Request::content`]); `seen` gets what reads read: the request, the offset in it, and the bytes, piece by piece.
    pub fn run(
        &mut self,
        depth: usize,
        data: &[u8],
        mut requests: impl Iterator<Item = Request>,
        mut seen: impl FnMut(&Request, u64, &[u8]),
    ) -> Result<Stream, String> {
        let mut flights: Vec<Option<Flight>> = vec![None; depth.max(1)];
        let mut free: Vec<usize> = (0..flights.len()).rev().collect();
        let (mut stream, mut is_over) = (Stream::default(), false);
        loop {
            let mut batch = Batch::default();
            while !is_over && self.may_send() {
                let Some(slot) = free.pop() else { break };
                let Some(request) = requests.next() else {
                    is_over = true;
                    free.push(slot);
                    break;
                };
                flights[slot] = Some(Flight { request, begun: Instant::now(), received: 0 });
                self.begin(slot as u32, request, data, &mut batch);
            }
            batch.send(&mut self.input.stream)?;
            if is_over && free.len() == flights.len() {
                return Ok(stream);
            }
            // One answer at least, and what came with it.
            loop {
                if let Some((slot, flight)) = self.advance(&mut flights, data, &mut seen)? {
                    stream.note(u64::from(flight.request.bytes), flight.begun);
                    free.push(slot);
                }
                if !self.input.has_header() {
                    break;
                }
            }
        }
    }

    /// Takes one PDU; gives the request that ended with it, and its place.
    fn advance(
        &mut self,
        flights: &mut [Option<Flight>],
        data: &[u8],
        seen: &mut impl FnMut(&Request, u64, &[u8]),
    ) -> Result<Option<(usize, Flight)>, String> {
        let pdu = self.answer()?;
        let slot = pdu.task_tag() as usize;
        let flight = flights.get_mut(slot).and_then(Option::as_mut).ok_or_else(|| format!("an answer to no request ({slot:#x})"))?;
        let request = flight.request;
        match pdu.opcode() {
            opcode::R2T => {
                let (start, length) = (pdu.word(40) as usize, pdu.word(44) as usize);
                if !request.is_write || start + length > request.bytes as usize {
                    return Err("the target asks for data that there are not".to_string());
                }
                let mut batch = Batch::default();
                self.add_data([slot as u32, pdu.word(20)], start..start + length, request.content(data), &mut batch);
                batch.send(&mut self.input.stream)?;
                return Ok(None);
            }
            opcode::DATA_IN => {
                let mut at = u64::from(pdu.word(40));
                self.input.data(&pdu, |bytes| {
                    seen(&request, at, bytes);
                    at += bytes.len() as u64;
                })?;
                flight.received += data_bytes(&pdu) as u64;
                if pdu.flags() & HAS_STATUS == 0 {
                    return Ok(None);
                }
            }
            _ => self.input.data(&pdu, |_| ())?,
        }
        let ended = *flight;
        flights[slot] = None;
        // Byte 2 is the response of the target, byte 3 the status of the command; Data-In has none of the first.
        let has_failed = pdu.byte(3) != 0 || (pdu.opcode() == opcode::SCSI_RESPONSE && pdu.byte(2) != 0);
        if has_failed || (!request.is_write && ended.received != u64::from(request.bytes)) {
            return Err(format!("{request:?} failed: status {:#04x}, {} bytes came", pdu.byte(3), ended.received));
        }
        Ok(Some((slot, ended)))
    }
}
