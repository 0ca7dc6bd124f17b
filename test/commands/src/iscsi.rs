//! Volumes over iSCSI, as an initiator that was written for this sees them: who may use them, that their bytes are there, and how sessions end.

use crate::world::{Failure, World, same};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const TARGET: &str = "iqn.2026-01.zirconia:tank:vol";
const INITIATOR: &str = "iqn.2026-11.example:a";
const OTHER: &str = "iqn.2026-11.example:b";
/// Time by which a daemon that can do something has done it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Status of a login that needs a proof, and of one to a target that the initiator may not see.
const UNPROVED: u16 = 0x0201;
const NOT_FOUND: u16 = 0x0203;
/// Status of a login after which an initiator tries again.
const UNAVAILABLE: u16 = 0x0301;
/// Status of a command that a reservation forbids.
const CONFLICT: u8 = 0x18;
/// Bytes that go with one command without being asked for.
const IMMEDIATE_BYTES: usize = 8192;

/// Session by hand: one command at a time.
struct Session {
    stream: TcpStream,
    number: u32,
}

fn set(header: &mut [u8; 48], at: usize, value: u32) {
    header[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Head of what came, and its data.
type Received = ([u8; 48], Vec<u8>);

impl Session {
    /// Logs in without a proof; the status of the answer where that is refused.
    fn log_in(port: u16) -> Result<Result<Session, u16>, Failure> {
        Session::log_in_as(INITIATOR, port)
    }

    fn log_in_as(initiator: &str, port: u16) -> Result<Result<Session, u16>, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut session = Session { stream, number: 1 };
        let mut header = [0; 48];
        (header[0], header[1]) = (0x43, 0x87);
        set(&mut header, 8, 0x8000_0001);
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
    fn new(port: u16) -> Result<Session, Failure> {
        Session::new_as(INITIATOR, port)
    }

    fn new_as(initiator: &str, port: u16) -> Result<Session, Failure> {
        let mut session = Session::log_in_as(initiator, port)?.map_err(|status| format!("      the login is refused: {status:#06x}"))?;
        session.command(&[0; 6], &[], 0)?;
        Ok(session)
    }

    fn send(&mut self, mut header: [u8; 48], data: &[u8]) -> Result<(), Failure> {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = [&header[..], data].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Ok(self.stream.write_all(&bytes)?)
    }

    /// Next PDU; None at the end of the connection.
    fn receive(&mut self) -> Result<Option<Received>, Failure> {
        let mut header = [0; 48];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => return Err(error.into()),
            Err(_) => return Ok(None),
        }
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(length);
        Ok(Some((header, data)))
    }

    /// Carries out a command that sends `out`, or gets `expected` bytes; gives its status and them.
    fn command(&mut self, cdb: &[u8], out: &[u8], expected: usize) -> Result<(u8, Vec<u8>), Failure> {
        let mut header = [0; 48];
        let direction = if out.is_empty() { 0x40 } else { 0x20 };
        (header[0], header[1]) = (0x01, 0x80 | if out.len() + expected == 0 { 0 } else { direction });
        set(&mut header, 16, self.number);
        set(&mut header, 20, out.len().max(expected) as u32);
        set(&mut header, 24, self.number);
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        self.send(header, out)?;
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
                // Pings and messages.
                _ => {}
            }
        }
    }

    /// Writes at a block of 512 bytes, past the disk's cache (FUA).
    fn write(&mut self, block: u32, bytes: &[u8]) -> Result<(), Failure> {
        let done = self.command(&moving(0x2A, 0x08, block, bytes.len()), bytes, 0)?;
        same("the status of a write", done.0, 0)
    }

    fn read(&mut self, block: u32, length: usize) -> Result<Vec<u8>, Failure> {
        let (status, bytes) = self.command(&moving(0x28, 0, block, length), &[], length)?;
        same("the status of a read", status, 0)?;
        Ok(bytes)
    }

    /// Status of PERSISTENT RESERVE OUT with a key, its own or a new one, kept through a loss of power.
    fn reserve_out(&mut self, action: u8, key: u64, new: u64) -> Result<u8, Failure> {
        let kept = u8::from(action == 0);
        let list = [&key.to_be_bytes()[..], &new.to_be_bytes(), &[0, 0, 0, 0, kept, 0, 0, 0]].concat();
        Ok(self.command(&[0x5F, action, 1, 0, 0, 0, 0, 0, 24, 0], &list, 0)?.0)
    }

    /// Registers, and reserves the disk so that nobody else writes.
    fn reserve(&mut self) -> Result<(), Failure> {
        same("the status of a registration", self.reserve_out(0, 0, 7)?, 0)?;
        same("the status of a reservation", self.reserve_out(1, 7, 0)?, 0)
    }

    /// Status of a write.
    fn status_of_write(&mut self) -> Result<u8, Failure> {
        Ok(self.command(&moving(0x2A, 0, 0, 512), &[1; 512], 0)?.0)
    }

    /// Waits for the end of the connection, which the target brings about.
    fn ends(mut self) -> Result<(), Failure> {
        while self.receive()?.is_some() {}
        Ok(())
    }
}

