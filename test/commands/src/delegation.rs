//! `zfs allow`: what users may do because somebody allowed it, and that they may do nothing else.

use crate::world::{Failure, Ran, World, same};

/// User to whom something is allowed.
const ANN: &str = "65534";

/// Runs a program of ours as that user, with these groups besides the user's own.
fn as_user(world: &World, groups: &str, line: &str) -> Result<Ran, Failure> {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    world.run(&format!("setpriv --reuid={ANN} --regid={ANN} {groups} {} {rest}", world.program(name)))
}

fn as_ann(world: &World, line: &str) -> Result<Ran, Failure> {
    as_user(world, "--clear-groups", line)
}

/// Runs a line as that user that must succeed.
fn does(world: &World, line: &str) -> Result<Ran, Failure> {
    let ran = as_ann(world, line)?;
    if ran.code == 0 { Ok(ran) } else { Err(ran.fault("it was allowed")) }
}

/// Runs a line as that user that must be refused.
fn is_denied(world: &World, line: &str, why: &str) -> Result<Ran, Failure> {
    let ran = as_ann(world, line)?;
    same("exit status of what nobody allowed", ran.code, 1).map_err(|_| ran.fault("nobody allowed that"))?;
    ran.says(why)?;
    Ok(ran)
}

/// Pool with two folders of file systems that are not mounted; false where another user cannot run our programs.
fn pool(world: &World, scenario: &str) -> Result<bool, Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    for name in ["tank/u", "tank/u/fs", "tank/v"] {
        world.ok(&format!("zfs create -o canmount=off {name}"))?;
    }
    Ok(!world.out_of_reach(as_ann(world, "zpool --help")?, scenario)?)
}

/// Line, and the permissions that it needs, on which dataset each.
type Row = (&'static str, &'static [(&'static str, &'static str)]);

/// Rules of OpenZFS's `zfs_secpolicy_…` functions; each line is done once, in this order.
const ROWS: &[Row] = &[
    ("zfs create -u tank/u/new", &[("tank/u", "create"), ("tank/u", "mount")]),
    ("zfs create -u -o compression=off tank/u/new2", &[("tank/u", "create"), ("tank/u", "mount"), ("tank/u", "compression")]),
    ("zfs create -s -V 1M tank/u/sparse", &[("tank/u", "create"), ("tank/u", "mount")]),
    ("zfs create -V 1M tank/u/volume", &[("tank/u", "create"), ("tank/u", "mount"), ("tank/u", "refreservation")]),
    ("zfs create -up tank/u/p/q", &[("tank/u", "create"), ("tank/u", "mount")]),
    ("zfs snapshot tank/u/fs@a", &[("tank/u/fs", "snapshot")]),
    ("zfs snapshot -o com.example:x=1 tank/u/fs@b", &[("tank/u/fs", "snapshot"), ("tank/u/fs", "userprop")]),
    ("zfs bookmark tank/u/fs@a tank/u/fs#a", &[("tank/u/fs", "bookmark")]),
    ("zfs hold tag tank/u/fs@a", &[("tank/u/fs", "hold")]),
    ("zfs release tag tank/u/fs@a", &[("tank/u/fs", "release")]),
    ("zfs rename tank/u/fs@b tank/u/fs@c", &[("tank/u/fs", "rename"), ("tank/u/fs", "mount"), ("tank/u/fs", "create")]),
    ("zfs rollback tank/u/fs@c", &[("tank/u/fs", "rollback")]),
    ("zfs rollback -r tank/u/fs@a", &[("tank/u/fs", "rollback"), ("tank/u/fs", "destroy"), ("tank/u/fs", "mount")]),
    ("zfs set compression=gzip tank/u/fs", &[("tank/u/fs", "compression")]),
    ("zfs set com.example:y=1 tank/u/fs", &[("tank/u/fs", "userprop")]),
    ("zfs set com.example:y=1 tank/u/fs@a", &[("tank/u/fs", "userprop")]),
    ("zfs set zirconia:share.nbd=off tank/u/volume", &[("tank/u/volume", "share")]),
    ("zfs set userquota@7=1M tank/u/fs", &[("tank/u/fs", "userquota")]),
    ("zfs set volsize=2M tank/u/volume", &[("tank/u/volume", "volsize"), ("tank/u/volume", "refreservation")]),
    ("zfs inherit compression tank/u/fs", &[("tank/u/fs", "compression")]),
    ("zfs send tank/u/fs@a", &[("tank/u/fs", "send")]),
    ("zfs send -nv tank/u/fs@a", &[("tank/u/fs", "send")]),
    (
        "zfs userspace tank/u/fs",
        &[("tank/u/fs", "userused"), ("tank/u/fs", "userquota"), ("tank/u/fs", "userobjused"), ("tank/u/fs", "userobjquota")],
    ),
    ("zfs destroy tank/u/fs#a", &[("tank/u/fs", "destroy")]),
    ("zfs rename tank/u/new tank/v/moved", &[("tank/u/new", "rename"), ("tank/u/new", "mount"), ("tank/v", "create"), ("tank/v", "mount")]),
    ("zfs destroy tank/v/moved", &[("tank/v/moved", "mount"), ("tank/v/moved", "destroy")]),
    ("zfs destroy -r tank/u/p", &[("tank/u/p", "mount"), ("tank/u/p", "destroy")]),
    (
        "zfs clone -o canmount=off tank/u/fs@a tank/v/clone",
        &[("tank/u/fs", "clone"), ("tank/v", "create"), ("tank/v", "mount"), ("tank/v", "canmount")],
    ),
    ("zfs promote tank/v/clone", &[("tank/v/clone", "promote"), ("tank/v/clone", "mount"), ("tank/u/fs", "promote")]),
    ("zfs allow -u 1234 snapshot tank/u", &[("tank/u", "allow"), ("tank/u", "snapshot")]),
];

