//! Volumes over NBD, as a client that was written for this sees them, and as QEMU does: which can be had, that their bytes are there, and how
//! connections end.

use crate::initiator::free_port;
use crate::iscsi::await_that;
use crate::world::{Failure, World, same};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time by which a daemon that can do something has done it.
const PATIENCE: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;
/// Answers to an option: done, information, and an export that there is not.
const ACK: u32 = 1;
const INFO: u32 = 3;
const UNKNOWN: u32 = 0x8000_0006;
/// Option that asks for an export.
const GO: u32 = 7;
/// Commands, and the flag of what is to be durable.
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const FUA: u16 = 1;
/// Error of a write to what may only be read.
const EPERM: u32 = 1;

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Client by hand: one request at a time, with simple replies.
struct Client<S> {
    stream: S,
    /// Size of the export in bytes.
    size: u64,
}

fn receive(stream: &mut impl Read, length: usize) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl<S: Read + Write> Client<S> {
    /// Asks for an export; the number of the answer where it is refused.
    fn try_new(mut stream: S, export: &str) -> Result<Result<Client<S>, u32>, Failure> {
        same("the greeting", receive(&mut stream, 18)?, b"NBDMAGICIHAVEOPT\0\x03".to_vec())?;
        let mut go = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &GO.to_be_bytes(), &(export.len() as u32 + 6).to_be_bytes()].concat();
        go.extend((export.len() as u32).to_be_bytes());
        go.extend(export.as_bytes());
        go.extend([0u8; 2]);
        stream.write_all(&go)?;
        let mut size = 0;
        loop {
            let head = receive(&mut stream, 20)?;
            let data = receive(&mut stream, number(&head[16..]) as usize)?;
            match number(&head[12..16]) as u32 {
                ACK => return Ok(Ok(Client { stream, size })),
                INFO if data[..2] == [0, 0] => size = number(&data[2..10]),
                INFO => {}
                refusal => return Ok(Err(refusal)),
            }
        }
    }

    fn new(stream: S, export: &str) -> Result<Client<S>, Failure> {
        Ok(Client::try_new(stream, export)?.map_err(|refusal| format!("      '{export}' is refused: {refusal:#x}"))?)
    }

    /// Carries out a request; gives its error and what it read.
    fn ask(&mut self, (flags, kind): (u16, u16), at: u64, bytes: usize, data: &[u8]) -> Result<(u32, Vec<u8>), Failure> {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend([flags, kind].map(u16::to_be_bytes).concat());
        request.extend([7, at].map(u64::to_be_bytes).concat());
        request.extend((bytes as u32).to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)?;
        let reply = receive(&mut self.stream, 16)?;
        same("a reply", (number(&reply[..4]), number(&reply[8..])), (0x6744_6698, 7))?;
        let error = number(&reply[4..8]) as u32;
        let length = if error == 0 && kind == READ { bytes } else { 0 };
        Ok((error, receive(&mut self.stream, length)?))
    }

    fn done(&mut self, kind: (u16, u16), at: u64, bytes: usize, data: &[u8]) -> Result<(), Failure> {
        same("the error of a request", self.ask(kind, at, bytes, data)?.0, 0)
    }

    fn read(&mut self, at: u64, bytes: usize) -> Result<Vec<u8>, Failure> {
        let (error, read) = self.ask((0, READ), at, bytes, &[])?;
        same("the error of a read", error, 0)?;
        Ok(read)
    }

    /// Waits for the end of the connection, which the server brings about.
    fn ends(mut self) -> Result<(), Failure> {
        match self.stream.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err("      something came that nobody asked for".into()),
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => Err(error.into()),
            Err(_) => Ok(()),
        }
    }
}

