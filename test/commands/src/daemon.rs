//! The daemon as a service: what it takes over from whoever starts it, whom it believes, and what strangers can cost it.

use crate::mounts::kill_both;
use crate::waiting::until;
use crate::world::{Failure, Ran, World, same, supervisor};
use need::Need;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time by which a daemon that can do something has done it.
const PATIENCE: Duration = Duration::from_secs(20);
/// User id of whoever may have few threads.
const LIMITED: u32 = 54_322;
/// User id of somebody else.
const STRANGER: u32 = 54_321;

fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?)
}

fn mode(world: &World, name: &str) -> Result<String, Failure> {
    Ok(format!("{:o}", std::fs::metadata(world.path(name))?.mode() & 0o777))
}

/// Paths that the daemon's descriptors lead to, by their numbers.
fn descriptors(world: &World) -> Result<Vec<(u32, String)>, Failure> {
    let folder = format!("/proc/{}/fd", world.daemon()?);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)?.flatten() {
        let number = entry.file_name().to_string_lossy().parse()?;
        // One that is closed meanwhile leads nowhere.
        found.push((number, std::fs::read_link(entry.path()).unwrap_or_default().display().to_string()));
    }
    found.sort();
    Ok(found)
}

/// Line of a file of the daemon's in /proc.
fn of_daemon(world: &World, file: &str, name: &str) -> Result<String, Failure> {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", world.daemon()?))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.ok_or(format!("      no '{name}' in {file}"))?.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Started from a shell with a file open, an umask of zero and a folder of its own, it keeps none of them.
pub fn takes_nothing_over(world: &World) -> Result<(), Failure> {
    std::fs::write(world.path("held"), "")?;
    let script = format!("umask 0\nulimit -S -n 256\nexec 9<{}\n{} list\n", world.at("held"), world.program("zpool"));
    std::fs::write(world.path("start.sh"), script)?;
    world.ok("sh {dir}/start.sh")?.prints("no pools available")?;
    let log = std::fs::canonicalize(world.path("state/zirconiad.log"))?.display().to_string();
    let open = descriptors(world)?;
    let leads = |number: u32| open.iter().find(|(own, _)| *own == number).map(|(_, path)| path.clone()).unwrap_or_default();
    same("standard input, output, error", [leads(0), leads(1), leads(2)], ["/dev/null".to_string(), log.clone(), log])?;
    same("the shell's file is open in it", open.iter().any(|(_, path)| path.ends_with("/held")), false)?;
    same("its folder", std::fs::read_link(format!("/proc/{}/cwd", world.daemon()?))?.display().to_string(), "/".to_string())?;
    same("its umask", of_daemon(world, "status", "Umask:")?, "0022".to_string())?;
    let files = of_daemon(world, "limits", "Max open files")?;
    let files: Vec<&str> = files.split(' ').collect();
    same("its limit of descriptors is as high as may be", files.first(), files.get(1))?;
    world.vdevs(&["a"])?;
    world.ok("zpool create -m none tank {vdevs}/a")?;
    for name in ["zirconiad.lock", "zirconiad.log", "zirconiad.sock", "pools.json"] {
        same(name, mode(world, &format!("state/{name}"))?, "600".to_string())?;
    }
    // A relative name of the folder means the same to the daemon.
    let (daemon, script) = (world.daemon()?, format!("ZIRCONIA_STATE=state {} list -H -o name\n", world.program("zpool")));
    std::fs::write(world.path("relative.sh"), script)?;
    world.ok("sh {dir}/relative.sh")?.prints("tank")?;
    same("the daemon", world.daemon()?, daemon)?;
    world.ok("zirconia stop")?;
    world.ok("sh {dir}/relative.sh")?.prints("tank")?;
    world.ok("zpool list -H -o name")?.prints("tank")?;
    Ok(())
}

/// True when a line of the log begins as it should: a time of RFC 3339 with its zone, and a level.
fn is_stamped(line: &str) -> bool {
    let shape: String = line.chars().take(29).map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    let level = ["ERROR ", "WARN  ", "INFO  ", "DEBUG "].iter().any(|level| line.get(30..).is_some_and(|rest| rest.starts_with(level)));
    level && ["0000-00-00T00:00:00.000+00:00", "0000-00-00T00:00:00.000-00:00"].contains(&shape.as_str())
}

/// Runs the daemon in the foreground until it has opened `tank`, its standard error a file that it takes for the journal or not; gives what it said.
fn said_in_foreground(world: &World, is_journal: bool) -> Result<String, Failure> {
    let path = world.path("said");
    let (file, place) = (std::fs::File::create(&path)?, std::fs::metadata(&path)?);
    let journal = format!("{}:{}", place.dev(), place.ino() + u64::from(!is_journal));
    let mut command = std::process::Command::new(world.program("zirconiad"));
    command.env("ZIRCONIA_STATE", world.path("state")).env("JOURNAL_STREAM", journal).env("ZIRCONIA_LOG", "debug");
    let mut daemon = command.stderr(file).spawn()?;
    let begun = Instant::now();
    while !std::fs::read_to_string(&path)?.contains("pool 'tank' is open in txg ") && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    world.ok("zirconia stop")?;
    daemon.wait()?;
    Ok(std::fs::read_to_string(&path)?)
}

/// Who looks for what happened finds it, and when: in the log, as much as was asked for, and in the journal with its priority.
pub fn log(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    let ran = std::process::Command::new(world.program("zpool"))
        .arg("list")
        .env("ZIRCONIA_STATE", world.path("state"))
        .env("ZIRCONIA_LOG", "loud")
        .output()?;
    Ran::of("ZIRCONIA_LOG=loud zpool list", &ran).says("ZIRCONIA_LOG is 'loud', not off, error, warn, info or debug")?;
    world.ok("zpool create -m none tank {vdevs}/a")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    let log = std::fs::read_to_string(world.path("state/zirconiad.log"))?;
    same(&format!("lines without time and level in {log}"), log.lines().filter(|line| !is_stamped(line)).count(), 0)?;
    world.logged(&["INFO  pool 'tank' is open in txg ", "): create\n", "): export\n", "): import\n"])?;
    same(&format!("debug messages are not: {log}"), log.contains("command: zpool create"), false)?;
    world.ok("zirconia stop")?;
    std::fs::remove_file(world.path("state/zirconiad.log"))?;
    world.ok_with(("ZIRCONIA_LOG", Path::new("error")), "zpool list")?;
    world.ok("zirconia stop")?;
    same("what was no error", std::fs::read_to_string(world.path("state/zirconiad.log"))?, String::new())?;
    let said = said_in_foreground(world, true)?;
    let is_numbered = |line: &str| ["<3>", "<4>", "<6>", "<7>"].iter().any(|priority| line.starts_with(priority));
    same(&format!("priorities in {said}"), said.lines().all(is_numbered) && said.contains("\n<7>"), true)?;
    let said = said_in_foreground(world, false)?;
    same(&format!("a file that is not the journal has times: {said}"), said.lines().all(is_stamped) && said.contains(" DEBUG "), true)
}

/// Folders and files that somebody else owns or can write decide nothing: a list of providers is code to run.
pub fn believes_nobody_else(world: &World) -> Result<(), Failure> {
    let state = world.path("state");
    let refuses = |text: &str| -> Result<(), Failure> {
        world.refused("zpool list", 1, "cannot start the daemon: ")?.says(text)?;
        same("a daemon was started", world.path("state/zirconiad.sock").exists(), false)
    };
    set_mode(&state, 0o777)?;
    refuses("state can be written by everybody\n")?;
    set_mode(&state, 0o775)?;
    refuses("state can be written by its group\n")?;
    set_mode(&state, 0o755)?;
    if !need::lacks(Need::Root, "daemon: a state folder of somebody else")? {
        chown(&state, Some(STRANGER), None)?;
        refuses("state belongs to user 54321\n")?;
        chown(&state, Some(0), None)?;
    }
    std::fs::write(world.path("victim"), "precious")?;
    for file in ["zirconiad.lock", "zirconiad.log"] {
        let link = world.path(&format!("state/{file}"));
        let _ = std::fs::remove_file(&link);
        symlink(world.path("victim"), &link)?;
        refuses(&format!("{file} is not a file but a link"))?;
        std::fs::remove_file(&link)?;
    }
    // What would wait for another end is no file either.
    let _ = std::fs::remove_file(state.join("zirconiad.lock"));
    world.ok("mkfifo {dir}/state/zirconiad.lock")?;
    refuses("zirconiad.lock is not a file\n")?;
    std::fs::remove_file(state.join("zirconiad.lock"))?;
    same("what the link named", std::fs::read_to_string(world.path("victim"))?, "precious".to_string())?;
    std::fs::rename(&state, world.path("elsewhere"))?;
    symlink(world.path("elsewhere"), &state)?;
    refuses("state is not a folder")?;
    std::fs::remove_file(&state)?;
    std::fs::rename(world.path("elsewhere"), &state)?;
    // Lists that anybody could have written are not believed, and said.
    let planted = format!("{{\"evil\": \"{}\"}}", world.at("evil.so"));
    std::fs::write(state.join("providers.json"), planted)?;
    std::fs::write(state.join("pools.json"), "[]")?;
    ["providers.json", "pools.json"].iter().try_for_each(|name| set_mode(&state.join(name), 0o666))?;
    world.ok("zirconia provider list -H")?.hides("evil")?;
    let log = std::fs::read_to_string(state.join("zirconiad.log"))?;
    for name in ["providers.json", "pools.json"] {
        same(&format!("the log tells of {name}: {log}"), log.contains(&format!("{name} can be written by everybody")), true)?;
    }
    // So are libraries and secrets.
    std::fs::write(world.path("open.so"), "")?;
    std::fs::write(world.path("secret"), "correct horse battery staple\n")?;
    ["open.so", "secret"].iter().try_for_each(|name| set_mode(&world.path(name), 0o666))?;
    world.refused("zirconia provider load {dir}/open.so", 1, "open.so can be written by everybody")?;
    world.refused("zirconia provider load tcp:127.0.0.1:1?secret-file=secret", 1, "secret can be written by everybody")?;
    world.ok("zirconia stop")?;
    std::fs::remove_file(state.join("pools.json"))?;
    world.ok("mkfifo {dir}/state/pools.json")?;
    world.ok("zpool list")?;
    let log = std::fs::read_to_string(state.join("zirconiad.log"))?;
    same(&format!("the log tells of the list: {log}"), log.contains("pools.json is not a file"), true)
}

/// Strangers at the port of the metrics take a bounded share, and a daemon without free descriptors goes on.
pub fn out_of_descriptors(world: &World) -> Result<(), Failure> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    world.vdevs(&["a"])?;
    world.ok_with(("ZIRCONIA_METRICS", Path::new(&address)), "zpool create -m none tank {vdevs}/a")?;
    let before = descriptors(world)?.len();
    let strangers: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(&address)).collect::<Result<_, _>>()?;
    for mut stranger in &strangers {
        stranger.write_all(b"GET /metr")?;
    }
    world.ok("zpool list -H -o name")?.prints("tank")?;
    let taken = descriptors(world)?.len().saturating_sub(before);
    same(&format!("120 strangers have {taken} descriptors, no more than 40"), taken <= 40, true)?;
    drop(strangers);
    // Nor do more silent ones than there are places keep a command out until it gives up.
    let silent: Vec<UnixStream> = (0..700).map(|_| UnixStream::connect(world.path("state/zirconiad.sock"))).collect::<Result<_, _>>()?;
    world.ok("zpool list -H -o name")?.prints("tank")?;
    drop(silent);
    // Descriptors for a few more only: who connects then waits, and the daemon goes on.
    let (daemon, hard) = (world.daemon()?, of_daemon(world, "limits", "Max open files")?);
    let hard = hard.split(' ').nth(1).unwrap_or_default().to_string();
    let limit = descriptors(world)?.iter().map(|(number, _)| number + 1).max().unwrap_or_default() + 4;
    world.ok(&format!("prlimit --pid {daemon} --nofile={limit}:{hard}"))?;
    let connect = || UnixStream::connect(world.path("state/zirconiad.sock"));
    let many: Vec<UnixStream> = (0..limit + 8).map(|_| connect()).collect::<Result<_, _>>()?;
    let mut last = connect()?;
    last.write_all(b"GET /v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n")?;
    let begun = Instant::now();
    while !descriptors(world)?.iter().any(|(number, _)| number + 1 == limit) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(many);
    let mut answer = [0; 15];
    last.read_exact(&mut answer)?;
    same("the answer", &answer, b"HTTP/1.1 200 OK")?;
    world.ok(&format!("prlimit --pid {daemon} --nofile={hard}:{hard}"))?;
    world.ok("zpool list -H -o name")?.prints("tank")?;
    same("the daemon", world.daemon()?, daemon)
}

