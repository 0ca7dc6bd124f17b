//! Parameters under OpenZFS's names do what they say, and what follows from them is seen with the commands; properties of vdevs.

use crate::world::{Failure, World, same};

fn set(world: &World, name: &str, value: &str) -> Result<(), Failure> {
    Ok(std::fs::write(world.path(&format!("state/sys/module/zfs/parameters/{name}")), value)?)
}

/// What new vdevs, datasets and events are like is a matter of parameters.
pub fn effects(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m none tank {vdevs}/a")?;
    set(world, "vdev_file_physical_ashift", "12")?;
    world.ok("zpool create -m none four {vdevs}/b")?;
    world.ok("zpool get -H -o value ashift four {vdevs}/b")?.prints("12")?;
    world.ok("zpool get -H -o value ashift tank {vdevs}/a")?.prints("9")?;
    set(world, "zfs_vdev_max_auto_ashift", "11")?;
    world.ok("zpool create -m none nine {vdevs}/c")?;
    world.ok("zpool get -H -o value ashift nine {vdevs}/c")?.prints("9")?;
    same("sectors of 128 bytes are refused", set(world, "vdev_file_logical_ashift", "7").is_err(), true)?;
    set(world, "zfs_max_dataset_nesting", "3")?;
    world.ok("zfs create -p tank/a/b")?;
    world.refused("zfs create tank/a/b/c", 1, "cannot create 'tank/a/b/c'")?;
    set(world, "zfs_max_dataset_nesting", "50")?;
    world.ok("zfs create tank/a/b/c")?;
    // What is too deep since the limit was lowered gets another name where it gets no deeper.
    set(world, "zfs_max_dataset_nesting", "3")?;
    world.ok("zfs rename tank/a/b/c tank/a/b/d")?;
    world.ok("zfs create tank/a2")?;
    world.refused("zfs rename tank/a tank/a2/a", 1, "cannot rename 'tank/a'")?;
    set(world, "zfs_max_dataset_nesting", "50")?;
    world.ok("zfs snapshot tank/a@sent")?;
    let estimate = || Ok::<u64, Failure>(world.ok("zfs send -nP tank/a@sent")?.out.trim().rsplit('\t').next().unwrap_or_default().parse()?);
    let as_it_is = estimate()?;
    set(world, "zfs_override_estimate_recordsize", "512")?;
    same("many small blocks make more of a stream", estimate()? > as_it_is, true)?;
    set(world, "zfs_override_estimate_recordsize", "0")?;
    set(world, "zfs_zevent_len_max", "2")?;
    same("old events go", world.ok("zpool events -H")?.out.lines().count(), 2)?;
    world.ok("zpool destroy nine")?;
    same("new events push them out", world.ok("zpool events -H")?.out.lines().count(), 2)?;
    Ok(())
}

/// A disk that is provisioned as it fills is not asked about what was never used, where somebody wants that; a scrub that may do next to nothing at a
/// time reads everything.
pub fn background(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m none tank {vdevs}/a")?;
    let blocks = || std::fs::metadata(world.path("vdevs/a")).map(|file| std::os::unix::fs::MetadataExt::blocks(&file));
    world.ok("zpool initialize -w tank")?;
    let filled = blocks()?;
    set(world, "zfs_trim_metaslab_skip", "1")?;
    world.ok("zpool trim -w tank")?;
    world.ok("zpool status -t tank")?.shows("(100% trimmed, completed at ")?;
    let skipped = blocks()?;
    set(world, "zfs_trim_metaslab_skip", "0")?;
    world.ok("zpool trim -w tank")?;
    let trimmed = blocks()?;
    same("what was used is trimmed", skipped < filled, true)?;
    // Half a metaslab.
    same("what was not is left out", skipped > trimmed + (8 << 20) / 512, true)?;
    same("scans that may read nothing are refused", set(world, "zfs_scan_vdev_limit", "0").is_err(), true)?;
    set(world, "zfs_scan_vdev_limit", "4096")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("scrub repaired 0B")?.shows(" with 0 errors on ")?.hides("(repairing)")?;
    Ok(())
}