/// Each verb is done for a user with exactly the permissions that OpenZFS asks for, and refused without any one of them: else somebody destroys what
/// was not theirs, or cannot do what they were told that they may.
pub fn each_verb(world: &World) -> Result<(), Failure> {
    if !pool(world, "delegation: each verb needs its permissions")? {
        return Ok(());
    }
    for (line, needed) in ROWS {
        is_denied(world, line, "permission denied")?;
        for left_out in (0..needed.len()).filter(|_| needed.len() > 1) {
            let given = needed.iter().enumerate().filter(|(at, _)| *at != left_out);
            for (_, (name, permission)) in given.clone() {
                world.ok(&format!("zfs allow -u {ANN} {permission} {name}"))?;
            }
            is_denied(world, line, "permission denied")?;
            for (_, (name, permission)) in given {
                world.ok(&format!("zfs unallow -u {ANN} {permission} {name}"))?;
            }
        }
        for (name, permission) in *needed {
            world.ok(&format!("zfs allow -u {ANN} {permission} {name}"))?;
        }
        does(world, line)?;
        // What was granted goes with what was destroyed, and along with what was renamed.
        for name in needed.iter().map(|(name, _)| *name).chain(["tank/v/moved"]) {
            world.run(&format!("zfs unallow -u {ANN} {name}"))?;
        }
    }
    world.ok("zpool history tank")?.shows("zfs promote tank/v/clone")?;
    world.ok("zfs allow tank/u")?.shows("user (unknown: 1234) snapshot")?;
    Ok(())
}

/// A link of a user's, in a file system that is the user's own, does not say where root mounts: else it could be over `/etc`.
fn by_a_link(world: &World) -> Result<(), Failure> {
    std::fs::create_dir(world.path("elsewhere"))?;
    let (elsewhere, link) = (world.at("elsewhere"), world.at("mnt/tank/u/x/linked"));
    world.ok(&format!("setpriv --reuid={ANN} --regid={ANN} --clear-groups ln -s {elsewhere} {link}"))?;
    does(world, "zfs create -u tank/u/x/linked")?;
    world.refused("zfs mount tank/u/x/linked", 1, "is another user's link")?;
    does(world, "zfs destroy tank/u/x/linked").map(drop)
}

