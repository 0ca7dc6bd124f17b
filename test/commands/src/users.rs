//! Who runs the commands: readers that go away, users in other zones, users whom the daemon does not belong to.

use crate::world::{Failure, Ran, World, same};
use rustix::thread::{Uid, set_thread_res_uid};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// Exit code that a shell shows for a program that SIGPIPE ended.
const NO_READER: i32 = 141;

fn pool(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/fs")?;
    Ok(())
}

/// Runs a program of ours with the standard output that is given.
fn into(world: &World, line: &str, output: std::process::Stdio) -> Result<Ran, Failure> {
    let mut words = line.split_whitespace();
    let program = world.program(words.next().unwrap_or_default());
    let mut command = Command::new(program);
    let ran = command.args(words).env("ZIRCONIA_STATE", world.path("state")).stdout(output).output()?;
    Ok(Ran::of(line, &ran))
}

/// Output into a pipe that nobody reads, and onto a full disk: no program panics, and what is lost is said.
pub fn output(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let vdev = world.at("vdevs/a");
    for line in ["zfs list", "zfs get all", "zpool status", "zpool history", "zpool events -v", "zpool help", "zirconia status"] {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let ran = into(world, line, writer.into())?;
        same("exit status without a reader", (ran.code, ran.err.as_str()), (NO_READER, ""))
            .map_err(|_| ran.fault("it should end quietly"))?;
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full")?;
        let ran = into(world, line, full.into())?;
        same("exit status on a full disk", ran.code, 1).map_err(|_| ran.fault("it should exit with 1"))?;
        ran.says("cannot write the output: No space left on device")?;
    }
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    same("exit status of zdb", into(world, &format!("zdb -l {vdev}"), writer.into())?.code, NO_READER)?;
    world.refused("zdb -l {vdevs}/nothing", 1, "").and_then(|ran| ran.shows("No such file or directory")?.hides("os error").map(drop))?;
    // Dates are those of whoever asks.
    let zone = |zone: &str| world.ok_with(("TZ", std::path::Path::new(zone)), "zfs get -H -o value creation tank").map(|ran| ran.out);
    same("one date in two zones", zone("UTC")? == zone("XYZ-5:30")?, false)?;
    let history = |zone: &str| world.ok_with(("TZ", std::path::Path::new(zone)), "zpool history tank").map(|ran| ran.out);
    same("history in two zones", history("UTC")? == history("XYZ-5:30")?, false)?;
    without_output(world)
}

/// Commands that are started without a standard output: a backup that went nowhere is none, and what has nothing to say works all the same.
fn without_output(world: &World) -> Result<(), Failure> {
    const UNWRITTEN: &str = "cannot write the output: Bad file descriptor";
    world.ok("zfs snapshot tank/fs@s")?;
    let closed = |line: &str| -> Result<Ran, Failure> { Ok(Ran::of(line, &world.shell(&format!("{line} >&-")).output()?)) };
    for (line, text) in [
        ("zfs send tank/fs@s", "cannot send 'tank/fs@s': Bad file descriptor"),
        ("zfs send tank/fs@s | zstream recompress lz4", "cannot rewrite the stream: Bad file descriptor"),
        ("zfs send tank/fs@s | zstream dump", UNWRITTEN),
        ("zfs list", UNWRITTEN),
        ("zpool status", UNWRITTEN),
        ("zdb -l $V/a", UNWRITTEN),
    ] {
        let ran = closed(line)?;
        same("exit status without a standard output", ran.code, 1).map_err(|_| ran.fault("it should exit with 1"))?;
        ran.says(text)?;
    }
    let ran = closed("zfs set atime=off tank/fs")?;
    same("exit status of what prints nothing", ran.code, 0).map_err(|_| ran.fault("it should succeed"))
}

/// Connections of a user to a socket, every other one with half a request; they are open until they are dropped.
fn held_by(user: u32, socket: &Path, count: usize) -> Result<Vec<UnixStream>, Failure> {
    let open = || -> std::io::Result<Vec<UnixStream>> {
        // Of this thread alone, which ends then.
        let user = Uid::from_raw(user);
        set_thread_res_uid(user, user, user)?;
        let mut held = Vec::new();
        for number in 0..count {
            let mut stream = UnixStream::connect(socket)?;
            if number % 2 == 0 {
                // The daemon may have closed it.
                let _ = stream.write_all(b"POST /v1/request HTTP/1.1\r\nhost: z\r\n");
            }
            held.push(stream);
        }
        Ok(held)
    };
    let held = std::thread::scope(|scope| scope.spawn(open).join());
    held.map_or_else(|_| Err("a thread of a user panicked".into()), |held| held.map_err(Failure::from))
}

/// Users who open connections and say nothing, or half of something, keep nobody from looking: not others, not themselves. Otherwise monitoring and
/// scripts of everybody fail as long as one user likes.
pub fn crowds(world: &World) -> Result<(), Failure> {
    const USERS: [u32; 5] = [61_001, 61_002, 61_003, 61_004, 61_005];
    pool(world)?;
    let zpool = |user: u32, words: &str| {
        world.run(&format!("setpriv --reuid={user} --regid={user} --clear-groups {} {words}", world.program("zpool")))
    };
    if world.out_of_reach(zpool(65_534, "--help")?, "users: crowds of connections")? {
        return Ok(());
    }
    let socket = world.path("state/zirconiad.read.sock");
    let looks = |user: u32, who: &str| -> Result<(), Failure> {
        let ran = zpool(user, "list -H -o name")?;
        same(who, ran.code, 0).map_err(|_| ran.fault("silence of others keeps nobody from looking"))?;
        ran.prints("tank").map(drop)
    };
    let one = held_by(USERS[0], &socket, 120)?;
    looks(65_534, "exit status of another user's look")?;
    looks(USERS[0], "exit status of the same user's look")?;
    // Several of them take all places.
    let others = USERS.iter().map(|user| held_by(*user, &socket, 40)).collect::<Result<Vec<_>, Failure>>()?;
    looks(65_534, "exit status of another user's look beside several")?;
    looks(USERS[4], "exit status of a look of one of several")?;
    world.ok("zpool list -H -o name")?.prints("tank")?;
    drop((one, others));
    Ok(())
}

