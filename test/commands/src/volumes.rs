//! Volumes as datasets: made, listed, resized, renamed, destroyed, with OpenZFS's words.

use crate::world::{Failure, World};

/// A volume's whole life.
pub fn life(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    creation(world)?;
    sizes(world)?;
    refusals(world)?;
    world.ok("zfs snapshot -r tank@s")?;
    world.ok("zfs rename tank/vol tank/a/moved")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zfs list -H -o name,volsize,volblocksize -t volume")?.prints("tank/a/moved\t32M\t16K\ntank/a/sparse\t1M\t64K")?;
    world.ok("zfs list -H -o name,volsize,volblocksize tank")?.prints("tank\t-\t-")?;
    world.ok("zfs get -H -o value,source volsize tank/a/moved@s")?.prints("32M\tlocal")?;
    world.ok("zfs destroy -r tank/a/moved")?;
    world.ok("zfs destroy -r tank/a")?;
    world.ok("zfs list -H -o name")?.prints("tank")?;
    Ok(())
}

fn creation(world: &World) -> Result<(), Failure> {
    world.ok("zfs create -V 16m tank/vol")?.says("volume 'tank/vol' is the file dev/zvol/tank/vol in the daemon's state directory")?;
    // 16 MiB, and twice 8 indirect blocks of 128 KiB.
    world.ok("zfs get -Hp -o value,source refreservation tank/vol")?.prints("18874368\tlocal")?;
    world.ok("zfs create -s -p -b 64K -o compression=lz4 -V 1000001 tank/a/sparse")?;
    world.ok("zfs create -p -V 1000001 tank/a/sparse")?;
    world
        .ok("zfs get -Hp -o value,source volsize,volblocksize,refreservation tank/a/sparse")?
        .prints("1048576\tlocal\n65536\t-\n0\tdefault")?;
    let plan = world.ok("zfs create -n -P -V 10000 tank/other")?;
    plan.shows("create\ttank/other\n")?.shows("property\tvolsize\t16384\n")?.shows("property\trefreservation\t1851392\n")?;
    world
        .ok("zfs create -nv -s -b 1k -V 10M tank/other")?
        .says("Warning: volblocksize (1024) is less than the default minimum block size (16384).")?;
    world.refused("zfs list tank/other", 1, "dataset does not exist")?;
    world.ok("zfs get -H -o property all tank/vol")?.hides("mountpoint")?.hides("recordsize")?.hides("quota")?.shows("volsize")?;
    Ok(())
}

fn sizes(world: &World) -> Result<(), Failure> {
    let kept = |world: &World| world.ok("zfs get -Hp -o value volsize,refreservation tank/vol");
    world.ok("zfs set volsize=32M tank/vol")?;
    kept(world)?.prints("33554432\n36175872")?;
    world.refused("zfs set volsize=20000 tank/vol", 1, "'volsize' must be a multiple of volume block size (16K)")?;
    world.refused("zfs set volsize=0 tank/vol", 1, "'volsize' cannot be zero")?;
    world.refused("zfs set volsize=1T tank/vol", 1, "cannot set property for 'tank/vol': size is greater than available space")?;
    world.ok("zfs set refreservation=1M tank/vol")?;
    world.ok("zfs set volsize=48M tank/vol")?;
    kept(world)?.prints("50331648\n1048576")?;
    world.ok("zfs set refreservation=auto volsize=32M tank/vol")?;
    kept(world)?.prints("33554432\n36175872")?;
    world.ok("zfs set readonly=on tank/vol")?;
    world.refused("zfs set volsize=16M tank/vol", 1, "dataset is read-only")?;
    world.ok("zfs inherit readonly tank/vol")?;
    Ok(())
}

fn refusals(world: &World) -> Result<(), Failure> {
    world.refused("zfs create -V 1T tank/large", 1, "cannot create 'tank/large': out of space")?;
    world.refused("zfs create -V 0 tank/none", 1, "volume size cannot be zero")?;
    world.refused("zfs create -V big tank/none", 1, "bad volume size 'big'")?;
    world.refused("zfs create -V -1 tank/none", 1, "bad volume size '-1'")?;
    world.refused("zfs create -s -V 8E tank/none", 1, "volume size exceeds limit for this system")?;
    world.refused("zfs set volsize=8E tank/vol", 1, "volume size exceeds limit for this system")?;
    world.refused("zfs create -s tank/none", 2, "'-s' and '-b' can only be used when creating a volume")?;
    world.refused("zfs create -u -V 1M tank/none", 2, "'-u' can only be used when creating a filesystem")?;
    world.refused("zfs create -V 1M -o mountpoint=/x tank/none", 1, "'mountpoint' does not apply to datasets of this type")?;
    world.refused("zfs create tank/vol/a", 1, "cannot create 'tank/vol/a': parent is not a filesystem")?;
    world.refused("zfs rename tank/a tank/vol/a", 1, "parent is not a filesystem")?;
    world.refused("zfs mount tank/vol", 1, "operation not applicable to datasets of this type")?;
    world.refused("zfs set quota=1M tank/vol", 1, "'quota' does not apply to datasets of this type")?;
    world.refused("zfs set volsize=1M tank", 1, "'volsize' does not apply to datasets of this type")?;
    world.refused("zfs set volblocksize=8K tank/vol", 1, "'volblocksize' is readonly")?;
    world.refused("zfs set refreservation=auto tank", 1, "'refreservation=auto' only allowed on volumes")?;
    world.ok("zfs mount -a")?;
    Ok(())
}
