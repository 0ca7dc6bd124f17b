//! What comes over the network from initiators: streams of iSCSI, from their logins on, to a target without a socket whose disk is in memory.
//!
//! An input is a byte of [`how`] and, where that says so, the bytes of a connection as they come; else records, each a PDU: a byte that says what is
//! made right of it (lengths, digests and numbers, where a mutation would stop at the door), the header, two bytes for the length of the data, the
//! data. What was answered GOOD is compared with a model, what is read with what was written.

use crate::blocks::{BLOCK, BLOCKS, Blocks, Command};
use abd::Abd;
use exec::Mutex;
use iscsi::ram::{Held, RamStore, RamUnit};
use iscsi::testing::{Bench, has_action, usages};
use iscsi::{Access, Account, Body, Chap, Disk, Done, Extent, Geometry, Grant, Identity, LogicalUnit, Outgoing, Run, Targets, opcode};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

const TARGET: &str = "iqn.2026-11.example:fuzz";
/// Bytes of a header, and of a record without its data.
const HEADER_BYTES: usize = 48;
const RECORD_BYTES: usize = HEADER_BYTES + 3;
/// Number of PDUs of an input.
const PDUS_MAX: usize = 200;
/// Bytes that may come in pieces, which cost time.
const PIECES_BYTES: usize = 4096;
/// Number of tasks of one connection, at most: those of the window, which never becomes smaller, beside as many as there are when no immediate one is
/// taken any more.
const TASKS_MAX: usize = 128 + 160;
/// Bytes of written data that one connection keeps, at most: its budget, and what comes along with commands that wait.
const KEPT_BYTES_MAX: usize = (32 << 20) + TASKS_MAX * (256 << 10);
/// Number of times that the disk answers everything, until nothing waits any more.
const TURNS_MAX: usize = 4 * PDUS_MAX;
/// Bytes of the longest request that a unit gets.
const REQUEST_BYTES_MAX: u64 = 0xFFFF * BLOCK as u64;
const FINAL: u8 = 0x80;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
const STATUS: u8 = 0x01;

/// Bits of the first byte of an input.
mod how {
    /// Bytes as they come, without records.
    pub(super) const RAW: u8 = 0x01;
    /// Logged in before the first record.
    pub(super) const LOGGED_IN: u8 = 0x02;
    /// Logged in with digests of headers, and of data.
    pub(super) const HEADER_DIGEST: u8 = 0x04;
    pub(super) const DATA_DIGEST: u8 = 0x08;
    /// Logged in without unsolicited data, or with the shortest data segments.
    pub(super) const INITIAL_R2T: u8 = 0x10;
    pub(super) const SHORT: u8 = 0x20;
    /// Disk that answers late: what is stored when something is aborted is not known.
    pub(super) const LATE: u8 = 0x40;
}

/// Bits of the first byte of a record.
mod fix {
    /// From the second connection.
    pub(super) const SECOND: u8 = 0x01;
    /// The length of the data segment, the number of the command, the transfer and its place, are the header's own.
    pub(super) const OWN_LENGTH: u8 = 0x02;
    pub(super) const OWN_NUMBER: u8 = 0x04;
    pub(super) const OWN_TRANSFER: u8 = 0x08;
    /// Digests are wrong.
    pub(super) const BAD_DIGEST: u8 = 0x10;
    /// In pieces of a few bytes.
    pub(super) const PIECES: u8 = 0x20;
    /// The disk answers first, where it is late.
    pub(super) const ANSWERS: u8 = 0x40;
}

/// Rights: anybody may do everything, `chap` when it proves who it is.
struct Rights;

impl Access for Rights {
    fn target(&self, initiator: &str, _: IpAddr, _: &str) -> Option<Grant> {
        let account = |name: &str, secret: &[u8]| Account { name: name.into(), secret: secret.to_vec() };
        let chap = Chap { initiator: account("me", b"a secret of mine"), target: Some(account("you", b"another, of yours")) };
        Some(Grant { chap: (initiator == "chap").then_some(chap), is_read_only: initiator == "reader" })
    }

    fn discovery(&self, initiator: &str, peer: IpAddr) -> Option<Grant> {
        self.target(initiator, peer, "")
    }
}

