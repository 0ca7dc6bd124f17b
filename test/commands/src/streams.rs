//! Streams that `zfs send` writes: words about them, which programs that send for others read, and OpenZFS's judgement of what they are.

use crate::world::{Failure, World, judge, same};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time within which a sender must notice that nobody reads any more.
const NOTICE: Duration = Duration::from_secs(60);

fn pool(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -p tank/a/b")?;
    world.ok("zfs snapshot -r tank/a@one")?;
    world.ok("zfs snapshot -r tank/a@two")?;
    Ok(())
}

/// Command `zfs` of this world.
fn zfs(world: &World, words: &str) -> Command {
    let mut command = Command::new(world.program("zfs"));
    command.args(words.split_whitespace()).env("ZIRCONIA_STATE", world.path("state")).stdin(Stdio::null());
    command
}

/// Writes a stream to a file of this world, and has OpenZFS's `zstream` read it; gives what that says.
fn dumped(world: &World, words: &str, file: &str) -> Result<String, Failure> {
    let path = world.path(file);
    let status = zfs(world, words).stdout(File::create(&path)?).status()?;
    same(words, status.code(), Some(0))?;
    same("a stream", std::fs::metadata(&path)?.len() > 312, true)?;
    let zdb = judge("streams: OpenZFS's judgement")?;
    let zstream = Path::new(&zdb).with_file_name("zstream");
    if !zstream.is_file() {
        return Ok(String::new());
    }
    let ran = world.ok(&format!("{} dump {}", zstream.display(), path.display()))?;
    ran.shows("SUMMARY")?.hides("checksum differs")?;
    let length = ran.out.lines().find(|line| line.contains("Total stream length")).unwrap_or_default();
    world.ok(&format!("zstream dump -v {}", path.display()))?.shows(length)?;
    Ok(ran.out)
}

fn shows(text: &str, parts: &[&str]) -> Result<(), Failure> {
    // Without OpenZFS there is nothing to look at.
    match parts.iter().find(|part| !text.is_empty() && !text.contains(**part)) {
        Some(part) => Err(format!("      zstream does not show '{part}':\n{text}").into()),
        None => Ok(()),
    }
}

/// Backup programs decide by these words and numbers what to do next; a wrong one makes them start all over, or give up.
pub fn words(world: &World) -> Result<(), Failure> {
    pool(world)?;
    world.ok("zfs bookmark tank/a@one #mark")?;
    world.ok("zfs send -n tank/a@one")?.prints("")?;
    world.ok("zfs send -nP tank/a@one")?.shows("full\ttank/a@one\t")?.shows("\nsize\t")?;
    world.ok("zfs send -nP -i @one tank/a@two")?.shows("incremental\ttank/a@one\ttank/a@two\t")?;
    world.ok("zfs send -nP -i #mark tank/a@two")?.shows("incremental\ttank/a#mark\ttank/a@two\t")?;
    world.ok("zfs send -nv -i tank/a@one tank/a@two")?.shows("send from tank/a@one to tank/a@two")?.shows("total estimated size is ")?;
    world.ok("zfs send -nv tank/a@one")?.shows("full send of tank/a@one estimated size is ")?;
    world.ok("zfs send -n -i one tank/a@two")?.says("Warning: incremental source didn't specify type, assuming snapshot.")?;
    world.ok("zfs send -nD tank/a@one")?.says("WARNING: deduplicated send is no longer supported.")?;
    // What goes wrong.
    world.refused("zfs send", 2, "receive_resume_token")?.says("missing snapshot argument")?;
    world.refused("zfs send tank/a@one tank/a@two", 2, "too many arguments")?;
    world.refused("zfs send tank/a@none", 1, "cannot open 'tank/a@none': dataset does not exist")?;
    world.refused("zfs send tank/none@one", 1, "cannot open 'tank/none@one': dataset does not exist")?;
    world.refused("zfs send -i @two tank/a@one", 1, "warning: cannot send 'tank/a@one': not an earlier snapshot from the same fs")?;
    world.refused("zfs send -i #none tank/a@two", 1, "incremental source (tank/a#none) does not exist")?;
    world.refused("zfs send -i tank/a/b@one tank/a@two", 1, "not an earlier snapshot from the same fs")?;
    world.refused("zfs send -s tank/a@one", 2, "skip-missing flag can only be used in conjunction with replicate")?;
    world.refused("zfs send -I #mark tank/a@two", 1, "multiple snapshots cannot be sent from a bookmark")?;
    world.refused("zfs send -p tank/a", 1, "Error: Unsupported flag with filesystem or bookmark.")?;
    world.refused("zfs send -S tank/a", 1, "saved send failed: 'tank/a' does not have any resumable receive state")?;
    world.refused("zfs send -S tank/a@one", 2, "saved send must specify the dataset with partially-received state")?;
    world.refused("zfs send -S -R tank/a", 2, "incompatible flags combined with saved send flag")?;
    world.refused("zfs send -R -X tank tank@one", 2, "-X tank: not a valid non-root dataset name.")?;
    world.refused("zfs send -X tank/a tank/a@one", 1, "Cannot specify dataset exclusion (-X) on a non-recursive send.")?;
    world.refused("zfs send -i @one -t 1-0-0-0", 2, "invalid flags combined with -t")?;
    world.refused("zfs send -t 1-0-0-00", 255, "resume token is corrupt")?;
    world.refused("zstream token 1-0-0-00", 1, "Unable to parse resume token: resume token is corrupt")?;
    world.refused("zstream redup x", 1, "cannot open 'x'")?;
    world.refused("zstream recompress rar", 2, "invalid compression type rar")?;
    world.refused("zstream recompress -l 99 zstd", 1, "invalid level 99 of zstd")?;
    world.refused("zstream dump /proc/version", 1, "cannot read the stream")?;
    // What is sent, as OpenZFS reads it.
    let whole = dumped(world, "send tank/a@one", "whole")?;
    shows(&whole, &["hdrtype = 1", "toname = tank/a@one", "fromguid = 0", "Total DRR_OBJECT records"])?;
    let now = dumped(world, "send tank/a", "now")?;
    shows(&now, &["toname = tank/a@--head--", "fromguid = 0", "Total DRR_END records = 1"])?;
    let left = "tank/a@one\ntank/a@two\ntank/a/b@one\ntank/a/b@two";
    world.ok("zfs list -H -o name -t snapshot -r tank/a")?.prints(left)?;
    // What there is of one that broke off.
    let bytes = std::fs::read(world.path("whole"))?;
    std::fs::write(world.path("part"), &bytes[..bytes.len() - 400])?;
    world.ok("zstream dump {dir}/part")?.shows("SUMMARY")?.says("the stream ends early")?;
    let guid: u64 = world.ok("zfs get -Hp -o value guid tank/a@one")?.out.trim().parse()?;
    let since = dumped(world, "send -Lec -i #mark tank/a@two", "since")?;
    shows(&since, &["toname = tank/a@two", &format!("fromguid = {guid:x}")])?;
    shows(&dumped(world, "send -p tank/a@one", "props")?, &["hdrtype = 2", "hdrtype = 1"])?;
    // Lines once a second go to the standard error, with the size in front.
    let ran = zfs(world, "send -v tank/a@one").output()?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    same("progress", said.contains("full send of tank/a@one") && said.contains("TIME        SENT   SNAPSHOT tank/a@one"), true)
}