/// READ(10) or WRITE(10).
fn moving(opcode: u8, flags: u8, block: u32, length: usize) -> [u8; 10] {
    let ([a, b, c, d], [e, f]) = (block.to_be_bytes(), ((length / 512) as u16).to_be_bytes());
    [opcode, flags, a, b, c, d, 0, e, f, 0]
}

fn status_of_login(port: u16) -> Result<u16, Failure> {
    Ok(Session::log_in(port)?.err().unwrap_or(0))
}

/// Waits for something that comes by itself.
fn await_that(what: &str, mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("      {what}: not after {} s", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A port that nobody uses now.
fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// If this fails, somebody uses a disk that nobody gave them, a guest loses what it was told is on disk, or its disk goes while it uses it.
pub fn disks(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    let port = free_port()?;
    world.ok_with(("ZIRCONIA_ISCSI", Path::new(&port.to_string())), "zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -s -V 16m tank/vol")?;
    world.ok(&format!("zirconia target allow tank/vol {INITIATOR}"))?.says("zirconia:share.iscsi=on")?;
    same("a volume that is not shared", status_of_login(port)?, NOT_FOUND)?;
    world.ok(&format!("zirconia target deny tank/vol {INITIATOR}"))?;
    world.ok("zfs set zirconia:share.iscsi=on tank")?;
    world.ok("zirconia target list -H")?.prints(&format!("{TARGET}\ttank/vol\t0\t-"))?;
    same("who was not allowed", status_of_login(port)?, NOT_FOUND)?;
    world.ok(&format!("zirconia target allow tank/vol {INITIATOR}"))?;
    let bytes: Vec<u8> = (0..IMMEDIATE_BYTES).map(|at| (at / 7) as u8).collect();
    let mut session = Session::new(port)?;
    session.write(1000, &bytes)?;
    same("what was written", session.read(1000, bytes.len())? == bytes, true)?;
    same("what was not", session.read(8, 512)?, vec![0; 512])?;
    world.ok("zirconia target sessions -H")?.shows(&format!("{TARGET}\t{INITIATOR}\t"))?;
    for line in ["zfs destroy tank/vol", "zfs rename tank/vol tank/other", "zpool export tank"] {
        world.refused(line, 1, "dataset is busy")?;
    }
    rights(world, port, session)?;
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    // The command may be the one that starts it again.
    world.ok_with(("ZIRCONIA_ISCSI", Path::new(&port.to_string())), "zpool status tank")?.shows("state: ONLINE")?;
    let mut refusals = Vec::new();
    await_that("the target after the daemon was killed", || {
        let status = status_of_login(port)?;
        refusals.extend((status != 0).then_some(status));
        Ok(status == 0)
    })?;
    same("refusals that initiators do not try again after", refusals.iter().find(|status| **status != UNAVAILABLE), None)?;
    let mut session = Session::new(port)?;
    same("after the daemon was killed", session.read(1000, bytes.len())? == bytes, true)?;
    world.ok("zfs rename -f tank/vol tank/other")?;
    session.ends()?;
    world.ok("zfs rename tank/other tank/vol")?;
    let session = Session::new(port)?;
    world.ok("zpool export -f tank")?;
    session.ends()?;
    same("without its pool", status_of_login(port)?, NOT_FOUND)?;
    world.ok("zpool import -d {vdevs} tank")?;
    let mut session = Session::new(port)?;
    same("after an import", session.read(1000, bytes.len())? == bytes, true)?;
    world.ok("zirconia stop")?;
    session.ends()
}

/// Rights that are taken away, and secrets.
fn rights(world: &World, port: u16, session: Session) -> Result<(), Failure> {
    world.ok(&format!("zirconia target deny tank/vol {INITIATOR}"))?;
    session.ends()?;
    same("who is not allowed any more", status_of_login(port)?, NOT_FOUND)?;
    world.ok(&format!("zirconia target allow --read-only tank/vol {INITIATOR}"))?;
    let mut session = Session::new(port)?;
    same("the status of a write of who may only read", session.status_of_write()?, 2)?;
    let secret = "a-secret-of-24-bytes....";
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(world.path("secret"))?;
    file.write_all(secret.as_bytes())?;
    world.ok(&format!("zirconia target chap --secret-file {{dir}}/secret tank/vol {INITIATOR}"))?;
    session.ends()?;
    same("who proves nothing", status_of_login(port)?, UNPROVED)?;
    world.ok("zirconia target list -H")?.shows(&format!("{INITIATOR}(ro,chap)"))?.hides(secret)?;
    same("the secret in the log", std::fs::read_to_string(world.path("state/zirconiad.log"))?.contains(secret), false)?;
    world.ok(&format!("zirconia target deny tank/vol {INITIATOR}"))?;
    world.ok(&format!("zirconia target allow tank/vol {INITIATOR}")).map(drop)
}

/// Port at which a volume is served that nobody has a right to yet.
fn shared_volume(world: &World) -> Result<u16, Failure> {
    world.vdevs(&["a"])?;
    let port = free_port()?;
    world.ok_with(("ZIRCONIA_ISCSI", Path::new(&port.to_string())), "zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs set zirconia:share.iscsi=on tank")?;
    world.ok("zfs create -s -V 16m tank/vol")?;
    Ok(port)
}

/// If this fails, an initiator that may only read, or that may nothing any more, locks those out who may write, and nobody can help them.
pub fn reservations(world: &World) -> Result<(), Failure> {
    const KEPT: &str = "zirconia:iscsi.reservations";
    let port = shared_volume(world)?;
    let allow = |initiator: &str| world.ok(&format!("zirconia target allow tank/vol {initiator}")).map(drop);
    allow(INITIATOR)?;
    allow(OTHER)?;
    let mut other = Session::new_as(OTHER, port)?;
    Session::new(port)?.reserve()?;
    same("a write beside a reservation", other.status_of_write()?, CONFLICT)?;
    world.ok(&format!("zfs get -H -o value {KEPT} tank/vol"))?.shows(INITIATOR)?;
    world.ok(&format!("zirconia target deny tank/vol {INITIATOR}"))?;
    same("a write after the holder's right has gone", other.status_of_write()?, 0)?;
    world.ok(&format!("zfs get -H -o value {KEPT} tank/vol"))?.hides(INITIATOR)?;
    allow(INITIATOR)?;
    Session::new(port)?.reserve()?;
    same("a write beside a second reservation", other.status_of_write()?, CONFLICT)?;
    world.ok(&format!("zfs inherit {KEPT} tank/vol"))?;
    await_that("a write after the property was taken away", || Ok(other.status_of_write()? == 0))?;
    world.ok(&format!("zirconia target allow --read-only tank/vol {INITIATOR}"))?;
    same("a registration of who may only read", Session::new(port)?.reserve_out(0, 0, 7)?, 2)?;
    // Nobody is served: what is on disk goes nevertheless.
    allow(INITIATOR)?;
    Session::new(port)?.reserve()?;
    world.ok("zfs set zirconia:share.iscsi=off tank")?;
    world.ok(&format!("zirconia target deny tank/vol {INITIATOR}"))?;
    world.ok(&format!("zfs get -H -o value {KEPT} tank/vol"))?.hides(INITIATOR)?;
    world.ok("zirconia stop").map(drop)
}

/// If this fails, connections that say nothing keep every initiator of their address from its disks, and nobody learns why.
pub fn crowds(world: &World) -> Result<(), Failure> {
    let port = shared_volume(world)?;
    world.ok(&format!("zirconia target allow tank/vol {INITIATOR}"))?;
    let _silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port))).collect::<Result<_, _>>()?;
    let mut session = Session::new(port)?;
    same("a read among them", session.read(0, 512)?, vec![0; 512])?;
    world.ok("zirconia target sessions")?.shows("not logged in: 15; closed for others, or refused, since the daemon began: 5")?;
    world.ok("zirconia target sessions -H")?.hides("closed")?;
    same("the log", std::fs::read_to_string(world.path("state/zirconiad.log"))?.contains("iSCSI connections do not log in"), true)?;
    world.ok("zirconia stop")?;
    session.ends()
}
