//! Volumes over iSCSI, as an initiator that was written for this sees them: who may use them, that their bytes are there, and how sessions end.

use crate::initiator::{IMMEDIATE_BYTES, INITIATOR, PATIENCE, Session, TARGET, free_port, moving};
use crate::world::{Failure, World, same};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Status of a login that needs a proof, and of one to a target that the initiator may not see.
const UNPROVED: u16 = 0x0201;
const NOT_FOUND: u16 = 0x0203;
/// Status of a login after which an initiator tries again.
const UNAVAILABLE: u16 = 0x0301;
/// Status of a command that a reservation forbids.
const CONFLICT: u8 = 0x18;
/// Name of an initiator beside the usual one.
const OTHER: &str = "iqn.2026-11.example:b";

fn status_of_login(port: u16) -> Result<u16, Failure> {
    Ok(Session::log_in(port)?.err().unwrap_or(0))
}

fn status_of_write(session: &mut Session) -> Result<u8, Failure> {
    Ok(session.command(&moving(0x2A, 0, 0, 512), &[1; 512], 0)?.0)
}

/// Waits for something that comes by itself.
pub fn await_that(what: &str, mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > PATIENCE {
            return Err(format!("      {what}: not after {} s", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
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
    same("the status of a write of who may only read", status_of_write(&mut session)?, 2)?;
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
    let mut other = Session::of(OTHER, port, PATIENCE)?;
    Session::new(port)?.reserve(7)?;
    same("a write beside a reservation", status_of_write(&mut other)?, CONFLICT)?;
    world.ok(&format!("zfs get -H -o value {KEPT} tank/vol"))?.shows(INITIATOR)?;
    world.ok(&format!("zirconia target deny tank/vol {INITIATOR}"))?;
    same("a write after the holder's right has gone", status_of_write(&mut other)?, 0)?;
    world.ok(&format!("zfs get -H -o value {KEPT} tank/vol"))?.hides(INITIATOR)?;
    allow(INITIATOR)?;
    Session::new(port)?.reserve(7)?;
    same("a write beside a second reservation", status_of_write(&mut other)?, CONFLICT)?;
    world.ok(&format!("zfs inherit {KEPT} tank/vol"))?;
    await_that("a write after the property was taken away", || Ok(status_of_write(&mut other)? == 0))?;
    world.ok(&format!("zirconia target allow --read-only tank/vol {INITIATOR}"))?;
    let new_key: [u8; 24] = std::array::from_fn(|at| u8::from(at == 15));
    let registered = Session::new(port)?.command(&[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], &new_key, 0)?.0;
    same("a registration of who may only read", registered, 2)?;
    // Nobody is served: what is on disk goes nevertheless.
    allow(INITIATOR)?;
    Session::new(port)?.reserve(7)?;
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
