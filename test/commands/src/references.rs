//! What keeps snapshots and what remembers them: holds of users, destruction that waits for them, and bookmarks.

use crate::receives::piped;
use crate::world::{Failure, World, judge, same};

fn pool(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    world.ok("zfs create -p tank/a/b")?;
    Ok(())
}

/// Has OpenZFS look at the pool: its blocks, and how often each feature is counted.
fn judged(world: &World) -> Result<(), Failure> {
    let zdb = judge("holds and bookmarks: OpenZFS's judgement")?;
    world.ok("zpool export tank")?;
    world.clean(&zdb, "-e -p {vdevs} -bccdh tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    Ok(())
}

/// Names and tags of the holds that are listed.
fn listed(world: &World, options: &str) -> Result<String, Failure> {
    let text = world.ok(&format!("zfs holds -H {options}"))?.out;
    let lines = text.lines().map(|line| line.split('\t').take(2).collect::<Vec<_>>().join(" "));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// Snapshots that are held stay until the last hold is released, and no longer where they were given up.
pub fn holds(world: &World) -> Result<(), Failure> {
    pool(world)?;
    world.ok("zfs snapshot -r tank/a@s")?;
    world.ok("zfs hold -r keep tank/a@s")?;
    world.refused("zfs hold keep tank/a@s", 1, "cannot hold snapshot 'tank/a@s': tag already exists on this dataset")?;
    world.refused("zfs hold -r keep tank/a@s", 1, "cannot hold snapshot 'tank/a/b@s': tag already exists on this dataset")?;
    world.ok("zfs hold other tank/a@s")?;
    world.ok("zfs get -H -o value userrefs tank/a@s tank/a/b@s")?.prints("2\n1")?;
    same("those of all", listed(world, "-r tank/a@s")?, "tank/a@s keep\ntank/a@s other\ntank/a/b@s keep".to_string())?;
    let time: i64 = world.ok("zfs holds -Hp tank/a/b@s")?.out.split_whitespace().last().ok_or("no time")?.parse()?;
    same("a time", time > 1_700_000_000, true)?;
    world.ok("zfs holds tank/a/b@s")?.shows("NAME")?.shows("TIMESTAMP")?;
    world.refused("zfs destroy tank/a@s", 1, "cannot destroy snapshot tank/a@s: dataset is busy")?;
    world.refused("zfs destroy -r tank/a@s", 1, "cannot destroy snapshot tank/a/b@s: dataset is busy")?;
    world.refused("zfs destroy -d tank/a", 1, "cannot open 'tank/a': missing '@' delimiter in snapshot name")?;
    world.refused("zfs hold .x tank/a@s", 2, "tag may not start with '.'")?;
    world.refused("zfs hold x tank/a", 1, "'tank/a' is not a snapshot")?;
    world.refused("zfs hold x tank/a@missing", 1, "cannot hold snapshot 'tank/a@missing': dataset does not exist")?;
    world.refused("zfs hold x tank/missing@s", 1, "cannot open 'tank/missing': dataset does not exist")?;
    world.refused("zfs release x tank/a@s", 1, "cannot release hold from snapshot 'tank/a@s': no such tag on this dataset")?;
    world.ok("zfs rename tank/a@s tank/a@t")?;
    judged(world)?;
    same("after an import", listed(world, "tank/a@t")?, "tank/a@t keep\ntank/a@t other".to_string())?;
    world.ok("zfs destroy -d tank/a@t")?;
    world.ok("zfs get -H -o value defer_destroy tank/a@t")?.prints("on")?;
    world.ok("zfs release keep tank/a@t")?;
    world.ok("zfs list -H -o name -t snapshot tank/a")?.prints("tank/a@t")?;
    world.ok("zfs release other tank/a@t")?;
    world.refused("zfs list tank/a@t", 1, "dataset does not exist")?;
    world.ok("zfs release -r keep tank/a@s")?;
    world.ok("zfs destroy tank/a/b@s")?;
    world.refused("zfs holds tank/a/b@s", 1, "cannot open 'tank/a/b@s': dataset does not exist")?.says("no datasets available")?;
    world.ok("zpool history -i tank")?.shows("tag=other temp=0 refs=2")?.shows("tag=other refs=0")?.shows("zfs release other tank/a@t")?;
    judged(world)
}

/// Scripts that look in a pool's history for what one command did to which snapshots find it where OpenZFS has it.
pub fn history(world: &World) -> Result<(), Failure> {
    pool(world)?;
    world.ok("zfs snapshot -r tank/a@s")?;
    world.ok("zfs snapshot -o org.example:why=backup tank/a/b@t")?;
    world.ok("zfs rollback -r tank/a/b@s")?;
    world.ok("zfs inherit -r mountpoint tank/a")?;
    world.ok("zfs destroy -d -r tank/a@s")?;
    judged(world)?;
    let told = world.ok("zpool history -i tank")?;
    told.shows(" ioctl snapshot\n    input:\n        snaps:\n            tank/a@s\n            tank/a/b@s\n")?;
    told.shows("            tank/a/b@t\n        props:\n            org.example:why: 'backup'\n")?;
    told.shows(" ioctl destroy_snaps\n    input:\n        snaps:\n            tank/a")?.shows("\n        defer\n")?;
    told.shows(" clone swap tank/a/b/%rollback (")?.shows(" parent=b\n")?.shows(" destroy tank/a/b/%rollback (")?;
    told.shows(" inherit tank/a (")?.shows(" inherit tank/a/b (")?.shows(") mountpoint=none\n")?;
    world.ok("zpool history -il tank")?.shows("            tank/a/b@s\n")?;
    world.ok("zpool history tank")?.hides("ioctl")?.hides("%rollback").map(drop)
}

/// Bookmarks outlive their snapshots, and go with their dataset.
pub fn bookmarks(world: &World) -> Result<(), Failure> {
    pool(world)?;
    world.ok("zfs snapshot tank/a@s")?;
    let facts = world.ok("zfs get -Hp -o value guid,createtxg,creation tank/a@s")?.out;
    world.ok("zfs bookmark tank/a@s #m")?;
    world.ok("zfs bookmark #m tank/a#copy")?;
    world.refused("zfs bookmark tank/a@s tank/a#m", 1, "cannot create bookmark 'tank/a#m': bookmark exists")?;
    let elsewhere = "cannot create bookmark 'tank/a/b#m': source is not an ancestor of the new bookmark's dataset";
    world.refused("zfs bookmark tank/a@s tank/a/b#m", 1, elsewhere)?;
    world.refused("zfs bookmark tank/a@s tank/nope#m", 1, "cannot create bookmark 'tank/nope#m': dataset does not exist")?;
    world.refused("zfs bookmark tank/a@s other/a#m", 1, "cannot create bookmark 'other/a#m': bookmark is in a different pool")?;
    world.refused("zfs bookmark tank/a@s tank/a#m*", 1, "cannot create bookmark 'tank/a#m*': invalid argument")?;
    world.refused("zfs bookmark tank/a@nope tank/a#n", 2, "cannot open 'tank/a@nope': dataset does not exist")?;
    world.refused("zfs bookmark tank/a@s", 2, "missing bookmark argument")?;
    world.ok("zfs destroy tank/a@s")?;
    same("what is remembered", world.ok("zfs get -Hp -o value guid,createtxg,creation tank/a#m")?.out, facts)?;
    world
        .ok("zfs get -H -o property all tank/a#m")?
        .prints("type\ncreation\nreferenced\ncreatetxg\nguid\nrefcompressratio\nlogicalreferenced")?;
    world.ok("zfs list -H -o name,type,used -t bookmark -r tank")?.prints("tank/a#copy\tbookmark\t-\ntank/a#m\tbookmark\t-")?;
    world.ok("zfs list -H -o name -t bookmark tank/a")?.prints("tank/a#copy\ntank/a#m")?;
    world.ok("zfs list -H -o name -t bookmark tank/a#m")?.prints("tank/a#m")?;
    world.ok("zfs list -H -o name -t all")?.prints("tank\ntank/a\ntank/a#copy\ntank/a#m\ntank/a/b")?;
    world.ok("zfs list -H -o name")?.prints("tank\ntank/a\ntank/a/b")?;
    world.refused("zfs list tank/a#m", 1, "cannot open 'tank/a#m': bookmark delimiter '#' is not expected here")?;
    world.refused("zfs get guid tank/a#nope", 1, "cannot open 'tank/a#nope': dataset does not exist")?;
    let features = "feature@bookmarks,feature@bookmark_v2,feature@bookmark_written";
    world.ok(&format!("zpool get -H -o value {features} tank"))?.prints("active\nactive\nactive")?;
    world.ok("zfs get -Hp -o value written#m,written#tank/a#copy,written#nope tank/a")?.prints("0\n0\n-")?;
    world.ok("zfs rename tank/a tank/c")?;
    judged(world)?;
    world.refused("zfs destroy -n tank/c#m", 255, "dryrun is not supported with bookmark")?;
    world.refused("zfs destroy -d tank/c#m", 255, "defer destroy is not supported with bookmark")?;
    world.refused("zfs destroy -r tank/c#m", 255, "recursive is not supported with bookmark")?;
    world.ok("zfs destroy tank/c#m")?;
    world.refused("zfs destroy tank/c#m", 1, "bookmark 'tank/c#m' does not exist.")?;
    world.ok("zfs list -H -o name -t bookmark -r tank")?.prints("tank/c#copy")?;
    world.ok("zfs destroy -r tank/c")?;
    world.ok(&format!("zpool get -H -o value {features} tank"))?.prints("enabled\nenabled\nenabled")?;
    judged(world)
}

fn bookmarks_are(world: &World, expected: &str) -> Result<(), Failure> {
    world.ok("zfs list -H -o name -t bookmark -r tank")?.prints(expected).map(drop)
}

/// Holds and bookmarks go along with a clone that is promoted, and stand in the way of rollbacks.
pub fn beside_clones(world: &World) -> Result<(), Failure> {
    pool(world)?;
    world.ok("zfs snapshot tank/a@one")?;
    world.ok("zfs hold keep tank/a@one")?;
    world.ok("zfs bookmark tank/a@one #m")?;
    world.ok("zfs clone tank/a@one tank/c")?;
    world.ok("zfs bookmark tank/a@one tank/c#m")?;
    world.refused("zfs promote tank/c", 1, "cannot promote 'tank/c': conflicting snapshot 'm' from parent 'tank/a@one'")?;
    bookmarks_are(world, "tank/a#m\ntank/c#m")?;
    world.ok("zfs destroy tank/c#m")?;
    world.ok("zfs promote tank/c")?;
    bookmarks_are(world, "tank/c#m")?;
    same("the hold", listed(world, "tank/c@one")?, "tank/c@one keep".to_string())?;
    judged(world)?;
    world.ok("zfs snapshot tank/c@two")?;
    world.ok("zfs bookmark tank/c@two #two")?;
    world.ok("zfs destroy tank/c@two")?;
    let newer = "use '-r' to force deletion of the following snapshots and bookmarks:\ntank/c#two\n";
    world
        .refused("zfs rollback tank/c@one", 1, "cannot rollback to 'tank/c@one': more recent snapshots or bookmarks exist")?
        .says(newer)?;
    world.ok("zfs snapshot tank/c@three")?;
    world.ok("zfs snapshot tank/c@four")?;
    world.ok("zfs hold keep tank/c@four")?;
    world.refused("zfs rollback -r tank/c@one", 1, "cannot destroy 'tank/c@four': dataset is busy")?;
    world.ok("zfs list -H -o name -t snapshot -r tank/c")?.prints("tank/c@one\ntank/c@three\ntank/c@four")?;
    bookmarks_are(world, "tank/c#m\ntank/c#two")?;
    world.ok("zfs release keep tank/c@four")?;
    world.ok("zfs rollback -r tank/c@one")?;
    world.ok("zfs list -H -o name -t snapshot -r tank")?.prints("tank/c@one")?;
    bookmarks_are(world, "tank/c#m")?;
    world.ok("zfs destroy tank/a/b")?;
    world.ok("zfs destroy tank/a")?;
    world.ok("zfs destroy -d tank/c@one")?;
    world.ok("zfs release keep tank/c@one")?;
    world.refused("zfs list tank/c@one", 1, "dataset does not exist")?;
    judged(world)
}

/// If this fails, what was taken out of all copies for a customer is sent to the customer, or scripts that make such streams take a refusal for success.
pub fn redaction(world: &World) -> Result<(), Failure> {
    pool(world)?;
    world.ok("zfs snapshot tank/a@one")?;
    world.ok("zfs clone tank/a@one tank/c")?;
    world.ok("zfs snapshot tank/c@s")?;
    world.ok("zfs redact tank/a@one r tank/c@s")?;
    world.ok("zfs list -H -o name -t bookmark tank/a")?.prints("tank/a#r")?;
    let guid = world.ok("zfs get -H -p -o value guid tank/c@s")?.out;
    world.ok("zfs get -H -o value redact_snaps tank/a#r")?.prints(guid.trim())?;
    world.ok("zfs get -H -o value redact_snaps tank/a@one")?.prints("-")?;
    world.ok("zpool get -H -o value feature@redaction_bookmarks tank")?.prints("active")?;
    // The numbers of errors are OpenZFS's exit codes here.
    world.refused("zfs redact tank/a@one r", 2, "")?;
    world.refused("zfs redact tank/a@none x tank/c@s", 2, "provided snapshot tank/a@none does not exist")?;
    world.refused("zfs redact tank/a@one x tank/c@none", 2, "provided snapshot tank/c@none does not exist")?;
    world.refused("zfs redact tank/a@one r tank/c@s", 17, "specified redaction bookmark (r) provided already exists")?;
    world.refused("zfs redact tank/a@one x @s", 18, "potentially invalid redaction snapshot; full dataset names required")?;
    world.refused("zfs redact tank/a@one #x tank/c@s", 22, "redaction bookmark name must not contain '#'")?;
    world.refused("zfs redact tank/a@one x tank/a@one", 22, "redaction snapshot must be descendent of snapshot being redacted")?;
    world.refused("zfs redact tank/a x tank/c@s", 22, "redaction snapshot must be descendent of snapshot being redacted")?;
    world.ok("zfs bookmark tank/a@one #plain")?;
    world.ok("zfs send -nv --redact r tank/a@one")?.shows("full send of tank/a@one estimated size is ")?;
    world.refused("zfs send --redact plain tank/a@one", 1, "warning: cannot send 'tank/a@one': not a redaction bookmark")?;
    world.refused("zfs send --redact none tank/a@one", 1, "cannot open 'tank/a#none': dataset does not exist")?;
    world.refused("zfs send --redact r tank/a", 1, "cannot do a redacted send to a filesystem")?;
    world.refused("zfs send -w --redact r tank/a@one", 1, "Error: raw sends may not be redacted.")?;
    world.refused("zfs send -R --redact r tank/a@one", 1, "Error: multiple snapshots cannot be sent redacted.")?;
    piped(world, "zfs send --redact r tank/a@one | zfs receive tank/b")?;
    world.ok("zfs get -H -o value redact_snaps tank/b tank/b@one")?.prints(&format!("{0}\n{0}", guid.trim()))?;
    world.refused("zfs mount tank/b", 1, "Dataset is not complete, was created by receiving a redacted zfs send stream.")?;
    world.refused("zfs redact tank/b@one x tank/b@one", 22, "redaction snapshot must be descendent of snapshot being redacted")?;
    world.ok("zfs clone tank/b@one tank/d")?;
    world.ok("zfs snapshot tank/d@s")?;
    world.refused("zfs redact tank/b@one x tank/d@s", 114, "attempted to redact redacted dataset or with respect to redacted dataset")?;
    world.ok("zfs snapshot tank/a@two")?;
    piped(world, "zfs send -i tank/a#r tank/a@two | zfs receive tank/b")?;
    world.ok("zfs get -H -o value redact_snaps tank/b tank/b@two")?.prints("-\n-")?;
    judged(world)?;
    world.ok("zfs destroy tank/a#r")?;
    world.ok("zfs destroy -r tank/d")?;
    world.ok("zfs destroy -r tank/b")?;
    world.ok("zpool get -H -o value feature@redaction_bookmarks,feature@redacted_datasets tank")?.prints("enabled\nenabled")?;
    judged(world)
}

/// If this fails, zeros in a snapshot that lacks a file's contents are taken for these, where the file system has all of them by now.
pub fn redacted_snapshots(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/a")?;
    std::fs::write(world.path("mnt/tank/a/file"), "secret")?;
    world.ok("zfs snapshot tank/a@one")?;
    world.ok("zfs clone tank/a@one tank/c")?;
    std::fs::write(world.path("mnt/tank/c/file"), "public")?;
    world.ok("zfs snapshot tank/c@s")?;
    world.ok("zfs redact tank/a@one r tank/c@s")?;
    piped(world, "zfs send --redact r tank/a@one | zfs receive -u tank/b")?;
    world.ok("zfs snapshot tank/a@two")?;
    piped(world, "zfs send -i tank/a#r tank/a@two | zfs receive -u tank/b")?;
    world.ok("zfs mount -a")?;
    let seen = |snapshot: &str| std::fs::read(world.path(&format!("mnt/tank/b/.zfs/snapshot/{snapshot}/file")));
    same("what is whole", seen("two")?, b"secret".to_vec())?;
    same("what lacks something is refused", seen("one").is_err(), true)?;
    world.ok("zpool destroy tank")?;
    Ok(())
}
