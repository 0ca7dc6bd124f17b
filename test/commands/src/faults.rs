//! Simulated faults and what follows from them: `zinject`, slow devices, parameters of the I/O scheduler, programs run on events.

use crate::world::{Failure, World, mebibytes, same};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// Errors, wrong bytes and delays of devices; errors in files. All of it goes when it is cleared.
pub fn inject(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank mirror {vdevs}/a {vdevs}/b")?;
    let data = mebibytes(1);
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool sync tank")?;
    world.ok("zinject")?.shows("No handlers registered.")?.shows("Run 'zinject -h' for usage information.")?;
    refusals(world)?;
    // Reads of the file fail, whichever device they come from.
    let added = world.ok("zinject -t data -e io -a {mnt}/tank/file")?;
    added
        .shows("Added handler 1 with the following properties:\n  pool: tank\nobjset: ")?
        .shows(" level: 0\n range: all\n  dvas: 0x0\n")?;
    same("a read of the file", std::fs::read(world.path("mnt/tank/file")).is_err(), true)?;
    world.ok("zinject")?.shows(" ID  POOL             OBJSET  OBJECT  TYPE      LVL  DVAs  RANGE")?.shows("  1  tank ")?;
    world.refused("zpool export tank", 1, "pool is busy")?;
    world.ok("zpool status tank")?.shows("data error")?;
    world.ok("zinject -c 1")?.prints("removed handler 1")?;
    world.refused("zinject -c 1", 1, "failed to remove handler 1: No such file or directory")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    // Who wants no cache reads the devices.
    world.ok("zfs set primarycache=metadata tank")?;
    world.ok("zinject -d {vdevs}/a -e io -T read -f 100 tank")?;
    same("the file, from the other device", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    let errors = world.ok("zpool status -p tank")?.out;
    let line = errors.lines().find(|line| line.contains("vdevs/a")).unwrap_or_default();
    same("errors of the one that was asked first", line.split_whitespace().nth(2) != Some("0"), true)?;
    world.ok("zinject -c all")?;
    world.ok("zfs inherit primarycache tank")?;
    world.ok("zpool clear tank")?;
    // One device flips bits: a scrub finds and repairs nothing that was wrong on the device, and says where it was.
    world.ok("zinject -d {vdevs}/a -e corrupt -T read -f 100 tank")?;
    world.ok("zpool scrub -w tank")?;
    let status = world.ok("zpool status -p tank")?;
    let checksum_errors = |vdev: &str| {
        let line = status.out.lines().find(|line| line.contains(vdev)).unwrap_or_default();
        line.split_whitespace().nth(4).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    same("wrong bytes are counted where they were read", (checksum_errors("vdevs/a") > 0, checksum_errors("vdevs/b")), (true, 0))?;
    world.ok("zinject -c all")?.prints("removed all registered handlers")?;
    world.ok("zpool clear tank")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    // The pool is closed and opened again; its handlers stay.
    world.ok("zinject -u -q -t mosdir -f 0.0001 tank")?;
    world.ok("zinject")?.shows("mosdir")?;
    same("the file after that", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    world.ok("zinject -c all")?;
    // The file system is mounted anew, so that nothing of the file is in the kernel's cache.
    world.ok("zinject -t data -e io -f 100 -am {mnt}/tank/file")?.shows(" range: all")?;
    same("a read of the file, mounted anew", std::fs::read(world.path("mnt/tank/file")).is_err(), true)?;
    world.ok("zinject -c all")?;
    world.ok("zpool clear tank")?;
    closed_and_opened(world)?;
    delays(world)
}

/// Bytes that no key authenticates: if this fails, somebody who tampers with a device is told of to nobody.
pub fn decryption(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    std::fs::write(world.path("key"), [7u8; 32])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank {vdevs}/a")?;
    world.ok("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://{dir}/key tank/e")?;
    let data = mebibytes(1);
    for file in ["mnt/tank/e/file", "mnt/tank/plain"] {
        std::fs::write(world.path(file), &data)?;
    }
    world.ok("zpool sync tank")?;
    for file in ["tank/e/file", "tank/plain"] {
        world.ok(&format!("zinject -t data -e decrypt -f 100 -a {{mnt}}/{file}"))?;
    }
    world.ok("zfs unmount -a")?;
    world.ok("zfs mount -a")?;
    same("a read of the file", std::fs::read(world.path("mnt/tank/e/file")).is_err(), true)?;
    same("a read of what nobody encrypted", std::fs::read(world.path("mnt/tank/plain"))? == data, true)?;
    world.ok("zpool events tank")?.shows("ereport.fs.zfs.authentication")?;
    world.ok("zpool status -v tank")?.shows("mnt/tank/e/file")?;
    world.ok("zinject -c all")?;
    same("the file", std::fs::read(world.path("mnt/tank/e/file"))? == data, true)
}

/// Devices that handlers take out of use, and bring back.
fn closed_and_opened(world: &World) -> Result<(), Failure> {
    // A device that is declared faulted, and cannot be opened while a handler says so.
    world.ok("zinject -d {vdevs}/b -A degrade tank")?.prints("")?;
    world.ok("zpool status tank")?.shows("DEGRADED")?;
    world.ok("zpool clear tank")?;
    world.ok("zinject -q -d {vdevs}/b tank")?;
    world.ok("zpool offline tank {vdevs}/b")?;
    world.ok("zpool online tank {vdevs}/b")?.shows("remains in faulted state")?;
    world.ok("zinject -c all")?;
    world.ok("zpool online tank {vdevs}/b")?.prints("")?;
    world.ok("zpool wait tank")?;
    // The same, seen by a reopen, whether or not somebody has used the device meanwhile.
    world.ok("zinject -q -d {vdevs}/b -e nxio -T all tank")?;
    world.ok("zpool reopen tank")?;
    world.ok("zpool status tank")?.shows("UNAVAIL")?;
    world.ok("zinject -c all")?;
    world.ok("zpool reopen tank")?;
    world.ok("zpool wait tank")?;
    world.ok("zinject -d {vdevs}/b -e io -T probe tank")?;
    world.ok("zinject")?.shows("probe")?;
    world.ok("zinject -c all")?;
    world.ok("zpool status -x")?.prints("all pools are healthy")?;
    Ok(())
}

/// `zpool import -a` does not wait for one pool before it begins with the next.
pub fn slow_imports(world: &World) -> Result<(), Failure> {
    let names = ["one", "two", "three"];
    world.vdevs(&names)?;
    for name in names {
        world.ok(&format!("zpool create -m {{mnt}}/{name} {name} {{vdevs}}/{name}"))?;
        world.ok(&format!("zpool export {name}"))?;
        world.ok(&format!("zinject -P import -s 4 {name}"))?;
    }
    let began = Instant::now();
    world.ok("zpool import -a -d {vdevs}")?;
    let took = began.elapsed();
    same("pools", world.ok("zpool list -H -o name")?.out.lines().count(), names.len())?;
    // One after the other they would take twelve seconds.
    same("how long they take", (4..10).contains(&took.as_secs()), true)
}

fn refusals(world: &World) -> Result<(), Failure> {
    world.refused("zinject -d nothing tank", 1, "cannot find device 'nothing' in pool 'tank'")?;
    world.refused("zinject -d {vdevs}/a nothing", 1, "cannot open 'nothing': no such pool")?;
    world.refused("zinject -d {vdevs}/a -e checksum tank", 1, "device error type must be 'io', 'nxio' or 'corrupt'")?;
    world.refused("zinject -t data tank", 1, "invalid object 'tank': must be full path")?;
    world.refused("zinject -t data /proc/self/stat", 1, "not a ZFS filesystem")?;
    world.refused("zinject -p spa_vdev_exit tank", 1, "panics cannot be injected")?;
    world.refused("zinject -z", 2, "invalid option 'z'")?.shows("usage:")?;
    world.refused("zinject -P import -s 1 tank", 1, "pool already imported")?;
    Ok(())
}

/// The device takes time; who waits too long is counted, and told.
fn delays(world: &World) -> Result<(), Failure> {
    let parameter = |name: &str| world.path(&format!("state/sys/module/zfs/parameters/{name}"));
    world.ok("zinject -d {vdevs}/a -D 60:1 tank")?;
    world.ok("zinject")?.shows(" ID  POOL             DELAY (ms)       LANES            GUID")?;
    std::fs::write(parameter("zio_slow_io_ms"), "20")?;
    std::fs::write(world.path("mnt/tank/slow"), b"slow")?;
    world.ok("zpool sync tank")?;
    std::fs::write(parameter("zio_slow_io_ms"), "30000")?;
    world.ok("zinject -c all")?;
    let status = world.ok("zpool status -sp tank")?;
    status.shows(" SLOW")?;
    let slow = |vdev: &str| {
        let line = status.out.lines().find(|line| line.contains(vdev)).unwrap_or_default();
        line.split_whitespace().nth(5).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    same("slow I/Os are counted where they were", (slow("vdevs/a") > 0, slow("vdevs/b")), (true, 0))?;
    world
        .ok("zpool events -H tank")?
        .shows("ereport.fs.zfs.delay")?
        .shows("sysevent.fs.zfs.pool_create")?
        .shows("sysevent.fs.zfs.config_sync")?;
    // The next export takes its time.
    world.ok("zinject -P export -s 1 tank")?;
    let begun = Instant::now();
    world.ok("zpool export tank")?;
    same("the export waits", begun.elapsed() >= Duration::from_secs(1), true)?;
    world.ok("zpool import -d {vdevs} tank")?;
    Ok(())
}

/// Metadata that cannot be read costs the change that needs it, and nothing else; a sync that cannot read waits until it can.
pub fn unreadable(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/inner")?;
    let inner = |name: &str| world.path(&format!("mnt/tank/inner/{name}"));
    for number in 0..300 {
        std::fs::write(inner(&format!("f{number}")), format!("data {number}"))?;
    }
    world.ok("zpool sync tank")?;
    world.ok("zfs unmount tank/inner")?;
    world.ok("zfs mount tank/inner")?;
    same("a file", std::fs::read_to_string(inner("f150"))?, "data 150".to_string())?;
    std::fs::write(world.path("mnt/tank/important"), "important")?;
    std::fs::write(inner("new"), "new")?;
    world.ok("zinject -a -t dnode -e io {mnt}/tank/inner/f150")?;
    same("a change whose metadata cannot be read", std::fs::write(inner("f151"), "other").is_err(), true)?;
    world.ok("zpool sync tank")?;
    world.ok("zpool status tank")?.hides("SUSPENDED")?;
    world.ok("zinject -c all")?;
    std::fs::write(inner("f151"), "other")?;
    world.ok("zpool sync tank")?;
    // Now what the pool itself needs cannot be read: it waits.
    std::fs::write(world.path("mnt/tank/later"), "later")?;
    world.ok("zinject -a -t mos -e io tank")?;
    let begun = Instant::now();
    while !world.run("zpool list -H -o health tank")?.out.contains("SUSPENDED") {
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(world.run("zpool status tank")?.fault("the pool is not suspended"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    world.ok("zinject -c all")?;
    world.ok("zpool clear tank")?;
    world.ok("zpool sync tank")?;
    world.logged(&["ERROR pool 'tank' is suspended: ", "INFO  pool 'tank' goes on with "])?;
    world.ok("zpool status tank")?.shows("state: ONLINE")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    let found = ["mnt/tank/important", "mnt/tank/later", "mnt/tank/inner/new", "mnt/tank/inner/f151"]
        .map(|name| std::fs::read_to_string(world.path(name)).unwrap_or_default());
    same("what was written", found, ["important", "later", "new", "other"].map(str::to_string))?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    // What is wrong in every copy does not get better by waiting: the pool stops, says for which block, and is what it was with the txg before.
    std::fs::write(world.path("mnt/tank/lost"), "lost")?;
    world.ok("zinject -a -t mos -e checksum tank")?;
    let stopped = world.run("zpool sync tank")?;
    same("a sync without a block that it needs", stopped.code == 0, false)?;
    let status = world.ok("zpool status tank")?;
    status.shows("The pool writes nothing any more, for want of a block of the pool's own metadata")?.shows("(objset 0 object ")?;
    status.shows("checksum mismatch on every copy")?.shows("Export the pool with 'zpool export -f' and import it again")?;
    world.ok("zpool events tank")?.shows("ereport.fs.zfs.sync_failed")?;
    world.logged(&["ERROR pool 'tank': The pool writes nothing any more", " could not be written ("])?;
    world.ok("zpool export -f tank")?;
    world.ok("zpool import -f -d {vdevs} tank")?;
    same("what was there", std::fs::read_to_string(world.path("mnt/tank/later"))?, "later".to_string())?;
    Ok(())
}

/// Parameters of the scheduler count, and what background work leaves to others is a property that stays.
pub fn scheduler(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off tank mirror {vdevs}/a {vdevs}/b")?;
    let parameters = world.path("state/sys/module/zfs/parameters");
    let read = |name: &str| std::fs::read_to_string(parameters.join(name)).unwrap_or_default();
    same("a default", read("zfs_vdev_scrub_max_active"), "3\n".to_string())?;
    std::fs::write(parameters.join("zfs_vdev_scrub_max_active"), "8")?;
    same("a parameter that was set", read("zfs_vdev_scrub_max_active"), "8\n".to_string())?;
    // Everything through the queue, for once: files and a scrub are as right as ever.
    std::fs::write(parameters.join("zirconia_vdev_scheduler"), "1")?;
    let data = mebibytes(5);
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("scrub repaired 0B")?.shows("with 0 errors")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    world.ok("zpool iostat -r -H tank")?;
    // Who asks which file system makes so much durable gets its name.
    world.ok("sync {mnt}/tank/file")?;
    world.ok("zilstat -d tank -s , -f ds,obj,cc")?.shows("          ds,         obj,   cc,\n        tank,")?;
    world.ok("zilstat -v")?.says("zil_commit_count")?;
    world.refused("zilstat -d tank/nothing", 1, "there is no dataset 'tank/nothing'")?;
    world.refused("zilstat -a -p tank", 2, "cannot be used with")?;
    world.ok("zpool get -H -o value,source background_latency_target tank")?.prints("auto\tdefault")?;
    world.refused("zpool set background_latency_target=soon tank", 1, "'soon' is no value for 'background_latency_target'")?;
    world.ok("zpool set background_latency_target=p99=2ms tank")?;
    world.ok("zpool set com.example:owner=nobody tank")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool get -H -o value,source background_latency_target tank")?.prints("p99=2ms\tlocal")?;
    world.ok("zpool get -H -o value,source com.example:owner tank")?.prints("nobody\tlocal")?;
    world.ok("zpool set com.example:owner= tank")?;
    world.ok("zpool get all tank")?.hides("com.example:owner")?;
    Ok(())
}

/// Programs of a folder run on events, with zed's environment.
pub fn hooks(world: &World) -> Result<(), Failure> {
    let folder = world.path("zed.d");
    std::fs::create_dir_all(&folder)?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))?;
    let program = |name: &str, mode: u32| -> Result<(), Failure> {
        let path = folder.join(name);
        let text = format!("#!/bin/sh\necho \"$ZEVENT_SUBCLASS $ZEVENT_POOL $ZEVENT_VDEV_PATH\" >> {}\n", world.at(&format!("{name}.out")));
        std::fs::write(&path, text)?;
        Ok(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?)
    };
    program("all-log.sh", 0o755)?;
    program("io-notify.sh", 0o755)?;
    program("checksum-notify.sh", 0o755)?;
    program("io-writable.sh", 0o777)?;
    let descriptors = folder.join("scrub_start-descriptors.sh");
    std::fs::write(&descriptors, format!("#!/bin/sh\nexec ls /proc/self/fd > {}\n", world.at("descriptors.out")))?;
    std::fs::set_permissions(&descriptors, std::fs::Permissions::from_mode(0o755))?;
    let states = folder.join("statechange-states.sh");
    let words = "$ZEVENT_VDEV_LASTSTATE_STR $ZEVENT_VDEV_STATE_STR $ZEVENT_POOL_STATE_STR $ZEVENT_VDEV_PATH";
    std::fs::write(&states, format!("#!/bin/sh\necho \"{words}\" >> {}\n", world.at("statechange-states.sh.out")))?;
    std::fs::set_permissions(&states, std::fs::Permissions::from_mode(0o755))?;
    world.vdevs(&["a", "b"])?;
    world.ok_with(("ZIRCONIA_ZEDLETS", &folder), "zpool create -m none tank mirror {vdevs}/a {vdevs}/b")?;
    world.ok("zinject -d {vdevs}/a -e io -T write tank")?;
    world.ok("zfs create -o mountpoint=none tank/fs")?;
    world.ok("zpool sync tank")?;
    world.ok("zinject -c all")?;
    world.ok("zpool clear tank")?;
    world.ok("zpool wait -t resilver tank")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool offline tank {vdevs}/b")?;
    world.ok("zpool events -H tank")?.shows("sysevent.fs.zfs.scrub_start")?.shows("sysevent.fs.zfs.scrub_finish")?;
    let told = |name: &str| std::fs::read_to_string(world.path(&format!("{name}.out"))).unwrap_or_default();
    let line = format!("io tank {}\n", world.at("vdevs/a"));
    let deadline = Instant::now() + Duration::from_secs(20);
    let offline = format!("ONLINE OFFLINE ACTIVE {}\n", world.at("vdevs/b"));
    let all_told = || {
        told("io-notify.sh").contains(&line)
            && told("all-log.sh").contains(&line)
            && told("statechange-states.sh").contains(&offline)
            && world.path("descriptors.out").exists()
    };
    while !all_told() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    same("the program for I/O errors ran", told("io-notify.sh").contains(&line), true)?;
    same("the program for all events ran", told("all-log.sh").contains(&line), true)?;
    same("a change of state is told in words", told("statechange-states.sh").contains(&offline), true)?;
    let descriptors = std::fs::read_to_string(world.path("descriptors.out")).unwrap_or_default();
    same("programs have zed's four descriptors, and ls one more", descriptors, "0\n1\n2\n3\n4\n".to_string())?;
    same("the one for checksum errors did not", told("checksum-notify.sh"), String::new())?;
    same("one that anybody could have written did not", told("io-writable.sh"), String::new())
}