/// If this fails, whoever starts a daemon where descriptors are scarce is told that it runs, and it does not, or reads of defects.
pub fn few_descriptors(world: &World) -> Result<(), Failure> {
    // Root raises its limits where it may.
    let less = "less='setpriv --bounding-set -sys_resource'\n$less true 2>/dev/null || less=";
    for limit in [8, 12, 16, 24, 32, 48] {
        let script = format!("{less}\nulimit -n {limit}\nexec $less {} --background\n", world.program("zirconiad"));
        std::fs::write(world.path("few.sh"), script)?;
        let ran = world.run("sh {dir}/few.sh")?;
        if ran.code == 0 {
            drop(UnixStream::connect(world.path("state/zirconiad.sock"))?);
            world.ok("zirconia stop")?;
            continue;
        }
        ran.says("cannot start the daemon: too many open files")?;
        same(&format!("lines with {limit} descriptors"), ran.err.trim_end().lines().count(), 1)?;
    }
    Ok(())
}

/// If this fails, a daemon that the system refuses threads panics, hangs or leaves its pools open, or says that it runs where it cannot.
pub fn few_threads(world: &World) -> Result<(), Failure> {
    // Root has no limit.
    let user = if need::is_root() { format!("setpriv --reuid={LIMITED} --regid={LIMITED} --clear-groups ") } else { String::new() };
    let program = |name: &str| world.program(name);
    if world.out_of_reach(world.run(&format!("{user}{} --help", program("zpool")))?, "daemon: few threads")? {
        return Ok(());
    }
    world.vdevs(&["a", "b"])?;
    if need::is_root() {
        world.ok(&format!("chown -R {LIMITED}:{LIMITED} {{dir}}"))?;
    }
    for limit in [3, 15, 20, 25] {
        let ran = world.run(&format!("{user}prlimit --nproc={limit}:{limit} {} --background", program("zirconiad")))?;
        ran.says("cannot start the daemon: too few threads: it needs ")?;
        same(&format!("exit status and lines with {limit} threads"), (ran.code, ran.err.trim_end().lines().count()), (1, 1))?;
    }
    let run = |name: &str, words: &str| world.run(&format!("{user}{} {words}", program(name)));
    let ok = |name: &str, words: &str| world.ok(&format!("{user}{} {words}", program(name)));
    ok("zpool", "create -O canmount=off tank {vdevs}/a")?;
    ok("zpool", "create -O canmount=off other {vdevs}/b")?;
    let daemon = world.daemon()?;
    world.ok(&format!("{user}prlimit --pid {daemon} --nproc=5:5"))?;
    for (name, words) in [("zfs", "create -o canmount=off tank/fs"), ("zpool", "scrub -w tank"), ("zpool", "set comment=no tank")] {
        let ran = run(name, words)?;
        ran.says("the system starts no more threads")?.says("nothing was done")?;
        same(&format!("exit status of {name} {words}"), ran.code, 1)?;
    }
    for _ in 0..5 {
        ok("zfs", "list -H -o name -r tank")?.prints("tank")?;
    }
    ok("zpool", "export other")?;
    same("the daemon", world.daemon()?, daemon)?;
    ok("zirconia", "stop")?;
    let log = std::fs::read_to_string(world.path("state/zirconiad.log"))?;
    same("panics and aborts in the log", log.contains("panicked") || log.contains("ended by signal"), false)?;
    ok("zfs", "create -o canmount=off tank/fs")?;
    ok("zpool", "destroy tank").map(drop)
}