/// Who looks for the cause of something reads what was done, and when; a reader who was overtaken is told.
pub fn records(world: &World) -> Result<(), Failure> {
    use std::io::{Read, Seek, SeekFrom};
    world.vdevs(&["a"])?;
    world.ok("zpool create -m none tank {vdevs}/a")?;
    let path = |file: &str| world.path(&format!("state/proc/spl/kstat/zfs/{file}"));
    std::fs::write(path("dbgmsg"), "0")?;
    for n in 0..20 {
        world.ok(&format!("zfs snapshot tank@s{n}"))?;
    }
    world.ok("zpool sync tank")?;
    let commands = |text: &str| text.lines().filter(|line| line.contains("command: zfs snapshot tank@s")).count();
    same("commands in the messages", commands(&std::fs::read_to_string(path("dbgmsg"))?), 20)?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    let text = std::fs::read_to_string(path("dbgmsg"))?;
    same("the uberblock of an import is told", text.contains("pool 'tank' (guid ") && text.contains("using uberblock with txg="), true)?;
    // OpenZFS's test wants more than 20 of them.
    let steps = text.lines().filter(|line| line.contains("spa_import_progress_set_notes_impl(): 'tank' ")).count();
    same("the steps of an import are told", (steps > 20, text.contains("'tank' Finished importing")), (true, true))?;
    let under_way = std::fs::read_to_string(path("import_progress"))?;
    for (file, wanted) in [
        ("features.kernel/org.zfsonlinux:vdev_trim/supported", "yes\n"),
        ("features.pool/org.open-zfs:large_blocks/guid", "org.open-zfs:large_blocks\n"),
        ("properties.pool/comment/values", "<comment-string>\n"),
        ("properties.dataset/recordsize/values", "512 to 16M, power of 2\n"),
    ] {
        same(file, std::fs::read_to_string(world.path(&format!("state/sys/module/zfs/{file}")))?.as_str(), wanted)?;
    }
    same("imports that are over", (under_way.starts_with("pool_guid "), under_way.lines().count()), (true, 1))?;
    set(world, "zfs_dbgmsg_enable", "0")?;
    std::fs::write(path("dbgmsg"), "0")?;
    world.ok("zpool sync -f tank")?;
    same("messages that are off", std::fs::read_to_string(path("dbgmsg"))?.lines().count(), 1)?;
    set(world, "zfs_txg_history", "30")?;
    let syncs = |count| (0..count).try_for_each(|_| world.ok("zpool sync tank").map(drop));
    syncs(31)?;
    same("txgs kept", std::fs::read_to_string(path("tank/txgs"))?.lines().count(), 31)?;
    let mut reader = std::fs::File::open(path("tank/txgs"))?;
    reader.read_exact(&mut [0; 1024])?;
    syncs(35)?;
    same("a reader who was overtaken", reader.read_to_end(&mut Vec::new()).is_err(), true)?;
    reader.seek(SeekFrom::Start(0))?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    same("the same from the beginning", text.lines().count(), 31)
}

/// A txg is written when one is asked for, also with nothing to write.
pub fn forced_sync(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m none tank {vdevs}/a")?;
    world.ok("zpool sync")?;
    let txg = || -> Result<u64, Failure> {
        let ran = world.ok("zdb -e -p {vdevs} -u tank")?;
        let line = ran.out.lines().find_map(|line| line.trim().strip_prefix("txg = ")?.parse().ok());
        line.ok_or_else(|| ran.fault("no txg".to_string()))
    };
    let before = txg()?;
    world.ok("zpool sync -f tank")?;
    same("a txg was written", txg()? > before, true)
}