/// What users are allowed reaches no farther than it says: not beside or above the dataset, not by groups they are not in, not while the pool delegates
/// nothing; mounts stay root's, and what is new belongs to who made it.
pub fn no_farther(world: &World) -> Result<(), Failure> {
    if !pool(world, "delegation: no farther than it says")? {
        return Ok(());
    }
    world.ok(&format!("zfs allow -u {ANN} create,mount,destroy,mountpoint,rollback,snapshot tank/u"))?;
    for line in
        ["zfs create -u tank/v/x", "zfs create -u tank/x", "zfs snapshot tank/v@x", "zfs snapshot -r tank@x", "zfs destroy -r tank/v"]
    {
        is_denied(world, line, "permission denied")?;
    }
    // Of what may not be sent no snapshot is taken either.
    is_denied(world, "zfs send tank/v", "cannot send 'tank/v': permission denied")?;
    is_denied(world, "zfs send -nv tank/v", "cannot send 'tank/v': permission denied")?;
    world.ok("zfs get -Hp -o value snapshots_changed tank/v")?.prints("-")?;
    // Recursive verbs are done to all or none.
    is_denied(world, "zfs snapshot tank/u@y tank/v@y", "cannot create snapshot 'tank/v@y': permission denied")?;
    world.ok("zfs list -H -o name -t snapshot -r tank")?.prints("")?;
    is_denied(world, "zfs create tank/u/x", "filesystem successfully created, but it may only be mounted by root")?;
    is_denied(world, "zfs mount tank/u/x", "permission denied")?;
    is_denied(world, "zfs unmount tank/u/x", "permission denied")?;
    world.ok("zfs mount tank/u/x")?;
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(world.path("mnt/tank/u/x"))?);
    same("owner of what a user made", owner.to_string(), ANN.to_string())?;
    by_a_link(world)?;
    is_denied(world, "zfs destroy tank/u/x", "cannot unmount")?;
    does(world, "zfs destroy -rn tank/u/x")?;
    is_denied(world, "zfs set mountpoint=/etc tank/u/x", "cannot unmount")?;
    world.ok("zfs get -H -o value mounted tank/u/x")?.prints("yes")?;
    // Snapshots by mkdir are for those who may take them.
    world.ok("zfs create tank/w")?;
    std::fs::write(world.path("state/sys/module/zfs/parameters/zfs_admin_snapshot"), "1")?;
    let make = |place: &str| {
        let folder = world.at(&format!("mnt/tank/{place}/.zfs/snapshot/made"));
        world.run(&format!("setpriv --reuid={ANN} --regid={ANN} --clear-groups mkdir {folder}")).map(|ran| ran.code == 0)
    };
    same("mkdir where snapshots may be taken, and where not", (make("u/x")?, make("w")?), (true, false))?;
    std::fs::write(world.path("state/sys/module/zfs/parameters/zfs_admin_snapshot"), "0")?;
    world.ok("zfs list -H -o name -t snapshot -r tank")?.prints("tank/u/x@made")?;
    // The daemon mounts it again only where nobody else can change the path meanwhile.
    world.ok("zfs create tank/u/x/in")?;
    does(world, "zfs snapshot tank/u/x@s")?;
    is_denied(world, "zfs rollback tank/u/x@s", "is mounted where others than root can change the path")?;
    world.ok("zfs destroy tank/u/x/in")?;
    does(world, "zfs rollback tank/u/x@s")?;
    world.ok("zfs unmount tank/u/x")?;
    does(world, "zfs set mountpoint={mnt}/later tank/u/x")?;
    world.ok("zfs get -H -o value mounted tank/u/x")?.prints("no")?;
    does(world, "zfs destroy -r tank/u/x")?;
    // Groups of the process count, and no others.
    world.ok("zfs allow -g 4321 snapshot tank/v")?;
    is_denied(world, "zfs snapshot tank/v@g", "permission denied")?;
    let ran = as_user(world, "--groups=4321", "zfs snapshot tank/v@g")?;
    same("exit status of a member", ran.code, 0).map_err(|_| ran.fault("the group was allowed that"))?;
    // Local permissions are not of what lies below.
    world.ok("zfs allow -l -e hold tank/v")?;
    does(world, "zfs hold tag tank/v@g")?;
    world.ok("zfs create -o canmount=off tank/v/w")?;
    world.ok("zfs snapshot tank/v/w@g")?;
    is_denied(world, "zfs hold tag2 tank/v/w@g", "permission denied")?;
    is_denied(world, "zfs hold -r tag2 tank/v@g", "permission denied")?;
    world.ok("zfs set filesystem_limit=1 tank/u")?;
    is_denied(world, "zfs create -u tank/u/more", "out of space")?;
    world.ok("zfs create -o canmount=off tank/u/more")?;
    world.ok("zfs set filesystem_limit=none tank/u")?;
    world.ok("zpool set delegation=off tank")?.prints("")?;
    is_denied(world, "zfs snapshot tank/u@z", "delegated administration is disabled on pool")?;
    world.ok("zpool set delegation=on tank")?;
    does(world, "zfs snapshot tank/u@z")?;
    world.ok("zfs unallow -r everyone tank/v").map(drop)
}