/// A replica that lacks a dataset, or names one in vain, is found out when it is needed.
pub fn packages(world: &World) -> Result<(), Failure> {
    pool(world)?;
    world.ok("zfs set com.example:x=y tank/a")?;
    world.ok("zfs hold keep tank/a@one")?;
    let lines = "full\ttank/a@one\t|incremental\tone\ttank/a@two\t|full\ttank/a/b@one\t|incremental\tone\ttank/a/b@two\t";
    let ran = world.ok("zfs send -nPR tank/a@two")?;
    lines.split('|').try_for_each(|line| ran.shows(line).map(drop))?;
    world.ok("zfs snapshot -r tank/a@three")?;
    let ran = world.ok("zfs send -nP -I @one tank/a@three")?;
    ran.shows("incremental\tone\ttank/a@two\t")?.shows("incremental\ttwo\ttank/a@three\t")?.hides("tank/a/b")?;
    world.ok("zfs send -nPR -i @one tank/a@three")?.shows("incremental\tone\ttank/a@three\t")?.hides("tank/a@two")?;
    shows(
        &dumped(world, "send -Rh tank/a@two", "replica")?,
        &["hdrtype = 2", "toname = tank/a@two", "toname = tank/a/b@one", "com.example:x", "snapholds"],
    )?;
    world.ok("zfs snapshot tank/a@four")?;
    world.refused("zfs send -R tank/a@four", 1, "cannot send tank/a@four recursively: snapshot tank/a/b@four does not exist")?;
    let said = world.ok("zfs send -nRs tank/a@four")?;
    said.says("WARNING: skipping dataset tank/a/b and its children: snapshot four does not exist")?;
    world.ok("zfs create tank/a/b/c")?;
    world.ok("zfs snapshot -r tank/a@left")?;
    let ran = world.ok("zfs send -nPR -X tank/a/b/c tank/a@left")?;
    ran.shows("\ttank/a/b@left\t")?.hides("tank/a/b/c")?;
    world.ok("zfs send -nPR --exclude tank/none,tank/a/b tank/a@left")?.shows("\ttank/a@left\t")?.hides("tank/a/b")?;
    // Clones are sent as what changed since what they are of.
    world.ok("zfs clone tank/a@one tank/a/clone")?;
    world.ok("zfs snapshot -r tank/a@five")?;
    shows(&dumped(world, "send -R tank/a@five", "clones")?, &["toname = tank/a/clone@five"])?;
    gone(world)
}

/// Whoever stops reading ends the sender, and what was held for it can go.
fn gone(world: &World) -> Result<(), Failure> {
    // A pipe that nobody can read any more, from the beginning.
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut child = zfs(world, "send -R tank/a@five").stdout(writer).stderr(Stdio::null()).spawn()?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            same("it failed", status.success(), false)?;
            break;
        }
        if begun.elapsed() > NOTICE {
            child.kill()?;
            return Err("      zfs send goes on although nobody reads".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    world.ok("zfs release keep tank/a@one")?;
    world.ok("zfs destroy -R tank/a")?;
    world.ok("zpool export tank")?;
    Ok(())
}