/// What the daemon made for a pool's file systems goes with the pool, mounted or not; what others put there stays.
pub fn made_directories(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    let place = world.path("mnt/alt/tank");
    world.ok("zpool create -R {mnt}/alt tank {vdevs}/a")?;
    world.ok("zfs unmount -a")?;
    same("an unmount leaves the directory", place.exists(), true)?;
    world.ok("zpool destroy tank")?;
    same("the end of the pool does not", place.exists(), false)?;
    world.ok("zpool create -R {mnt}/alt tank {vdevs}/a")?;
    world.ok("zfs unmount -a")?;
    std::fs::write(place.join("file"), b"somebody's")?;
    world.ok("zpool export tank")?;
    same("what others put there stays", std::fs::read(place.join("file"))?, b"somebody's".to_vec())?;
    // What was named by hand stays, what follows from that does not, as in OpenZFS.
    world.ok("zpool create -f -m {mnt}/own tank {vdevs}/a")?;
    world.ok("zpool destroy tank")?;
    same("a mountpoint that was named", world.path("mnt/own").exists(), true)?;
    world.ok("zpool create -m {mnt}/own -O canmount=off tank {vdevs}/a")?;
    world.ok("zfs create tank/below")?;
    same("made for its child", world.path("mnt/own/below").exists(), true)?;
    world.ok("zpool export tank")?;
    same("after the export", (world.path("mnt/own").exists(), world.path("mnt/own/below").exists()), (true, false))
}

/// Properties of vdevs are kept in the pool, and count.
pub fn vdev_properties(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=off -O primarycache=none tank mirror {vdevs}/a {vdevs}/b")?;
    world.ok("zpool set comment=ours tank root")?;
    world.ok("zpool get -H -o value,source comment tank root")?.prints("ours\tlocal")?;
    world.ok("zpool get -H -o value,source comment tank")?.prints("-\tdefault")?;
    world.ok("zpool set com.example:slot=7 tank {vdevs}/a")?;
    world.ok("zpool set io_n=1 tank mirror-0")?;
    world.refused("zpool set failfast=off tank {vdevs}/a", 1, "devices are not asked to fail fast here")?;
    world.refused("zpool set allocating=off tank mirror-0", 1, "no other vdev from which it could allocate")?;
    world.refused("zpool set allocating=off tank {vdevs}/a", 1, "only top-level vdevs are allocated from")?;
    world.refused("zpool set allocating=maybe tank mirror-0", 1, "'allocating' must be one of 'on | off'")?;
    world.ok("zpool get -H -o value,source autosit tank mirror-0")?.prints("off\tdefault")?;
    world.ok("zpool set autosit=on tank mirror-0")?;
    world.refused("zpool set autosit=on tank {vdevs}/a", 1, "only mirrors, RAID-Z and dRAID can let devices sit out")?;
    world.refused("zpool set sit_out=on tank mirror-0", 1, "only devices of mirrors, RAID-Z and dRAID can sit out")?;
    world.ok("zpool set sit_out=on tank {vdevs}/a")?;
    world.ok("zpool get -H -o value,source sit_out tank {vdevs}/a")?.prints("on\t-")?;
    same("its line in the status", world.ok("zpool status tank")?.out.contains("sits out"), true)?;
    world.refused("zpool set sit_out=on tank {vdevs}/b", 1, "too many disks already sitting out")?;
    world.ok("zpool set sit_out=off tank {vdevs}/a")?;
    world.refused("zpool set guid=5 tank {vdevs}/a", 1, "'guid' is readonly")?;
    world.refused("zpool set io_n=many tank {vdevs}/a", 1, "'many' is no value for 'io_n'")?;
    world.refused("zpool set io_n=1 tank nothing", 1, "invalid vdev 'nothing'")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool get -H -o value,source com.example:slot tank {vdevs}/a")?.prints("7\tlocal")?;
    world.ok("zpool get -H -o value,source io_n tank mirror-0")?.prints("1\tlocal")?;
    world.ok("zpool get -H -o value,source autosit tank mirror-0")?.prints("on\tlocal")?;
    world.ok("zpool set com.example:slot= tank {vdevs}/a")?;
    world.ok("zpool get -H -o value,source com.example:slot tank {vdevs}/a")?.prints("-\tdefault")?;
    // Two errors are too many now.
    std::fs::write(world.path("mnt/tank/file"), vec![7; 1 << 20])?;
    world.ok("zpool sync tank")?;
    world.ok("zinject -d {vdevs}/b -e io -T read -f 100 tank")?;
    world.ok("zpool scrub -w tank")?;
    let start = std::time::Instant::now();
    while !world.ok("zpool status tank")?.out.contains("FAULTED") {
        if start.elapsed().as_secs() > 30 {
            return Err("the device stays in use".into());
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    world.ok("zinject -c all")?;
    Ok(())
}
