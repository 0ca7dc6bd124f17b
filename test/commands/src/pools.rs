//! The life of pools: creation, refusals, listing, export, import.

use crate::world::{Failure, World, judge, same};

/// What a user does first; without mounts.
pub fn life(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -n -O canmount=off tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?.shows("would create 'tank'")?.shows("raidz1")?;
    world.ok("zpool list")?.prints("no pools available")?;
    world.ok("zpool create -O canmount=off -o comment=first tank raidz {vdevs}/a {vdevs}/b {vdevs}/c")?.prints("")?;
    world.ok("zpool list -H -o name,health,ashift")?.shows("tank\tONLINE\t")?;
    world.ok("zpool get -H -o value comment tank")?.prints("first")?;
    world.ok("zpool status tank")?.shows("raidz1-0")?.shows("errors: No known data errors")?;
    world.ok("zpool status -x")?.prints("all pools are healthy")?;
    world.ok("zpool export tank")?.prints("")?;
    world.refused("zpool status tank", 1, "cannot open 'tank': no such pool")?;
    world.ok("zpool import -d {vdevs}")?.shows("pool: tank")?.shows("state: ONLINE")?;
    world.ok("zpool import -d {vdevs} tank")?.prints("")?;
    world.ok("zpool get -H -o value comment tank")?.prints("first")?;
    world.refused("zpool import -d {vdevs} tank", 1, "a pool with that name already exists")?;
    world.ok("zpool destroy tank")?.prints("")?;
    world.ok("zpool list")?.prints("no pools available")?;
    Ok(())
}

/// How fragmented the free space is tell the lists, the properties and `zdb` alike, OpenZFS's too.
pub fn fragmentation(world: &World) -> Result<(), Failure> {
    let zdb = judge("fragmentation: OpenZFS's measure")?;
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    for number in 0..20 {
        world.ok(&format!("zfs create -o canmount=off tank/{number}"))?;
    }
    for number in (0..20).step_by(2) {
        world.ok(&format!("zfs destroy tank/{number}"))?;
    }
    world.ok("zpool export tank")?;
    let measured = |zdb: &str| -> Result<String, Failure> {
        let told = world.ok(&format!("{zdb} -e -p {{vdevs}} -M tank"))?;
        let line = told.out.lines().find_map(|line| line.strip_prefix("\tpool tank\tfragmentation"));
        Ok(line.ok_or_else(|| told.fault("it tells no fragmentation"))?.trim().to_string())
    };
    let percent = measured("zdb")?;
    same("OpenZFS's measure", measured(&zdb)?, percent.clone())?;
    let number = percent.trim_end_matches('%');
    same("a number of percent", number.parse::<u64>().is_ok_and(|number| number <= 100), true)?;
    world.ok("zpool import -o readonly=on -d {vdevs} tank")?;
    world.ok("zpool list -H -o frag tank")?.prints(&percent)?;
    world.ok("zpool list -Hp -o frag tank")?.prints(number)?;
    world.ok("zpool get -H -o value fragmentation tank")?.prints(&percent)?;
    world.ok("zpool get -H -o value fragmentation tank {vdevs}/a")?.prints(&percent)?;
    world.ok("zpool list -Hv tank")?.shows(&format!("\t{percent}\t"))?;
    world.ok("zpool export tank")?;
    world.ok("zpool create -O canmount=off -o feature@spacemap_histogram=disabled other {vdevs}/b")?;
    world.ok("zpool list -H -o frag other")?.prints("-")?;
    Ok(())
}

/// Features that a pool lacks are named, and enabled as far as its owner wants them.
pub fn features(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -O canmount=off -o feature@draid=disabled tank {vdevs}/a")?;
    world.ok("zpool create -O canmount=off -o compatibility=legacy other {vdevs}/b")?;
    world
        .ok("zpool upgrade -v")?
        .shows("feature flags")?
        .shows("(read-only compatible)\n")?
        .shows("\n 28  Multiple vdev replacements\n")?;
    let listed = "POOL  FEATURE\n---------------\nother\n      async_destroy\n";
    world.ok("zpool upgrade")?.shows("All pools are formatted using feature flags.\n")?.shows(listed)?.shows("\ntank\n      draid\n")?;
    world.ok("zpool status tank")?.shows("Enable all features using 'zpool upgrade'.")?;
    world.ok("zpool get -H -o value feature@draid tank")?.prints("disabled")?;
    world.ok("zpool upgrade tank")?.shows("Enabled the following features on 'tank':\n  draid\n")?;
    world.ok("zpool get -H -o value feature@draid tank")?.prints("enabled")?;
    let whole = "already has all supported and requested features enabled.";
    world.ok("zpool upgrade tank")?.shows(&format!("Pool 'tank' {whole}"))?;
    world.ok("zpool upgrade -V 28 tank")?.shows("Pool 'tank' is already formatted using more current version '5000'.")?;
    world
        .ok("zpool upgrade -a")?
        .shows("All pools are already formatted using feature flags.")?
        .shows(&format!("Every feature flags pool {whole}"))?;
    world.ok("zpool get -H -o value feature@async_destroy other")?.prints("disabled")?;
    world.ok("zpool history tank")?.shows("zpool upgrade tank")?;
    world.refused("zpool upgrade nothing", 1, "cannot open 'nothing': no such pool")?;
    world.refused("zpool upgrade -V 999 tank", 2, "invalid version '999'")?;
    world.refused("zpool upgrade -a tank", 2, "-a option should not be used along with a pool name")?;
    world.refused("zpool upgrade -v tank", 2, "-v option is incompatible with other arguments")?;
    world.refused("zpool upgrade -V 28", 2, "-V option is incompatible with other arguments")?;
    let beyond = "it is not specified in this pool's current compatibility set";
    world.refused("zpool set feature@async_destroy=enabled other", 1, beyond)?;
    world.ok("zpool set compatibility=legacy tank")?.says("one or more features already enabled on pool 'tank'")?;
    world.ok("zpool status tank")?.shows("requested by the 'compatibility' property.")?;
    world.ok("zpool set compatibility=off tank")?;
    world.ok("zpool status -x tank")?.shows("is healthy")?;
    Ok(())
}