/// Looks that everybody may take, and what they show: at pools, and at the daemon itself, without what is secret.
const LOOKS: [(&str, &str); 11] = [
    ("zpool list", "tank"),
    ("zpool status -v tank", "tank"),
    ("zpool get all tank", "tank"),
    ("zpool iostat -v", "tank"),
    ("zfs list -r tank", "tank"),
    ("zfs get all tank/fs", "tank"),
    ("zfs mount", "tank"),
    ("zirconia status", "pools: tank"),
    ("zirconia provider list", "CAPABILITIES"),
    ("zirconia provider list -H", "software\t"),
    ("zirconia target list", "iSCSI is not served"),
];

/// Another user looks at everything that OpenZFS shows to everybody, changes nothing, and starts nothing.
pub fn strangers(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let program =
        |line: &str| line.split_once(' ').map_or_else(|| world.program(line), |(name, rest)| format!("{} {rest}", world.program(name)));
    let stranger = |line: &str| world.run(&format!("setpriv --reuid=65534 --regid=65534 --clear-groups {}", program(line)));
    if world.out_of_reach(stranger("zpool --help")?, "users: strangers")? {
        return Ok(());
    }
    for (line, shown) in LOOKS {
        let ran = stranger(line)?;
        same("exit status of a look", ran.code, 0).map_err(|_| ran.fault("everybody may look"))?;
        ran.shows(shown)?;
    }
    same("exit status of a wait", stranger("zpool wait tank")?.code, 0)?;
    for line in [
        "zfs create tank/x",
        "zfs set atime=off tank",
        "zfs snapshot tank@x",
        "zfs destroy -r tank/fs",
        "zfs unmount tank/fs",
        "zpool destroy tank",
        "zpool export tank",
        "zpool scrub tank",
        "zpool set comment=x tank",
        "zpool history",
        "zpool events",
        "zpool import",
        "zirconia stop",
        "zirconia provider unload software",
        "zirconia target deny tank/v iqn.a",
        "zinject",
    ] {
        let ran = stranger(line)?;
        same("exit status of a change", ran.code, 1).map_err(|_| ran.fault("only the owner may do that"))?;
        ran.says("permission denied")?.prints("")?;
    }
    // Past the commands: the socket itself refuses, and goes on.
    let ask = |body: &str| {
        world.run(&format!(
            "setpriv --reuid=65534 --regid=65534 --clear-groups curl -s --unix-socket {} -d {body} http://z/v1/request",
            world.at("state/zirconiad.read.sock")
        ))
    };
    if world.run("curl --version")?.code == 0 {
        ask(r#"{"op":"stop"}"#)?.shows("permission denied")?;
        ask("nonsense")?.shows("cannot read the request")?;
        ask(r#"{"op":"pool-query","args":{"pools":[],"errors":true}}"#)?.shows(r#""name":"tank""#)?;
    }
    world.ok("zpool list -H -o name,health")?.prints("tank\tONLINE")?;
    world.ok("zirconia stop")?;
    let ran = stranger("zpool list")?;
    same("exit status without a daemon", ran.code, 1)?;
    ran.says("none is running")?;
    stranger("zirconia status")?.says("none is running")?;
    without_place(world)?;
    world.ok("zirconia status").map_or(Ok(()), |ran| Err(ran.fault("a look started a daemon")))
}

/// A user without a place for a daemon, and one who named a place below a file: they are told what to set, not that root has to start something.
fn without_place(world: &World) -> Result<(), Failure> {
    const OWN: &str = "for pools of your own name a directory of yours (ZIRCONIA_STATE, or XDG_RUNTIME_DIR)";
    const USER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let refused = |setting: &str, line: &str, texts: &[&str]| -> Result<(), Failure> {
        let (program, rest) = line.split_once(' ').unwrap_or((line, ""));
        let ran = world.refused(&format!("{USER} env {setting} {} {rest}", world.program(program)), 1, "")?;
        texts.iter().try_for_each(|text| ran.says(text).map(drop))
    };
    let nowhere = "-u ZIRCONIA_STATE -u XDG_RUNTIME_DIR";
    refused(nowhere, "zirconia start", &["permission denied", OWN])?;
    refused(nowhere, "zpool scrub tank", &["cannot scrub tank", "permission denied", OWN])?;
    std::fs::write(world.path("file"), b"")?;
    let setting = format!("ZIRCONIA_STATE={}", world.at("file/state"));
    for line in ["zirconia start", "zfs create tank/x", "zpool list"] {
        refused(&setting, line, &["Not a directory", "name a directory of yours (ZIRCONIA_STATE"])?;
    }
    refused(&format!("ZIRCONIA_STATE={}", world.at("state")), "zpool list", &["none is running", OWN])
}
