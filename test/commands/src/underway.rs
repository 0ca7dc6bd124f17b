//! Streams that are under way while their pool is exported, their daemon replaced or killed, or what they come into destroyed: what users lose if this
//! fails is a backup that is cut without a word, or a pool that nobody can export.

use crate::receives::{job, piped, shell};
use crate::world::{Failure, Running, World, mebibytes, same};
use std::time::{Duration, Instant};

/// Time for one step.
const PATIENCE: Duration = Duration::from_secs(120);
/// Mebibytes that are sent: more than fits into all that lies between.
const MEBIBYTES: usize = 24;

/// Waits until it is so.
fn until(what: &str, is_so: impl Fn() -> Result<bool, Failure>) -> Result<(), Failure> {
    let begun = Instant::now();
    while !is_so()? {
        same(what, begun.elapsed() < PATIENCE, true)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn text(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.path(name)).unwrap_or_default()
}

/// Begins to send to somebody who reads nothing until the file `NAME.go` is there.
fn stalled(world: &World, name: &str) -> Result<Running, Failure> {
    let sends = format!("{{ zfs send -v tank/big@one 2> {name}.said; echo $? > {name}.code; }}");
    let reads = format!("{{ until test -e {name}.go; do sleep 0.1; done; cat > {name}.taken; }}");
    let running = world.start(&job(world, name, &format!("{sends} | {reads}"))?, PATIENCE)?;
    until("it begins to send", || Ok(text(world, &format!("{name}.said")).contains("SNAPSHOT tank/big@one")))?;
    Ok(running)
}

/// Has it read on, and looks at what the sender said.
fn cut(world: &World, name: &str, running: Running, why: &str) -> Result<(), Failure> {
    std::fs::write(world.path(&format!("{name}.go")), "")?;
    let (ran, _) = running.finish()?;
    same("its exit status", text(world, &format!("{name}.code")).trim(), "1")?;
    let said = text(world, &format!("{name}.said"));
    if said.contains(why) { Ok(()) } else { Err(ran.fault(format!("it should say '{why}':\n{said}"))) }
}

/// Streams that are under way are named by who cannot go on because of them, and end by force or with the daemon in words that say so.
pub fn under_way(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zpool create -m {mnt}/copy copy {vdevs}/b")?;
    world.ok("zfs create -o compression=off tank/big")?;
    std::fs::write(world.path("mnt/tank/big/file"), mebibytes(MEBIBYTES))?;
    world.ok("zfs snapshot tank/big@one")?;
    sent(world)?;
    received(world)?;
    killed(world)?;
    world.ok("zpool export copy")?;
    world.ok("zpool export tank").map(drop)
}

/// What is sent is named, and cut off by force only.
fn sent(world: &World) -> Result<(), Failure> {
    let running = stalled(world, "first")?;
    world.refused("zirconia upgrade", 1, "cannot replace the daemon: 'tank/big@one' is being sent, and is cut off")?;
    world.refused("zpool export tank", 1, "cannot export 'tank': pool is busy: 'tank/big@one' is being sent")?;
    same("it is still mounted", world.path("mnt/tank/big/file").exists(), true)?;
    world.ok("zpool export -f tank")?;
    cut(world, "first", running, "the stream is cut off: its pool was given up")?;
    world.ok("zpool import -d {vdevs} tank").map(drop)
}

/// What is received into is named; by force it ends as an interrupted receive does.
fn received(world: &World) -> Result<(), Failure> {
    piped(world, "zfs send tank/big@one > stream")?;
    let feeds = "{ head -c 5000000 stream; until test -e on; do sleep 0.1; done; } | zfs receive -s copy/r 2> told";
    let running = world.start(&job(world, "feeds", feeds)?, PATIENCE)?;
    until("it begins to receive", || Ok(world.run("zfs list copy/r")?.code == 0))?;
    world.refused("zfs destroy copy/r", 1, "cannot destroy 'copy/r': dataset is busy: a receive into it is under way")?;
    let second = shell(world, "zfs receive copy/r < stream")?;
    same("a second receive", second.code, 1)?;
    second.says("destination 'copy/r' is busy: a receive into it is under way")?;
    world.refused("zirconia upgrade", 1, "'copy/r@one' is being received")?;
    world.refused("zpool export copy", 1, "pool is busy: 'copy/r@one' is being received")?;
    world.ok("zpool export -f copy")?;
    std::fs::write(world.path("on"), "")?;
    let (ran, _) = running.finish()?;
    if !text(world, "told").contains("Partially received snapshot is saved.") {
        return Err(ran.fault(format!("what came should be kept:\n{}", text(world, "told"))));
    }
    world.ok("zpool import -d {vdevs} copy")?;
    piped(world, "zfs send -t $(zfs get -H -o value receive_resume_token copy/r) | zfs receive -s copy/r")?;
    same("what came in two parts", std::fs::read(world.path("mnt/copy/r/file"))?.len(), MEBIBYTES << 20)
}

/// A daemon that dies in the middle of a stream is not called a connection that could not be read.
fn killed(world: &World) -> Result<(), Failure> {
    let running = stalled(world, "last")?;
    piped(world, &format!("kill -9 {}", world.daemon()?))?;
    cut(world, "last", running, "the stream is cut off: the daemon ended, or was replaced")?;
    until("its pools are open again", || Ok(world.run("zfs list tank/big copy/r")?.code == 0))
}