/// One clear message each, and nothing changed.
pub fn refusals(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    std::fs::File::create(world.path("vdevs/small"))?.set_len(10 << 20)?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.refused("zpool create tank {vdevs}/b", 1, "cannot create 'tank': pool already exists")?;
    world.refused("zpool create other {vdevs}/a", 1, "{vdevs}/a".replace("{vdevs}", &world.at("vdevs")).as_str())?;
    world.refused("zpool create other mirror {vdevs}/b", 1, "mirror requires at least 2 devices")?;
    world.refused("zpool create other mirror {vdevs}/b {vdevs}/b", 1, "cannot create 'other'")?;
    world.refused("zpool create other {vdevs}/small", 1, "smaller than 64 M")?;
    world.refused("zpool create other {vdevs}/nothing", 1, "nothing")?;
    world.refused("zpool create 1st {vdevs}/b", 1, "name must begin with a letter")?;
    world.refused("zpool create mirror {vdevs}/b", 1, "name is reserved")?;
    world.refused("zpool create other -o nonsense=1 {vdevs}/b", 1, "nonsense")?;
    world.refused("zpool create other -o ashift=99 {vdevs}/b", 1, "ashift")?;
    world.refused("zpool create -n -O volsize=10M other {vdevs}/b", 1, "'volsize' does not apply to datasets of this type")?;
    world.refused("zpool create -O sharenfs=ON other {vdevs}/b", 1, "'sharenfs' cannot be set to invalid options")?;
    world.refused("zpool create other", 2, "missing")?;
    world.refused("zpool destroy nothing", 1, "cannot open 'nothing': no such pool")?;
    world.refused("zpool frobnicate", 2, "frobnicate")?;
    same("pools", world.ok("zpool list -H -o name")?.out.as_str(), "tank\n")?;
    // A member of an exported pool is not overwritten without being told to.
    world.ok("zpool export tank")?;
    world.refused("zpool create other {vdevs}/a", 1, "-f")?;
    world.ok("zpool create -f -O canmount=off other {vdevs}/a")?;
    Ok(())
}

/// dRAID as the command line spells it, and what the programs call it afterwards.
pub fn draid(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e", "f"])?;
    let devices = "{vdevs}/a {vdevs}/b {vdevs}/c {vdevs}/d {vdevs}/e {vdevs}/f";
    let create = |word: &str| format!("zpool create -O canmount=off tank {word} {devices}");
    world.refused(&create("draid2:x"), 1, "invalid dRAID syntax; expected [:<number><c|d|s>] not 'draid2:x'")?;
    world.refused(&create("draid2:7c"), 1, "invalid number of dRAID children; 7 required but 6 provided")?;
    world.refused(&create("draid2:8d"), 1, "at most 4 disks are available for data")?;
    world.refused("zpool create tank draid3 {vdevs}/a {vdevs}/b", 1, "draid3 requires at least 4 devices")?;
    world.refused(&format!("zpool create -d tank draid {devices}"), 1, "dRAID vdevs need the feature 'draid'")?;
    world.ok(&format!("zpool create -n tank draid2:2d:1s {devices}"))?.shows("\t  draid2:2d:6c:1s\n")?;
    world.ok(&create("draid2:2d:6c:1s"))?.prints("")?;
    world.ok("zpool status tank")?.shows("draid2:2d:6c:1s-0 ")?.shows("\tspares\n\t  draid2-0-0 ")?.shows(" AVAIL")?;
    world.ok("zpool list -v tank")?.shows("draid2:2d:6c:1s-0 ")?.shows("\nspare ")?;
    world.ok("zpool iostat -v tank")?.shows("draid2:2d:6c:1s-0 ")?;
    world.ok("zpool get -H -o value feature@draid tank")?.prints("active")?;
    world.ok("zpool replace -w tank {vdevs}/b draid2-0-0")?.prints("")?;
    world.ok("zpool status tank")?.shows("spare-1")?.shows(" INUSE")?.shows("with 0 errors")?;
    world.refused("zpool replace tank {vdevs}/c draid2-0-0", 1, "draid2-0-0 is busy")?;
    world.ok("zpool detach tank draid2-0-0")?.prints("")?;
    world.ok("zpool status tank")?.hides("spare-1")?.shows(" AVAIL")?;
    world.ok("zpool export tank")?;
    for device in ["a", "f"] {
        std::fs::remove_file(world.path(&format!("vdevs/{device}")))?;
    }
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool get -H -o value health tank")?.prints("DEGRADED")?;
    world.ok("zpool destroy tank")?;
    Ok(())
}

