//! What scripts read: JSON, scripted tables, usage, history.

use crate::world::{Failure, World, same};
use serde_json::Value;

fn pool(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -O mountpoint=none tank mirror {vdevs}/a {vdevs}/b")?;
    world.ok("zfs create tank/fs")?;
    Ok(())
}

/// Every `-j` is one object with the version first and the names as keys.
pub fn json(world: &World) -> Result<(), Failure> {
    pool(world)?;
    let zpool = ["zpool status -j", "zpool list -j", "zpool get -j all tank", "zpool get -j all tank mirror-0", "zpool version -j"];
    for line in zpool.into_iter().chain(["zfs list -j", "zfs get -j all tank/fs"]) {
        let ran = world.ok(line)?;
        let value: Value = serde_json::from_str(&ran.out).map_err(|error| ran.fault(error))?;
        let object = value.as_object().ok_or_else(|| ran.fault("not an object"))?;
        same("the command", object["output_version"]["command"].as_str().map(|text| line.starts_with(text)), Some(true))
            .map_err(|_| ran.fault("output_version.command does not name the command"))?;
        if !ran.out.trim_start().trim_start_matches('{').trim_start().starts_with("\"output_version\"") {
            return Err(ran.fault("output_version is not first"));
        }
    }
    let status: Value = serde_json::from_str(&world.ok("zpool status -j")?.out)?;
    same("state", status["pools"]["tank"]["state"].as_str(), Some("ONLINE"))?;
    let list: Value = serde_json::from_str(&world.ok("zfs list -j")?.out)?;
    same("type", list["datasets"]["tank/fs"]["type"].as_str(), Some("FILESYSTEM"))?;
    let numbers: Value = serde_json::from_str(&world.ok("zpool list -j -p --json-int")?.out)?;
    same("a number", numbers["pools"]["tank"]["properties"]["size"]["value"].is_number(), true)?;
    Ok(())
}

/// Tabs, no header, exact numbers; odd arguments end with 2 and the usage.
pub fn scripted(world: &World) -> Result<(), Failure> {
    pool(world)?;
    // Scripts wait until nothing is being freed any more; zpool has no B behind small numbers, zfs has.
    world.ok("zpool list -Ho freeing tank")?.prints("0")?;
    let line = world.ok("zpool list -Hp -o name,size,free tank")?.out;
    let words: Vec<&str> = line.trim_end().split('\t').collect();
    same("fields", words.len(), 3)?;
    same("exact numbers", words[1..].iter().all(|word| word.parse::<u64>().is_ok()), true)?;
    world.ok("zfs list -o name,used")?.shows("NAME")?;
    for line in [
        "zpool",
        "zfs",
        "zpool list -o nonsense",
        "zfs list -o nonsense",
        "zfs list --nonsense",
        "zpool status --nonsense",
        "zfs create",
        "zfs snapshot",
    ] {
        let ran = world.run(line)?;
        same("exit status of odd arguments", ran.code, 2).map_err(|_| ran.fault("it should exit with 2"))?;
        same("something is said", ran.err.is_empty(), false)?;
    }
    Ok(())
}

/// The remaining verbs.
pub fn others(world: &World) -> Result<(), Failure> {
    pool(world)?;
    world.ok("zpool history tank")?.shows("History for 'tank':")?.shows("zpool create")?.shows("zfs create tank/fs")?;
    world.ok("zpool history -il tank")?.shows("[txg:")?;
    world.ok("zpool wait tank")?;
    world.ok("zpool wait -t scrub tank")?;
    world.ok("zpool wait -H -p tank 1")?.prints("0\t0\t0\t0\t0\t0\t0\t0\t0")?;
    world.ok("zpool wait -t scrub,trim tank 0.5")?.prints("   SCRUB    TRIM\n       0       0")?;
    world.refused("zpool wait tank 1 2", 2, "too many arguments")?;
    world.refused("zpool wait 1", 2, "missing 'pool' argument")?;
    world.refused("zpool wait", 2, "missing 'pool' argument")?;
    let of_vdevs = "mirror-0\tnumchildren\t2\t-\nmirror-0\tallocating\ton\tdefault";
    world.ok("zpool get -H numchildren,allocating tank mirror-0")?.prints(of_vdevs)?;
    world.ok("zpool get -H -o value path,parent,state tank {vdevs}/a")?.prints(&format!("{}\nmirror-0\nONLINE", world.at("vdevs/a")))?;
    world.ok("zpool get all tank all-vdevs")?.shows("trim_support")?.shows("write_bytes")?;
    world.refused("zpool get all tank nothing", 2, "Expected a list of vdevs in \"tank\", but got:")?;
    world.refused("zpool get all nothing", 1, "Cannot get properties of nothing: no such pool available.")?;
    world.ok("zpool iostat -v tank 1 2")?.shows("mirror-0")?;
    world.ok("zpool version")?.shows("zirconia")?;
    world.ok("zfs version")?.shows("zirconia")?;
    world.ok("zdb -l {vdevs}/a")?.shows("LABEL 0")?.shows("name: 'tank'")?;
    world.ok("zdb -u -l {vdevs}/a")?.shows("Uberblock")?;
    Ok(())
}