/// Permissions are handed on only by who has them, sets and what creators get are what was said, and all is shown as OpenZFS shows it.
pub fn handing_on(world: &World) -> Result<(), Failure> {
    if !pool(world, "delegation: sets, creators, handing on")? {
        return Ok(());
    }
    for (line, why) in [
        ("zfs allow -u 7 created tank/u", "cannot set permissions on 'tank/u': invalid permission"),
        ("zfs allow -s @x used tank/u", "cannot set permissions on 'tank/u': invalid permission"),
        ("zfs allow -u 7 create tank/no", "cannot open 'tank/no': dataset does not exist"),
    ] {
        world.refused(line, 1, why).map_err(|failure| format!("{line}: {failure}"))?;
    }
    for line in [
        "zfs allow nobody-is-called-so create tank/u",
        "zfs allow -s set create tank/u",
        "zfs allow -c -l create tank/u",
        "zfs unallow tank/u",
    ] {
        world.refused(line, 2, "")?;
    }
    world.ok("zfs allow -s @base snapshot,hold tank")?;
    world.ok("zfs allow -s @more @base,send tank")?;
    world.ok(&format!("zfs allow -u {ANN} @more,allow tank/u"))?;
    world.ok(&format!("zfs allow -u {ANN} create,mount tank/u"))?;
    world.ok("zfs allow -c destroy,mount tank/u")?;
    does(world, "zfs snapshot tank/u/fs@s")?;
    does(world, "zfs create -u tank/u/mine")?;
    does(world, "zfs destroy tank/u/mine")?;
    is_denied(world, "zfs destroy -r tank/u/fs", "permission denied")?;
    does(world, "zfs allow -u 1234 snapshot,send tank/u")?;
    for line in [
        "zfs allow -u 1234 allow tank/u",
        "zfs allow -u 1234 destroy tank/u",
        "zfs allow -u 1234 @base tank/u",
        "zfs allow -u 1234 snapshot tank",
        "zfs allow -e snapshot tank/v",
        "zfs unallow -u 1234 snapshot tank/u",
        "zfs unallow -c tank/u",
        "zfs unallow -s @base tank",
    ] {
        is_denied(world, line, "permission denied")?;
    }
    world.ok("zfs allow tank/u")?.shows(
        "---- Permissions on tank/u -------------------------------------------\n\
         Create time permissions:\n\tdestroy,mount\n\
         Local+Descendent permissions:\n\tuser (unknown: 1234) send,snapshot\n",
    )?;
    world.ok("zfs allow tank/u")?.shows("Permission sets:\n\t@base hold,snapshot\n\t@more @base,send\n")?;
    does(world, &format!("zfs unallow -u {ANN} @more tank/u"))?;
    is_denied(world, "zfs snapshot tank/u/fs@t", "permission denied")?;
    world.ok("zfs unallow -s @more tank")?;
    world.ok("zfs unallow -s @base tank")?;
    world.ok("zfs unallow -c tank/u")?;
    world.ok(&format!("zfs unallow -u {ANN},1234 tank/u"))?;
    world.ok("zfs allow tank/u")?.prints("").map(drop)
}

