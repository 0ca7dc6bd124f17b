//! Checkpoints as users make and discard them, and go back to them: what they lose if this fails is the state that they wanted to have again, or the
//! space of one that nobody wants any more.

use crate::world::{Failure, World};

/// A pool is kept as it is, changed, looked at and gone back to; another checkpoint is discarded.
pub fn life(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.ok("zfs create -o canmount=off tank/kept")?;
    refusals(world)?;
    world.ok("zpool checkpoint tank")?.prints("")?;
    world.ok("zfs destroy tank/kept")?;
    world.ok("zfs create -o canmount=off tank/late")?;
    world.ok("zpool add tank {vdevs}/b")?;
    said(world)?;
    world.ok("zpool export tank")?;
    looked_at(world)?;
    world.ok("zpool import -d {vdevs} --rewind-to-checkpoint tank")?.prints("")?;
    world.ok("zfs list -H -o name")?.prints("tank\ntank/kept")?;
    world.ok("zpool status tank")?.hides("checkpoint:")?.hides("vdevs/b")?.shows("state: ONLINE")?;
    world.ok("zpool sync tank")?;
    world.ok("zpool history -i tank")?.shows("checkpoint rewind rewound state to txg=")?;
    discarded(world)
}

/// Requests that make no sense are refused, with OpenZFS's words.
fn refusals(world: &World) -> Result<(), Failure> {
    world.refused("zpool checkpoint -d tank", 1, "cannot discard checkpoint in 'tank': checkpoint does not exist")?;
    world.refused("zpool checkpoint -w tank", 2, "--wait only valid when --discard also specified")?;
    world.refused("zpool checkpoint", 2, "missing pool argument")?;
    world.refused("zpool checkpoint none", 1, "no such pool")?;
    world.refused("zpool checkpoint tank/kept", 1, "'zpool checkpoint' doesn't work on datasets")?;
    world.refused("zpool import -d {vdevs} -F --rewind-to-checkpoint tank", 2, "incompatible with -F").map(drop)
}

/// Everything that shows pools tells of the checkpoint, and what would change its vdevs is refused.
fn said(world: &World) -> Result<(), Failure> {
    world.refused("zpool checkpoint tank", 1, "cannot checkpoint 'tank': checkpoint exists")?;
    for line in ["attach tank {vdevs}/a {vdevs}/c", "replace tank {vdevs}/a {vdevs}/c", "remove tank {vdevs}/b", "reguid tank"] {
        world.refused(&format!("zpool {line}"), 1, "checkpoint exists")?;
    }
    world.ok("zpool sync tank")?;
    world.ok("zpool status tank")?.shows("\ncheckpoint: created ")?.shows(", consumes ")?;
    world.ok("zpool status -j tank")?.shows("checkpoint_stats")?.shows("EXISTS")?;
    let kept = world.ok("zpool list -Hp -o checkpoint tank")?;
    if kept.out.trim().parse::<u64>().unwrap_or(0) == 0 {
        return Err(kept.fault("something of the checkpoint was freed"));
    }
    world.ok("zpool list -v tank")?.shows("CKPOINT")?;
    world.ok("zpool get -H -o value feature@zpool_checkpoint tank")?.prints("active")?;
    let warning = "warning: will not scrub state that belongs to the checkpoint of pool 'tank'";
    world.ok("zpool scrub -w tank")?.shows(warning)?;
    world.ok("zpool status tank")?.shows("    scan warning: skipped blocks that are only referenced by the checkpoint.\n").map(drop)
}

/// What a checkpoint keeps can be looked at, and nothing is lost by that.
fn looked_at(world: &World) -> Result<(), Failure> {
    world.ok("zdb -e -p {vdevs} -u tank")?.shows("\nCheckpointed uberblock found:\n")?;
    world.ok("zdb -e -p {vdevs} -bcc tank")?.shows("No leaks")?.shows("for the sake of the checkpoint")?;
    world.ok("zdb -k -e -p {vdevs} -d tank")?.shows("Dataset tank_CHECKPOINTED_UNIVERSE/kept")?.hides("Checkpointed uberblock found")?;
    world.ok("zdb -k -e -p {vdevs} -bcc tank")?.shows("No leaks")?;
    world.ok("zpool import -d {vdevs} -o readonly=on --rewind-to-checkpoint tank")?;
    world.ok("zfs list -H -o name")?.prints("tank\ntank/kept")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zfs list -H -o name")?.prints("tank\ntank/late")?;
    world.ok("zpool export tank").map(drop)
}

/// A checkpoint that was discarded leaves nothing behind, and nobody goes back to it.
fn discarded(world: &World) -> Result<(), Failure> {
    world.ok("zpool checkpoint tank")?;
    world.ok("zfs destroy tank/kept")?;
    world.ok("zpool checkpoint -dw tank")?.prints("")?;
    world.ok("zpool wait -t discard tank")?;
    world.ok("zpool status tank")?.hides("checkpoint:")?;
    world.ok("zpool get -H -o value checkpoint tank")?.prints("-")?;
    world.ok("zpool get -H -o value feature@zpool_checkpoint tank")?.prints("enabled")?;
    world.ok("zpool history -i tank")?.shows("finished discarding checkpointed state from the pool")?;
    world.ok("zpool export tank")?;
    world.refused("zpool import -d {vdevs} --rewind-to-checkpoint tank", 1, "cannot import 'tank': checkpoint does not exist")?;
    world.refused("zdb -k -e -p {vdevs} tank", 1, "checkpoint does not exist")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zfs list -H -o name")?.prints("tank").map(drop)
}