fn socket(world: &World) -> Result<UnixStream, Failure> {
    let stream = UnixStream::connect(world.path("state/nbd.sock"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn port(port: u16) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn refusal(world: &World, export: &str) -> Result<u32, Failure> {
    Ok(Client::try_new(socket(world)?, export)?.err().unwrap_or(0))
}

/// If this fails, somebody has a volume that nobody shared, a guest loses what it was told is on disk, or its disk goes while it uses it.
pub fn exports(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    let number = free_port()?;
    let text = number.to_string();
    world.ok_with(("ZIRCONIA_NBD", Path::new(&text)), "zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -s -V 16m tank/vol")?;
    same("a volume that is not shared", refusal(world, "tank/vol")?, UNKNOWN)?;
    world.ok("zfs set zirconia:share.nbd=on tank")?;
    for name in ["", "tank", "tank/none", "other/vol", "tank/vol@s"] {
        same("what is no volume", refusal(world, name)?, UNKNOWN)?;
    }
    world.ok("zirconia target list -H")?.prints("nbd:tank/vol\ttank/vol\t0\t*")?;
    same("mode of the socket", std::fs::metadata(world.path("state/nbd.sock"))?.permissions().mode() & 0o777, 0o600)?;
    std::fs::remove_file(world.path("state/nbd.sock"))?;
    await_that("a socket that was removed", || Ok(socket(world).is_ok()))?;
    let bytes: Vec<u8> = (0..300_001).map(|at| (at / 7) as u8 | 1).collect();
    let mut client = Client::new(socket(world)?, "tank/vol")?;
    same("the size", client.size, 16 * MIB)?;
    client.done((FUA, WRITE), 4097, bytes.len(), &bytes)?;
    client.done((0, WRITE), 8 * MIB, bytes.len(), &bytes)?;
    let mut other = Client::new(port(number)?, "tank/vol")?;
    other.done((0, FLUSH), 0, 0, &[])?;
    same("what the other one wrote", other.read(8 * MIB, bytes.len())? == bytes, true)?;
    same("what nobody wrote", other.read(12 * MIB, 70_000)?, vec![0; 70_000])?;
    let own = std::process::id();
    world.ok("zirconia target sessions -H")?.shows(&format!("nbd:tank/vol\tprocess {own}\t-"))?.shows("nbd:tank/vol\t127.0.0.1:")?;
    for line in ["zfs destroy tank/vol", "zfs rename tank/vol tank/other", "zpool export tank"] {
        world.refused(line, 1, "dataset is busy")?;
    }
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    // The command may be the one that starts it again.
    world.ok_with(("ZIRCONIA_NBD", Path::new(&text)), "zpool status tank")?.shows("state: ONLINE")?;
    await_that("the export after the daemon was killed", || Ok(socket(world).is_ok() && refusal(world, "tank/vol")? == 0))?;
    let mut client = Client::new(socket(world)?, "tank/vol")?;
    same("what was durable", client.read(4097, bytes.len())? == bytes && client.read(8 * MIB, bytes.len())? == bytes, true)?;
    client.done((FUA, TRIM), 8 * MIB, MIB as usize, &[])?;
    same("what was trimmed", client.read(8 * MIB, bytes.len())?, vec![0; bytes.len()])?;
    changes(world, client, &bytes)
}

/// Properties, sizes, snapshots and names that change under clients.
fn changes(world: &World, mut client: Client<UnixStream>, bytes: &[u8]) -> Result<(), Failure> {
    world.ok("zfs set volsize=32m tank/vol")?;
    world.ok("zfs set snapdev=visible tank/vol")?;
    client.done((0, WRITE), 20 * MIB, 512, &[1; 512])?;
    same("the new size", Client::new(socket(world)?, "tank/vol")?.size, 32 * MIB)?;
    world.ok("zfs set readonly=on tank/vol")?;
    same("a write of what is read-only", client.ask((0, WRITE), 0, 512, &[1; 512])?.0, EPERM)?;
    world.ok("zfs inherit readonly tank/vol")?;
    world.ok("zfs snapshot tank/vol@s")?;
    client.done((0, WRITE), 4097, 512, &[0; 512])?;
    let mut old = Client::new(socket(world)?, "tank/vol@s")?;
    same("the snapshot", old.read(4097, bytes.len())? == bytes, true)?;
    same("a write to a snapshot", old.ask((0, WRITE), 0, 512, &[1; 512])?.0, EPERM)?;
    drop(old);
    world.ok("zfs set zirconia:share.nbd=off tank/vol")?;
    client.ends()?;
    same("what is not shared any more", refusal(world, "tank/vol")?, UNKNOWN)?;
    world.ok("zfs inherit zirconia:share.nbd tank/vol")?;
    let client = Client::new(socket(world)?, "tank/vol")?;
    world.ok("zfs rename -f tank/vol tank/other")?;
    client.ends()?;
    drop(Client::new(socket(world)?, "tank/other")?);
    world.ok("zfs rename tank/other tank/vol")?;
    let client = Client::new(socket(world)?, "tank/vol")?;
    world.ok("zpool export -f tank")?;
    client.ends()?;
    same("without its pool", refusal(world, "tank/vol")?, UNKNOWN)?;
    world.ok("zpool import -d {vdevs} tank")?;
    let mut client = Client::new(socket(world)?, "tank/vol")?;
    same("after an import", client.read(5000, 512)? == bytes[5000 - 4097..][..512], true)?;
    world.ok("zirconia stop")?;
    client.ends()?;
    same("the socket of a daemon that has ended", world.path("state/nbd.sock").exists(), false)
}

/// If this fails, QEMU cannot use a volume, copies other bytes, or fills its holes.
pub fn qemu(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs set zirconia:share.nbd=on tank")?;
    world.ok("zfs create -s -V 64m tank/vol")?;
    let image = std::fs::File::create(world.path("image"))?;
    image.set_len(64 * MIB)?;
    let bytes: Vec<u8> = (0..3 * MIB as usize + 512).map(|at| (at * 31 / 7) as u8 | 1).collect();
    for at in [0, 9 * MIB + 512, 40 * MIB] {
        image.write_all_at(&bytes, at)?;
    }
    let url = format!("nbd+unix:///tank/vol?socket={}", world.at("state/nbd.sock"));
    world.ok(&format!("qemu-img convert -n -f raw -O raw {{dir}}/image {url}"))?;
    world.ok(&format!("qemu-img compare -f raw -F raw {{dir}}/image {url}"))?.shows("identical")?;
    world.ok("zpool sync tank")?;
    world.ok(&format!("qemu-img map --output=json -f raw {url}"))?.shows("\"zero\": true")?.shows("\"data\": true")?;
    let used = world.ok("zfs list -Hp -o used tank/vol")?.out.trim().parse::<u64>()?;
    same("the holes stayed holes", used < 16 * MIB, true)?;
    world.ok(&format!("qemu-img convert -f raw -O raw {url} {{dir}}/copy"))?;
    world.ok("cmp {dir}/image {dir}/copy")?;
    if need::on_path("nbdinfo").is_some() {
        world.ok(&format!("nbdinfo --size {url}"))?.prints(&(64 * MIB).to_string())?;
        world.ok(&format!("nbdinfo --map {url}"))?.shows("hole,zero")?;
    }
    world.ok("zpool export tank").map(drop)
}