/// Runs a command line of that user with a file as its standard input.
fn receives(world: &World, words: &str, stream: &str) -> Result<Ran, Failure> {
    let script = world.path("receive.sh");
    std::fs::write(&script, format!("{} receive {words} < {}\n", world.program("zfs"), world.at(stream)))?;
    world.run(&format!("setpriv --reuid={ANN} --regid={ANN} --clear-groups sh {}", script.display()))
}

/// Writes what a line of `zfs send` gives to a file.
fn sends(world: &World, line: &str, file: &str) -> Result<(), Failure> {
    let script = world.path("send.sh");
    std::fs::write(&script, format!("{} send {line} > {}\n", world.program("zfs"), world.at(file)))?;
    world.ok(&format!("sh {}", script.display())).map(drop)
}

/// A package promotes and holds as far as the user may do that: else whoever may receive promotes clones of others' snapshots, and keeps snapshots
/// from being destroyed.
pub fn packages(world: &World) -> Result<(), Failure> {
    if !pool(world, "delegation: packages")? {
        return Ok(());
    }
    let receives_well = |words: &str, file: &str| -> Result<Ran, Failure> {
        let ran = receives(world, words, file)?;
        same("exit status of a receive", ran.code, 0).map_err(|_| ran.fault("that was allowed"))?;
        Ok(ran)
    };
    for line in
        ["create -o canmount=off tank/v/f", "snapshot -r tank/v@a", "clone -o canmount=off tank/v/f@a tank/v/c", "snapshot -r tank/v@b"]
    {
        world.ok(&format!("zfs {line}"))?;
    }
    sends(world, "-R tank/v@b", "all")?;
    world.ok("zfs hold kept tank/v/f@b")?;
    sends(world, "-h tank/v/f@b", "held")?;
    world.ok("zfs promote tank/v/c")?;
    world.ok("zfs snapshot -r tank/v@c")?;
    sends(world, "-R -I @b tank/v@c", "promoted")?;
    let script = world.path("root.sh");
    std::fs::write(&script, format!("{} receive -u tank/u/copy < {}\n", world.program("zfs"), world.at("all")))?;
    world.ok(&format!("sh {}", script.display()))?;
    world.ok(&format!("zfs allow -u {ANN} create,mount,receive tank/u"))?;
    let ran = receives(world, "-u tank/u/copy", "promoted")?;
    same("exit status of a package that promotes", ran.code, 1).map_err(|_| ran.fault("nobody allowed that"))?;
    ran.says("cannot promote 'tank/u/copy/c': permission denied")?;
    world.ok("zfs get -H -o value origin tank/u/copy/c")?.prints("tank/u/copy/f@a")?;
    world.ok(&format!("zfs allow -u {ANN} promote tank/u"))?;
    receives_well("-u tank/u/copy", "promoted")?;
    world.ok("zfs get -H -o value origin tank/u/copy/c")?.prints("-")?;
    receives_well("-u tank/u/one", "held")?.says("cannot hold snapshot 'tank/u/one@b': permission denied")?;
    world.ok("zfs get -H -o value userrefs tank/u/one@b")?.prints("0")?;
    world.ok(&format!("zfs allow -u {ANN} hold tank/u"))?;
    receives_well("-u tank/u/two", "held")?;
    world.ok("zfs get -H -o value userrefs tank/u/two@b")?.prints("1").map(drop)
}