/// Disk in memory that checks what it is asked for, and may answer late.
struct Watched {
    disk: RamUnit,
    held: Held,
}

impl Watched {
    fn check(&self, extent: Extent) {
        let end = extent.at.checked_add(extent.bytes).expect("an extent has an end");
        assert!(end <= self.geometry().bytes() && extent.bytes <= REQUEST_BYTES_MAX, "{extent:?} was asked for");
    }

    fn answer_all(&self) {
        self.held.take().into_iter().for_each(|answer| answer());
    }

    fn bytes(&self) -> Vec<u8> {
        let found = Arc::new(Mutex::new(Vec::new()));
        let into = found.clone();
        let extent = Extent { at: 0, bytes: (BLOCK * BLOCKS) as u64 };
        self.disk.read(extent, Box::new(move |data| *into.lock() = data.map(|data| data.to_vec()).unwrap_or_default()));
        std::mem::take(&mut *found.lock())
    }
}

impl LogicalUnit for Watched {
    fn identity(&self) -> Identity {
        self.disk.identity()
    }
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn read(&self, extent: Extent, done: Done<Abd>) {
        self.check(extent);
        self.disk.read(extent, self.held.keep(done));
    }
    fn write(&self, at: u64, data: Abd, is_durable: bool, done: Done<()>) {
        self.check(Extent { at, bytes: data.len() as u64 });
        self.disk.write(at, data, is_durable, self.held.keep(done));
    }
    fn unmap(&self, extents: Vec<Extent>, done: Done<()>) {
        extents.iter().for_each(|extent| self.check(*extent));
        self.disk.unmap(extents, self.held.keep(done));
    }
    fn write_zeroes(&self, extent: Extent, may_unmap: bool, is_durable: bool, done: Done<()>) {
        self.check(extent);
        self.disk.write_zeroes(extent, may_unmap, is_durable, self.held.keep(done));
    }
    fn flush(&self, done: Done<()>) {
        self.disk.flush(self.held.keep(done));
    }
    fn status(&self, extent: Extent, done: Done<Vec<Run>>) {
        self.check(extent);
        self.disk.status(extent, self.held.keep(done));
    }
}

fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    header[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn set(header: &mut [u8; HEADER_BYTES], at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn kind(header: &[u8; HEADER_BYTES]) -> u8 {
    header[0] & 0x3F
}

/// One connection, as its initiator knows it.
struct Peer {
    bench: Bench,
    /// Number of the next command, and of the last response.
    command: u32,
    response: Option<u32>,
    /// End of the window of commands.
    window: Option<u32>,
    /// Last transfer that was asked for.
    transfer: Option<Outgoing>,
    open: HashMap<u32, Command>,
    good: usize,
}

impl Peer {
    fn new(targets: &Arc<Targets>) -> Peer {
        let bench = Bench::new(targets);
        Peer { bench, command: 1, response: None, window: None, transfer: None, open: HashMap::new(), good: 0 }
    }

    /// Logs in and takes the first unit attention.
    fn log_in(&mut self, how: u8, isid: u8, blocks: &mut Option<Blocks>) {
        let digest = |bit: u8| if how & bit != 0 { "CRC32C" } else { "None" };
        let text = format!(
            "InitiatorName=a\0TargetName={TARGET}\0HeaderDigest={}\0DataDigest={}\0InitialR2T={}\0FirstBurstLength=4096\0MaxRecvDataSegmentLength={}\0",
            digest(how::HEADER_DIGEST),
            digest(how::DATA_DIGEST),
            if how & how::INITIAL_R2T != 0 { "Yes" } else { "No" },
            if how & how::SHORT != 0 { 512 } else { 65_536 },
        );
        let mut header = [0; HEADER_BYTES];
        (header[0], header[1], header[8], header[13]) = (0x40 | opcode::LOGIN, 0x87, 0x80, isid);
        self.send(0, header, text.as_bytes(), blocks);
        assert!(self.bench.is_full_feature(), "a login in one step");
        let mut header = [0; HEADER_BYTES];
        (header[0], header[1]) = (opcode::SCSI_COMMAND, FINAL);
        set(&mut header, 16, 0xF000_0000);
        self.send(0, header, &[], blocks);
    }

    /// Sends a PDU, and looks at what comes back.
    fn send(&mut self, fix: u8, mut header: [u8; HEADER_BYTES], data: &[u8], blocks: &mut Option<Blocks>) {
        if fix & fix::OWN_LENGTH == 0 {
            let [_, a, b, c] = (data.len() as u32).to_be_bytes();
            header[4..8].copy_from_slice(&[0, a, b, c]);
        } else if word(&header, 4) as usize != data.len() {
            // The target cuts the stream elsewhere: what it is told from here on is not known.
            *blocks = None;
        }
        if fix & fix::OWN_NUMBER == 0 && kind(&header) != opcode::DATA_OUT {
            set(&mut header, 24, self.command);
        }
        if let (0, opcode::DATA_OUT, Some(transfer)) = (fix & fix::OWN_TRANSFER, kind(&header), &self.transfer) {
            [16, 20, 40].into_iter().for_each(|at| set(&mut header, at, word(&transfer.header, at)));
        }
        let tag = word(&header, 16);
        match kind(&header) {
            opcode::SCSI_COMMAND => {
                let command = || {
                    let mut cdb = [0; 16];
                    cdb.copy_from_slice(&header[32..48]);
                    let (expected, reads) = (word(&header, 20) as usize, header[1] & READS != 0);
                    Command { cdb, expected, reads, data: data.to_vec(), reply: Vec::new() }
                };
                // One with the tag of another that is not over is refused.
                self.open.entry(tag).or_insert_with(command);
            }
            opcode::DATA_OUT => {
                if let Some(command) = self.open.get_mut(&tag) {
                    command.data.extend(data);
                }
            }
            _ => {}
        }
        let (header_digest, data_digest) = self.bench.digests();
        let mut bytes = header.to_vec();
        let broken = u32::from(fix & fix::BAD_DIGEST != 0);
        if header_digest {
            bytes.extend((crc32c::crc32c(&bytes) ^ broken).to_le_bytes());
        }
        let begin = bytes.len();
        bytes.extend(data);
        bytes.resize(begin + data.len().next_multiple_of(4), 0);
        if data_digest && !data.is_empty() {
            bytes.extend((crc32c::crc32c(&bytes[begin..]) ^ broken).to_le_bytes());
        }
        if fix & fix::PIECES != 0 && bytes.len() <= PIECES_BYTES {
            bytes.chunks(7).for_each(|piece| self.bench.take(piece));
        } else {
            self.bench.take(&bytes);
        }
        self.settle(blocks);
    }

    /// Looks at what came, and at what the target keeps.
    fn settle(&mut self, blocks: &mut Option<Blocks>) {
        for pdu in self.bench.sent() {
            self.receive(pdu, blocks);
        }
        let (tags, kept) = self.bench.census();
        assert!(tags.len() <= TASKS_MAX && kept <= KEPT_BYTES_MAX, "{} tasks keep {kept} bytes", tags.len());
        self.open.retain(|tag, _| tags.contains(tag));
    }

    fn receive(&mut self, pdu: Outgoing, blocks: &mut Option<Blocks>) {
        let (header, tag) = (&pdu.header, word(&pdu.header, 16));
        let has_status = kind(header) != opcode::R2T && (kind(header) != opcode::DATA_IN || header[1] & STATUS != 0);
        if has_status {
            let number = word(header, 24);
            assert!(self.response.is_none_or(|last| number == last.wrapping_add(1)), "responses are numbered");
            self.response = Some(number);
        }
        if self.bench.is_full_feature() {
            let (next, last) = (word(header, 28), word(header, 32));
            let is_behind = |before: u32| (last.wrapping_sub(before) as i32) < 0;
            assert!(!self.window.is_some_and(is_behind), "the window of commands became smaller");
            (self.command, self.window) = (next, Some(last));
        }
        match kind(header) {
            opcode::DATA_IN => {
                if let Some(command) = self.open.get_mut(&tag) {
                    assert_eq!(word(header, 40) as usize, command.reply.len(), "data come in order");
                    command.reply.extend(pdu.body.to_vec());
                }
            }
            opcode::R2T => self.transfer = Some(pdu.clone()),
            _ => {}
        }
        if matches!(kind(header), opcode::SCSI_RESPONSE | opcode::DATA_IN)
            && has_status
            && let Some(command) = self.open.remove(&tag)
            && header[3] == 0
        {
            self.good += 1;
            if let Some(blocks) = blocks {
                blocks.done(&command);
            }
        }
    }
}

/// Target, and two connections to it.
struct Scene {
    peers: [Peer; 2],
    disk: Arc<Watched>,
    /// None when what is stored cannot be known.
    blocks: Option<Blocks>,
}

impl Scene {
    fn new(how: u8) -> Scene {
        let targets = Targets::new(Arc::new(Rights));
        let geometry =
            Geometry { blocks: BLOCKS as u64, block_bytes: BLOCK as u32, physical_exponent: 3, is_thin: true, is_read_only: false };
        let is_late = how & how::LATE != 0;
        let disk = Arc::new(Watched { disk: RamUnit::new("fuzz", geometry), held: Held::default() });
        if is_late {
            disk.held.begin();
        }
        let target = targets.add(TARGET).expect("the name is free");
        assert!(target.attach(0, Arc::new(Disk::new(disk.clone(), Arc::new(RamStore::default()), None))), "the number is free");
        Scene { peers: [Peer::new(&targets), Peer::new(&targets)], disk, blocks: (!is_late).then(Blocks::new) }
    }

    fn run(&mut self) {
        for peer in &mut self.peers {
            peer.bench.run();
            peer.settle(&mut self.blocks);
        }
    }

    fn record(&mut self, fix: u8, header: [u8; HEADER_BYTES], data: &[u8]) {
        if fix & fix::ANSWERS != 0 {
            self.disk.answer_all();
            self.run();
        }
        self.peers[usize::from(fix & fix::SECOND)].send(fix, header, data, &mut self.blocks);
        self.run();
    }

    /// Cuts both connections, and compares what is stored; gives the number of commands that were answered GOOD.
    fn end(mut self) -> usize {
        let mut turns = 0;
        while self.peers.iter_mut().map(|peer| peer.bench.cut()).filter(|is_over| *is_over).count() < self.peers.len() {
            self.disk.answer_all();
            turns += 1;
            assert!(turns < TURNS_MAX, "what is cut off ends once the disk has answered");
        }
        if let Some(blocks) = &self.blocks {
            assert!(self.disk.bytes() == blocks.bytes(), "what was answered GOOD, and nothing else, is stored");
        }
        self.peers.iter().map(|peer| peer.good).sum()
    }
}

/// Feeds an input; gives the number of commands that were answered GOOD.
fn play(data: &[u8]) -> usize {
    let Some((how, mut rest)) = data.split_first() else { return 0 };
    let mut scene = Scene::new(*how);
    if how & how::RAW != 0 {
        // Nobody follows what it says.
        scene.blocks = None;
        rest.chunks(1000).for_each(|piece| scene.peers[0].bench.take(piece));
        return scene.end();
    }
    if how & how::LOGGED_IN != 0 {
        for (isid, peer) in (1..).zip(&mut scene.peers) {
            peer.log_in(*how, isid, &mut scene.blocks);
        }
    }
    for _ in 0..PDUS_MAX {
        let Some((head, behind)) = rest.split_first_chunk::<RECORD_BYTES>() else { break };
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&head[1..=HEADER_BYTES]);
        let length = usize::from(u16::from_be_bytes([head[RECORD_BYTES - 2], head[RECORD_BYTES - 1]])).min(behind.len());
        let (data, after) = behind.split_at(length);
        scene.record(head[0], header, data);
        rest = after;
    }
    scene.end()
}

/// Feeds an input: whatever comes, nothing panics or goes on for ever, memory has its limits, and a disk has what was acknowledged.
pub fn streams(data: &[u8]) {
    play(data);
}

/// A record of an input.
fn record(fix: u8, pdu: &Outgoing) -> Vec<u8> {
    let data = pdu.body.to_vec();
    [&[fix][..], &pdu.header, &(data.len() as u16).to_be_bytes(), &data[..]].concat()
}

/// A SCSI command.
fn command(tag: u32, flags: u8, expected: u32, cdb: &[u8], data: Vec<u8>) -> Outgoing {
    let mut pdu = Outgoing::new(opcode::SCSI_COMMAND, flags, tag).word(20, expected).with(Body::Bytes(data));
    pdu.header[32..32 + cdb.len()].copy_from_slice(cdb);
    pdu
}

/// A piece of written data, by its number and place in the transfer.
fn data_out(tag: u32, (number, offset): (u32, u32), flags: u8, bytes: u8, length: usize) -> Outgoing {
    let pdu = Outgoing::new(opcode::DATA_OUT, flags, tag).word(20, u32::MAX).word(36, number).word(40, offset);
    pdu.with(Body::Bytes(vec![bytes; length]))
}

/// Descriptor block with a first block and a number of blocks where READ has them.
fn descriptor(usage: &[u8], first: u8, blocks: u8) -> Vec<u8> {
    let mut cdb = vec![0; usage.len()];
    cdb[0] = usage[0];
    if has_action(usage[0]) {
        cdb[1] = usage[1];
    }
    let (place, count) = match usage.len() {
        6 => (3, 4),
        10 => (5, 8),
        12 => (5, 9),
        _ => (9, 13),
    };
    (cdb[place], cdb[count]) = (first, blocks);
    cdb
}

/// An input of records.
fn input(how: u8, pdus: &[(u8, Outgoing)]) -> Vec<u8> {
    pdus.iter().fold(vec![how], |input, (fix, pdu)| [input, record(*fix, pdu)].concat())
}

/// WRITE(10) of two blocks, with so many bytes of its data.
fn write(tag: u32, data: usize) -> Outgoing {
    command(tag, FINAL | WRITES, 1024, &descriptor(&[0x2A; 10], 5, 2), vec![7; data])
}

/// READ(10) of these blocks and some beside them.
fn read(tag: u32) -> Outgoing {
    command(tag, FINAL | READS, 4096, &descriptor(&[0x28; 10], 4, 8), Vec::new())
}

/// Every command: with two blocks, with one, with a list; of a disk that answers late, and looked at by another session.
fn command_seeds(usage: &[u8]) -> [Vec<u8>; 5] {
    let (two, one) = (descriptor(usage, 5, 2), descriptor(usage, 5, 1));
    // A pair that is compared and written; descriptors of what is unmapped.
    let pair = [vec![0; 512], vec![9; 512]].concat();
    let mut list = vec![0; 24];
    (list[1], list[3], list[15], list[19]) = (22, 16, 4, 3);
    let sends = |expected: u32, cdb: &[u8], data: Vec<u8>| (0, command(2, FINAL | WRITES, expected, cdb, data));
    [
        input(how::LOGGED_IN, &[sends(1024, &two, pair.clone()), (0, read(3))]),
        input(how::LOGGED_IN, &[(0, write(1, 1024)), (0, command(2, FINAL | READS, 4096, &two, Vec::new())), (0, read(3))]),
        input(how::LOGGED_IN | how::LATE, &[(0, write(1, 1024)), sends(512, &one, vec![3; 512]), (fix::ANSWERS, read(3))]),
        input(how::LOGGED_IN, &[sends(1024, &one, pair), (fix::SECOND, read(1))]),
        input(how::LOGGED_IN, &[sends(24, &descriptor(usage, 0, 24), list), (0, read(3))]),
    ]
}

/// Data that are asked for, that come along, and that come without being asked for, in and out of order.
fn transfer_seeds(how: u8) -> Vec<Vec<u8>> {
    let mut seeds = vec![
        input(how, &[(0, write(1, 0)), (0, data_out(1, (0, 0), FINAL, 8, 1024)), (0, read(2))]),
        input(how, &[(0, write(1, 512)), (fix::PIECES, data_out(1, (0, 512), FINAL, 8, 512)), (0, read(2))]),
    ];
    for second in [(1, 512), (0, 512), (1, 0), (27, 512)] {
        let begin = command(1, WRITES, 1024, &descriptor(&[0x2A; 10], 5, 2), Vec::new());
        let piece = |place, flags, bytes| (fix::OWN_TRANSFER, data_out(1, place, flags, bytes, 512));
        seeds.push(input(how, &[(0, begin), piece((0, 0), 0, 8), piece(second, FINAL, 9), (0, read(2))]));
    }
    seeds
}

/// Text, with spaces for what separates keys.
fn text(words: &str) -> Body {
    Body::Bytes(words.replace(' ', "\0").into_bytes())
}

/// Task management, text, pings, logouts.
fn session_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for function in 1..=9 {
        let manage = Outgoing::new(0x40 | opcode::TASK_MANAGEMENT, FINAL | function, 9).word(20, 1);
        let data = (0, data_out(1, (0, 0), FINAL, 8, 1024));
        seeds.push(input(how::LOGGED_IN, &[(0, write(1, 0)), (0, manage.clone()), data, (0, read(2))]));
        seeds.push(input(how::LOGGED_IN | how::LATE, &[(0, write(1, 1024)), (fix::SECOND, manage), (fix::ANSWERS, read(2))]));
    }
    let ask = |words: &str| (0, Outgoing::new(opcode::TEXT, FINAL, 5).word(20, u32::MAX).with(text(words)));
    let ping = (0, Outgoing::new(opcode::NOP_OUT, FINAL, 6).word(20, u32::MAX).with(text("ping")));
    let (leave, snack) = ((0, Outgoing::new(opcode::LOGOUT, FINAL, 7)), (0, Outgoing::new(opcode::SNACK, FINAL, 8)));
    seeds.push(input(how::LOGGED_IN, &[ask("SendTargets= "), ping, snack, ask("MaxRecvDataSegmentLength=512 "), leave]));
    seeds.push(input(0, &[(0, login(0x87, "InitiatorName=b SessionType=Discovery ")), ask("SendTargets=All ")]));
    seeds
}