/// Waits until a file that the next daemon goes by is written again.
fn is_put_back(world: &World, name: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    while !world.path("state").join(name).exists() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("      {name} is not put back: the next daemon would not know of pools or mounts").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// If this fails, a daemon whose state directory was removed keeps its devices, out of everybody's reach, and the next one has no pools.
pub fn keeps_its_place(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    let daemon = world.daemon()?;
    for _ in 0..3 {
        // The folder stays where statistics are mounted in it.
        world.run("rm -rf {dir}/state")?;
        world.ok("zpool list -H -o name")?.prints("tank")?;
        same("the daemon", world.daemon()?, daemon.clone())?;
    }
    is_put_back(world, "pools.json")?;
    // Once nothing else is missing, too.
    for name in ["mounts.json", "pools.json"] {
        is_put_back(world, name)?;
        std::fs::remove_file(world.path("state").join(name))?;
        is_put_back(world, name)?;
    }
    // What has other daemons read their files again ends nobody's mounts.
    let supervisor = supervisor(&daemon).ok_or("      nobody watches the daemon")?;
    world.ok(&format!("kill -HUP {daemon} {supervisor}"))?;
    world.ok("zpool list -H -o name")?.prints("tank")?;
    same("the daemon after SIGHUP", world.daemon()?, daemon.clone())?;
    // The daemon dies before it has forgotten a pool that it destroyed.
    let remembered = std::fs::read(world.path("state/pools.json"))?;
    world.ok("zpool destroy tank")?;
    world.ok(&format!("kill -9 {supervisor} {daemon}"))?;
    std::fs::write(world.path("state/pools.json"), remembered)?;
    world.ok("zpool list")?.prints("no pools available")?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.ok("zpool destroy tank").map(drop)
}

/// If this fails, a full file system below the state directory makes commands fail that did what they should, and ends the daemon's watch.
pub fn without_room(world: &World) -> Result<(), Failure> {
    if need::lacks(Need::Root, "daemon: a state directory without room")? {
        return Ok(());
    }
    with_little_room(world, in_a_full_place)
}

/// If this fails, a pool that was exported while the file system below the state directory was full is open again after a crash, perhaps on two hosts, or
/// nobody is told that a new one will not be.
pub fn unwritten_list(world: &World) -> Result<(), Failure> {
    if need::lacks(Need::Root, "daemon: a list of pools that cannot be written")? {
        return Ok(());
    }
    with_little_room(world, changed_in_a_full_place)
}

/// Does something with a state directory in a file system of its own, which has room for little.
fn with_little_room(world: &World, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    std::fs::create_dir_all(world.path("state"))?;
    world.ok("mount -t tmpfs -o size=64k,mode=700 tmpfs {dir}/state")?;
    let done = work(world);
    let ended = world.ok("zirconia stop").map(drop);
    world.run("umount -l {dir}/state")?;
    done.and(ended)
}

fn changed_in_a_full_place(world: &World) -> Result<(), Failure> {
    let warning = format!("warning: which pools are open is not written down: {}: No space left on device", world.at("state/pools.json"));
    world.ok("zpool create -m none tank {vdevs}/a")?;
    world.run("dd if=/dev/zero of={dir}/state/fill bs=1k")?;
    world.ok("zpool create -m none two {vdevs}/b")?.says(&warning)?;
    world.ok("zpool sync two")?.hides("warning")?;
    world.ok("rm {dir}/state/fill")?;
    // Once there is room, without anybody asking for it.
    until("the list of pools", || Ok(std::fs::read_to_string(world.path("state/pools.json"))?.contains("\"two\"")))?;
    world.run("dd if=/dev/zero of={dir}/state/fill bs=1k")?;
    world.ok("zpool export tank")?.says(&warning)?;
    kill_both(world)?;
    world.ok("rm {dir}/state/fill")?;
    // The list still has both: what the labels say counts.
    world.ok("zpool list -H -o name")?.prints("two")?;
    world.logged(&["pool 'tank' is forgotten: the pool was exported"])?;
    let imported = world.ok("zpool import -N -d {vdevs} tank")?;
    same("warnings once there is room", imported.err.as_str(), "")
}

fn in_a_full_place(world: &World) -> Result<(), Failure> {
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.run("dd if=/dev/zero of={dir}/state/fill bs=1k")?;
    for line in ["zfs create tank/a", "zfs snapshot tank@a", "zfs set mountpoint={mnt}/other tank/a", "zfs rename tank/a tank/b"] {
        world.ok(line)?;
    }
    std::fs::write(world.path("mnt/tank/file"), b"kept")?;
    world.ok("zpool sync tank")?;
    let daemon = world.daemon()?;
    world.ok(&format!("kill -9 {daemon}"))?;
    let begun = Instant::now();
    while std::fs::read(world.path("mnt/tank/file")).ok().as_deref() != Some(b"kept") {
        if begun.elapsed() > PATIENCE {
            return Err("      the mount does not come back".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    world.ok("rm {dir}/state/fill").map(drop)
}

/// If this fails, a port that another program has when the daemon starts takes all pools and mounts away, or nobody can find out why a door is shut.
pub fn taken_ports(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m none tank {vdevs}/a")?;
    world.ok("zirconia stop")?;
    let taken: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let addresses: Vec<String> =
        taken.iter().map(|listener| listener.local_addr().map(|address| address.to_string())).collect::<Result<_, _>>()?;
    let names = ["ZIRCONIA_ISCSI", "ZIRCONIA_NBD", "ZIRCONIA_METRICS"];
    let variables: String = names.iter().zip(&addresses).map(|(name, address)| format!("{name}={address} ")).collect();
    world.ok(&format!("env {variables}{} start", world.program("zirconia")))?.shows("pools: tank")?;
    let services = ["iSCSI", "NBD", "metrics"].iter().zip(&addresses);
    let sentences: Vec<String> = services
        .map(|(service, address)| format!("{service}: not served at {address}: Address already in use; it is tried again"))
        .collect();
    let status = world.ok("zirconia status")?;
    sentences.iter().try_for_each(|sentence| status.shows(sentence).map(drop))?;
    let list = world.ok("zirconia target list")?;
    list.shows(&sentences[0])?.shows(&sentences[1])?.hides("metrics")?.hides("ZIRCONIA_ISCSI")?;
    world.ok("zpool events")?.shows("zirconia_port_closed")?;
    world.logged(&[sentences[2].as_str()])?;
    drop(taken);
    until("the ports that are free again", || Ok(!world.ok("zirconia status")?.out.contains("not served")))?;
    let list = world.ok("zirconia target list")?;
    list.shows(&format!("iSCSI is served at {}", addresses[0]))?.shows(&format!(" and {}\n", addresses[1]))?;
    addresses.iter().try_for_each(|address| TcpStream::connect(address).map(drop))?;
    world.ok("zpool events")?.shows("zirconia_port_opened").map(drop)
}

/// A daemon that died with who would start it again leaves dead mounts: `stop` and `status` say which, and what helps, instead of "not running" alone.
pub fn dead_mounts(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    std::fs::write(world.path("mnt/tank/file"), "1")?;
    world.ok("zpool sync tank")?;
    let daemon = world.daemon()?;
    let other = supervisor(&daemon).ok_or("      no process starts the daemon again")?;
    world.ok(&format!("kill -9 {other} {daemon}"))?;
    let place = format!("its mount at {} is dead", world.at("mnt/tank"));
    world.ok("zirconia stop")?.prints("not running")?.says(&place)?.says("'zirconia start' brings it back")?;
    world.refused("zirconia status", 3, &place)?;
    world.ok("zirconia start")?.shows("tank")?;
    same("what was written", std::fs::read_to_string(world.path("mnt/tank/file"))?.as_str(), "1")?;
    world.ok("zirconia stop")?;
    let again = world.ok("zirconia stop")?;
    same("nothing is dead", (again.out.trim(), again.err.as_str()), ("not running", ""))
}