/// A user receives where that was allowed and nowhere else; a stream takes nothing along that the user may not have: neither properties, nor what is in
/// a snapshot of others that it claims to be a clone of.
pub fn receiving(world: &World) -> Result<(), Failure> {
    if !pool(world, "delegation: receiving")? {
        return Ok(());
    }
    world.ok("zfs set compression=gzip tank/u/fs")?;
    world.ok("zfs snapshot tank/u/fs@one")?;
    world.ok("zfs snapshot tank/u/fs@two")?;
    world.ok("zfs snapshot tank/v@secret")?;
    sends(world, "-p tank/u/fs@one", "full")?;
    sends(world, "-i @one tank/u/fs@two", "more")?;
    // Whoever may receive nothing is not waited for.
    world.ok(&format!("mkfifo -m 666 {}", world.at("silent")))?;
    let script = world.path("silent.sh");
    std::fs::write(&script, format!("timeout 60 {} receive -u tank/u/none <> {}\n", world.program("zfs"), world.at("silent")))?;
    let ran = world.run(&format!("setpriv --reuid={ANN} --regid={ANN} --clear-groups sh {}", script.display()))?;
    same("exit status of a receive of nothing", ran.code, 1).map_err(|_| ran.fault("a stranger's stream was waited for"))?;
    ran.says("cannot receive: permission denied")?;
    let refused = |words: &str, file: &str| -> Result<(), Failure> {
        let ran = receives(world, words, file)?;
        same("exit status of a receive", ran.code, 1).map_err(|_| ran.fault("nobody allowed that"))?;
        ran.says("permission denied").map(drop)
    };
    refused("-u tank/u/copy", "full")?;
    world.ok(&format!("zfs allow -u {ANN} create,mount tank/u"))?;
    refused("-u tank/u/copy", "full")?;
    world.ok(&format!("zfs allow -u {ANN} receive:append tank/u"))?;
    refused("-u tank/v/copy", "full")?;
    let ran = receives(world, "-u tank/u/copy", "full")?;
    same("exit status of a receive", ran.code, 0).map_err(|_| ran.fault("that was allowed"))?;
    ran.says("cannot receive compression property on tank/u/copy: permission denied")?;
    world.ok("zfs get -H -o value,source compression tank/u/copy")?.prints("on\tdefault")?;
    let ran = receives(world, "-u tank/u/copy", "more")?;
    same("exit status of an increment", ran.code, 0).map_err(|_| ran.fault("that was allowed"))?;
    // By force takes more.
    world.ok("zfs create -o canmount=off tank/u/full")?;
    refused("-uF tank/u/full", "full")?;
    world.ok(&format!("zfs allow -u {ANN} receive tank/u"))?;
    refused("-u -o origin=tank/v@secret tank/u/stolen", "full")?;
    world.refused("zfs list tank/u/stolen", 1, "does not exist")?;
    let ran = receives(world, "-uF tank/u/full", "full")?;
    same("exit status of a receive by force", ran.code, 0).map_err(|_| ran.fault("that was allowed"))?;
    world.ok("zfs set snapshot_limit=1 tank/u")?;
    let ran = receives(world, "-u tank/u/limited", "full")?;
    same("exit status of a receive beyond the limit", ran.code, 1).map_err(|_| ran.fault("the limit leaves no room"))?;
    ran.says("out of space")?;
    world.ok("zfs set snapshot_limit=none tank/u")?;
    let ran = receives(world, "tank/u/mounted", "full")?;
    same("exit status of a receive that would be mounted", ran.code, 1).map_err(|_| ran.fault("only root mounts"))?;
    ran.says("cannot mount 'tank/u/mounted': Insufficient privileges")?;
    world.ok("zfs get -H -o value mounted tank/u/mounted")?.prints("no")?;
    // What root mounted stays mounted.
    world.ok("zfs mount tank/u/mounted")?;
    let ran = receives(world, "-uF tank/u/mounted", "more")?;
    same("exit status of a receive into what is mounted", ran.code, 0).map_err(|_| ran.fault("that was allowed"))?;
    world.ok("zfs get -H -o value mounted tank/u/mounted")?.prints("yes").map(drop)
}