fn login(flags: u8, words: &str) -> Outgoing {
    Outgoing::new(0x40 | opcode::LOGIN, flags, 1).with(text(words))
}

/// Logins: in one step, in stages, with text over several PDUs, with CHAP; and a login, a write and a read as they come.
fn login_seeds() -> Vec<Vec<u8>> {
    let names = |initiator: &str| format!("InitiatorName={initiator} TargetName={TARGET} SessionType=Normal ");
    let keys = "HeaderDigest=CRC32C,None DataDigest=None MaxBurstLength=16776192 FirstBurstLength=262144 InitialR2T=No ImmediateData=Yes \
                MaxOutstandingR2T=16 ErrorRecoveryLevel=2 DefaultTime2Wait=0 MaxConnections=8 IFMarker=No TaskReporting=RFC3720 X-a=1 ";
    let chap = |more: &str| format!("{}AuthMethod=CHAP {more}", names("chap"));
    let answer = "CHAP_N=me CHAP_R=0x00112233445566778899aabbccddeeff CHAP_I=7 CHAP_C=0b00aaQQ== ";
    let raw = [login(0x87, &names("b")).word(24, 1), write(1, 1024).word(24, 1), read(2).word(24, 2)];
    vec![
        input(0, &[(0, login(0x81, &(names("b") + "AuthMethod=CHAP,None "))), (0, login(0x87, keys)), (0, read(2)), (0, read(3))]),
        input(0, &[(0, login(0x40, &names("b"))), (0, login(0x83, keys)), (0, read(2)), (0, write(3, 1024))]),
        input(0, &[(0, login(0x01, &chap(""))), (0, login(0x01, "CHAP_A=7,5 ")), (0, login(0x81, answer))]),
        input(0, &[(0, login(0x87, &chap("CHAP_A=5 ")))]),
        raw.into_iter().fold(vec![how::RAW], |input, pdu| [input, pdu.encode(false, false)].concat()),
    ]
}

/// Inputs that make sense.
pub fn stream_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = usages().flat_map(command_seeds).collect();
    for more in [0, how::HEADER_DIGEST | how::DATA_DIGEST, how::INITIAL_R2T, how::SHORT | how::DATA_DIGEST] {
        seeds.extend(transfer_seeds(how::LOGGED_IN | more));
    }
    seeds.extend(session_seeds());
    seeds.extend(login_seeds());
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the target mutates what no target would take anyway, and finds nothing.
    #[test]
    fn seeds_are_answered_good() {
        let seeds = stream_seeds();
        let good: usize = seeds.iter().map(|seed| play(seed)).sum();
        assert!(good > seeds.len() / 2, "{good} commands of {} inputs", seeds.len());
        let kinds = seeds.iter().filter(|seed| seed[0] & how::LOGGED_IN == 0).count();
        assert!(kinds >= 6, "{kinds} begin with a login");
    }
}
