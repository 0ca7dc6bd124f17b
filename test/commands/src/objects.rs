//! Objects of datasets for other programs: a program stores some, the daemon is killed or the pool exported under it, and they are there.

use crate::iscsi::await_that;
use crate::world::{Failure, World, same};
use osd_client::{Client, ClientError, Fid, Memory, Operation, Piece, Place};
use std::os::unix::fs::PermissionsExt;

const MIB: u64 = 1 << 20;
const OBJECT: Fid = Fid::new(0x2_0000_0401, 1);
/// Error numbers of what is there already, of what is in use, and of what there is not.
const EEXIST: Option<u32> = Some(17);
const EBUSY: Option<u32> = Some(16);
const ENOENT: Option<u32> = Some(2);

fn connect(world: &World) -> Result<Client, ClientError> {
    Client::connect(&world.path("state/osd.sock"))
}

fn open(world: &World, dataset: &str) -> Result<Client, ClientError> {
    let mut client = connect(world)?;
    client.open(dataset)?;
    Ok(client)
}

fn refusal(world: &World, dataset: &str) -> Result<Option<u32>, Failure> {
    Ok(connect(world)?.open(dataset).err().and_then(|error| error.errno()))
}

fn whole() -> Vec<Piece> {
    vec![Piece { offset: 0, place: Place { memory: 0, offset: 0, bytes: MIB } }]
}

/// Bytes of the object.
fn stored(client: &mut Client) -> Result<Vec<u8>, Failure> {
    let memory = Memory::new(MIB)?;
    client.share(0, &memory, false)?;
    same("the length", client.read(OBJECT, whole())?, vec![MIB])?;
    client.unshare(0)?;
    let mut bytes = vec![0; MIB as usize];
    memory.take(0, &mut bytes)?;
    Ok(bytes)
}

/// If this fails, programs cannot store objects, lose what they were told is on disk, or share a dataset with a mount that knows nothing of them.
pub fn stores(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -o compression=off tank/ost")?;
    world.ok("zfs create -V 16m tank/vol")?;
    same("mode of the socket", std::fs::metadata(world.path("state/osd.sock"))?.permissions().mode() & 0o777, 0o600)?;
    same("what there is not", [refusal(world, "tank/none")?, refusal(world, "other/ost")?, refusal(world, "")?], [ENOENT; 3])?;
    same("a volume", refusal(world, "tank/vol")?, Some(22))?;
    let bytes: Vec<u8> = (0..MIB).map(|at| (at * 31 / 7) as u8 | 1).collect();
    let memory = Memory::new(MIB)?;
    memory.put(0, &bytes)?;
    let mut client = open(world, "tank/ost")?;
    client.share(0, &memory, true)?;
    let create = Operation::Create { mode: 0o600, uid: 0, gid: 0, is_index: false };
    let transaction = client.transact(vec![(OBJECT, create.clone()), (OBJECT, Operation::Write(whole()))])?;
    client.sync()?;
    same("what is told", client.committed().map(|told| (told.transaction, told.is_on_disk)), Some((transaction, true)))?;
    let mut other = open(world, "tank/ost")?;
    same("what the other one stored", stored(&mut other)? == bytes, true)?;
    same("a second one of the name", other.transact(vec![(OBJECT, create)]).err().and_then(|error| error.errno()), EEXIST)?;
    world.ok(&format!("kill -9 {}", world.daemon()?))?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?;
    await_that("the objects after the daemon was killed", || Ok(open(world, "tank/ost").is_ok()))?;
    let mut client = open(world, "tank/ost")?;
    same("what was on disk", stored(&mut client)? == bytes, true)?;
    world.refused("zirconia upgrade", 1, "a program has the objects of 'tank/ost', and is cut off")?;
    for line in ["zfs destroy tank/ost", "zfs rename tank/ost tank/other", "zpool export tank"] {
        world.refused(line, 1, "dataset is busy")?;
    }
    world.ok("zpool export -f tank")?;
    same("a client without its pool", client.sync().is_err(), true)?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("after an import", stored(&mut open(world, "tank/ost")?)? == bytes, true)?;
    world.ok("zirconia stop")?;
    same("the socket of a daemon that has ended", world.path("state/osd.sock").exists(), false)
}

/// If this fails, a program and a mount change the same files, and neither knows of the other.
pub fn beside_mounts(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -o mountpoint={dir}/ost tank/ost")?;
    same("a dataset that is mounted", refusal(world, "tank/ost")?, EBUSY)?;
    world.ok("zfs unmount tank/ost")?;
    let mut client = open(world, "tank/ost")?;
    let create = Operation::Create { mode: 0o600, uid: 0, gid: 0, is_index: false };
    client.transact(vec![(OBJECT, create), (OBJECT, Operation::Put { offset: 0, bytes: b"object".to_vec() })])?;
    world.refused("zfs mount tank/ost", 1, "dataset is busy")?;
    drop(client);
    await_that("a dataset that nobody has any more", || Ok(world.run("zfs mount tank/ost")?.code == 0))?;
    same("a file", std::fs::read(world.path("ost/O/200000401/d1/1"))?, b"object".to_vec())?;
    world.ok("zpool export tank").map(drop)
}