/// Every way to name what is imported, and where it goes.
pub fn imports(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -m {mnt}/tank tank mirror {vdevs}/a {vdevs}/b")?;
    std::fs::write(world.path("mnt/tank/file"), b"kept")?;
    let id = world.ok("zpool get -H -o value guid tank")?.out.trim().to_string();
    world.ok("zpool export tank")?;
    world.refused("zpool import -d {vdevs} nothing", 1, "cannot import 'nothing': no such pool available")?;
    world.ok(&format!("zpool import -d {{vdevs}} -N {id}"))?;
    world.ok("zfs get -H -o value mounted tank")?.prints("no")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} -R {dir}/alt tank renamed")?;
    same("below the altroot", std::fs::read(format!("{}{}", world.at("alt"), world.at("mnt/tank/file")))?, b"kept".to_vec())?;
    world.ok("zpool list -H -o name")?.prints("renamed")?;
    world.ok("zpool export renamed")?;
    world.ok("zpool import -d {vdevs} -o readonly=on renamed")?;
    let refused = std::fs::write(world.path("mnt/tank/other"), b"x");
    same("a write to a read-only pool", refused.map_err(|error| error.raw_os_error()), Err(Some(30)))?;
    world.refused("zfs create renamed/fs", 1, "read-only")?;
    world.ok("zpool export renamed")?;
    world.ok("zpool import -d {vdevs}/a -d {vdevs}/b -a")?;
    same("files", std::fs::read(world.path("mnt/tank/file"))?, b"kept".to_vec())
}

/// Regular files below /dev are vdevs like any other.
pub fn found_in_memory(world: &World) -> Result<(), Failure> {
    let folder = std::path::PathBuf::from(format!("/dev/shm/zirconia-commands-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let outcome = (|| {
        std::fs::File::create(folder.join("a"))?.set_len(128 << 20)?;
        world.ok(&format!("zpool create -O canmount=off tank {}/a", folder.display()))?;
        world.ok("zpool export tank")?;
        world.ok(&format!("zpool import -d {} tank", folder.display()))?;
        world.ok("zpool destroy tank")?;
        Ok(())
    })();
    std::fs::remove_dir_all(&folder)?;
    outcome
}

/// The dataset that a boot loader is to take is named, follows a rename, and is not another one after it was destroyed: a system would start from that.
pub fn bootfs(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    let is = |wanted: &str| -> Result<(), Failure> { world.ok("zpool get -H -o value,source bootfs tank")?.prints(wanted).map(drop) };
    world.refused("zpool create -o bootfs=tank/root tank {vdevs}/a", 1, "property 'bootfs' cannot be set at creation or import time")?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/root")?;
    world.ok("zfs create -s -V 16m tank/volume")?;
    is("-\tdefault")?;
    world.ok("zpool set bootfs=tank/root tank")?.prints("")?;
    is("tank/root\tlocal")?;
    world.ok("zfs rename tank/root tank/system")?;
    is("tank/system\tlocal")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    is("tank/system\tlocal")?;
    world.refused("zpool set bootfs=other/root tank", 1, "'other/root' is an invalid name")?;
    world.refused("zpool set bootfs=tank/nothing tank", 1, "cannot set property for 'tank'")?;
    world.refused("zpool set bootfs=tank/volume tank", 1, "cannot set property for 'tank'")?;
    is("tank/system\tlocal")?;
    world.ok("zfs destroy tank/system")?;
    world.ok("zfs create tank/next")?;
    is("-\tdefault")?;
    world.ok("zpool set bootfs=tank/next tank")?;
    world.ok("zpool set bootfs= tank")?;
    is("-\tdefault")?;
    Ok(())
}

/// labelclear refuses what is in use or may be wanted, and clears the rest.
pub fn labelclear(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.refused("zpool labelclear {vdevs}/a", 1, "tank")?;
    world.refused("zpool labelclear -f {vdevs}/a", 1, "tank")?;
    world.ok("zpool export tank")?;
    world.refused("zpool labelclear {vdevs}/a", 1, "-f")?;
    world.ok("zpool labelclear -f {vdevs}/a")?;
    world.ok("zpool import -d {vdevs}").or_else(|_| world.run("zpool import -d {vdevs}"))?.hides("pool: tank")?;
    world.refused("zpool labelclear {vdevs}/b", 1, "label")?;
    Ok(())
}
