//! What `zpool import` says of pools before it imports them, where it looks, and what a pool that is somewhere for now only is remembered by.

use crate::world::{Failure, World, same};
use std::path::Path;

/// A listing tells of each pool whether it can be imported, and why not; the import then does what the listing said.
pub fn listing(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "log", "c", "d", "e"])?;
    world.ok("zpool create -O canmount=off -o comment=mine tank mirror {vdevs}/a {vdevs}/b log {vdevs}/log")?;
    world.ok("zpool export tank")?;
    let whole = world.ok("zpool import -d {vdevs}")?;
    whole.shows("action: The pool can be imported using its name or numeric identifier.\n")?.shows("comment: mine\n")?.shows("\tlogs\n")?;
    whole.hides("status:")?.hides("see:")?;
    // A log device that is away: whatever it held that nobody has seen is lost with it, so somebody has to say so.
    std::fs::rename(world.path("vdevs/log"), world.path("away"))?;
    let lacking = world.ok("zpool import -d {vdevs}")?;
    lacking.shows("state: DEGRADED")?.shows("One or more devices are missing from the system.")?.shows("use the '-m' flag")?;
    lacking.shows("UNAVAIL  cannot open")?.shows("msg/ZFS-8000-2Q")?;
    world.refused("zpool import -d {vdevs} tank", 1, "use '-m' to import the pool anyway")?;
    world.ok("zpool import -d {vdevs} -m tank")?;
    world.ok("zpool status tank")?.shows("state: DEGRADED")?;
    world.ok("zpool remove tank {vdevs}/log")?;
    world.ok("zpool get -H -o value health tank")?.prints("ONLINE")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs}")?.shows("state: ONLINE")?;
    // Half of it is enough.
    std::fs::rename(world.path("vdevs/b"), world.path("b"))?;
    let half = world.ok("zpool import -d {vdevs}")?;
    half.shows("can be imported despite missing or damaged devices.  The\n\tfault tolerance")?.shows("UNAVAIL  cannot open")?;
    std::fs::rename(world.path("b"), world.path("vdevs/b"))?;
    // If this fails, whoever has copies is told of other files than those that the import then takes.
    std::fs::create_dir_all(world.path("moved"))?;
    for name in ["a", "b"] {
        std::fs::rename(world.path(&format!("vdevs/{name}")), world.path(&format!("moved/{name}")))?;
    }
    let moved = world.ok("zpool import -d {dir}/moved")?;
    moved.shows("/moved/a  ONLINE")?.shows("/moved/b  ONLINE")?.hides("/vdevs/a")?;
    world.ok("zpool import -d {dir}/moved -o readonly=on tank")?;
    world.ok("zpool status -P tank")?.shows("/moved/a  ONLINE")?.shows("/moved/b  ONLINE")?.hides("/vdevs/a")?;
    world.ok("zpool export tank")?;
    for name in ["a", "b"] {
        std::fs::rename(world.path(&format!("moved/{name}")), world.path(&format!("vdevs/{name}")))?;
    }
    // Features that are off are no reason for alarm, but to know.
    world.ok("zpool create -d -O canmount=off plain {vdevs}/c {vdevs}/d")?;
    world.ok("zpool export plain")?;
    let plain = world.ok("zpool import -d {vdevs}")?;
    plain.shows("Some supported features are not enabled on the pool.\n\t(Note that they may be intentionally disabled if the\n")?;
    plain.shows("though\n\tsome features will not be available without an explicit 'zpool upgrade'.")?;
    std::fs::rename(world.path("vdevs/d"), world.path("d"))?;
    let missing = world.ok("zpool import -d {vdevs}")?;
    missing.shows("UNAVAIL  insufficient replicas")?.shows("The pool cannot be imported. Attach the missing\n\tdevices and try again.")?;
    world.refused("zpool import -d {vdevs} plain", 1, "cannot import 'plain'")?;
    std::fs::rename(world.path("d"), world.path("vdevs/d"))?;
    world.ok("zpool import -d {vdevs} plain")?;
    world.ok("zpool destroy plain")?;
    world.ok("zpool import -D -d {vdevs}")?.shows("state: ONLINE (DESTROYED)")?.shows("imported using the '-Df' flags.")?;
    Ok(())
}

/// An older state is taken where somebody asks for it, after they were told what is lost with it, and stays; a pool that opens as it is loses nothing.
pub fn rewinds(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -O canmount=off tank mirror {vdevs}/a {vdevs}/b")?;
    world.ok("zfs create -o canmount=off tank/kept")?;
    world.ok("zfs snapshot tank/kept@s")?;
    world.ok("zfs create -o canmount=off tank/late")?;
    world.ok("zpool export tank")?;
    world.refused("zpool import -d {vdevs} -n tank", 2, "-n or -X only meaningful with -F")?;
    world.refused("zpool import -d {vdevs} -T soon tank", 2, "invalid txg value")?;
    let told = world.ok("zpool import -d {vdevs} -FXn tank")?;
    told.shows("Would be able to return tank to its state as of ")?.shows(": would be taken\n")?.shows("\tlacks: tank/late\n")?;
    told.hides("Pool tank returned")?;
    world.refused("zpool list tank", 1, "no such pool")?;
    // Of each state a line, and below it what it lacks.
    let states =
        told.out.split("\ntxg ").find(|state| state.contains(" could be taken with -T ") && state.contains("\tlacks: tank/late\n"));
    let txg = states.and_then(|state| state.split(',').next()).ok_or_else(|| told.fault("no state without tank/late can be taken"))?;
    world.ok(&format!("zpool import -d {{vdevs}} -nT {txg} tank"))?.shows("Would be able to return tank")?.hides("could be taken")?;
    // Whoever only reads leaves the newest state where it is.
    world.ok(&format!("zpool import -d {{vdevs}} -o readonly=on -T {txg} tank"))?.shows("Pool tank returned to its state as of ")?;
    world.ok("zfs list -H -o name -t all")?.prints("tank\ntank/kept\ntank/kept@s")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} -FXn tank")?.shows("\tlacks: tank/late\n")?;
    let back = world.ok(&format!("zpool import -d {{vdevs}} -T {txg} tank"))?;
    back.shows("Pool tank returned to its state as of ")?.shows("'zpool scrub tank' tells")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} -F tank")?.hides("returned to its state")?;
    world.ok("zfs list -H -o name -t all")?.prints("tank\ntank/kept\ntank/kept@s")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("errors: No known data errors")?;
    world.refused("zpool clear -n tank", 2, "-n only meaningful with -F")?;
    world.ok("zpool clear -nF tank")?.prints("")?;
    world.ok("zpool clear -F tank")?.prints("")?;
    Ok(())
}

/// A pool of mirrors becomes two, each with everything that was in it.
pub fn splits(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c", "d", "e"])?;
    world.ok("zpool create -O canmount=off tank mirror {vdevs}/a {vdevs}/b mirror {vdevs}/c {vdevs}/d")?;
    world.ok("zfs create -o canmount=off tank/fs")?;
    world.ok("zfs snapshot tank/fs@s")?;
    let layout = format!("would create 'half' with the following layout:\n\n\thalf\n\t  {0}/a\n\t  {0}/d", world.at("vdevs"));
    world.ok("zpool split -n tank half {vdevs}/a")?.prints(&layout)?;
    world.refused("zpool split tank half {vdevs}/a {vdevs}/b", 1, "Device list must include at most one disk from each mirror")?;
    world.refused("zpool split tank half {vdevs}/e", 1, "Unable to split tank")?;
    world.refused("zpool split tank tank", 1, "already exists")?;
    world.refused("zpool split tank mirror", 1, "Unable to split tank")?;
    world.refused("zpool split tank", 2, "missing")?;
    world.refused("zpool split -o ro tank half", 2, "setting mntopts is only valid when importing the pool")?;
    world.refused("zpool split -R relative tank half", 1, "bad alternate root")?;
    for property in ["version=28", "readonly=on", "capacity=5678", "ashift=4", "feature@async_destroy=disabled"] {
        world.refused(&format!("zpool split -o {property} tank half"), 1, "Unable to split tank")?;
    }
    world.ok("zpool split -o comment=copy tank half {vdevs}/a")?.prints("")?;
    world.ok("zpool status tank")?.hides("mirror")?.hides("vdevs/a")?.hides("vdevs/d")?.shows("state: ONLINE")?;
    world.ok("zpool list -H -o name")?.prints("tank")?;
    world.ok("zpool import -d {vdevs} half")?;
    world.ok("zpool status half")?.shows("vdevs/a")?.shows("vdevs/d")?.hides("vdevs/b")?.shows("state: ONLINE")?;
    world.ok("zpool get -H -o value comment half")?.prints("copy")?;
    world.ok("zfs list -H -o name -t all -r half")?.prints("half\nhalf/fs\nhalf/fs@s")?;
    world.ok("zfs destroy half/fs@s")?;
    world.ok("zfs list -H -o name -t all -r tank")?.prints("tank\ntank/fs\ntank/fs@s")?;
    world.refused("zpool split tank other", 1, "Source pool must be composed only of mirrors")?;
    // What it lacks now it gets again, and can be divided once more.
    world.ok("zpool attach -w tank {vdevs}/b {vdevs}/e")?;
    for pool in ["tank", "half"] {
        world.ok(&format!("zpool scrub -w {pool}"))?;
        world.ok(&format!("zpool status {pool}"))?.shows("errors: No known data errors")?;
    }
    world.ok("zpool destroy half")?;
    world.ok("zpool attach -w tank {vdevs}/c {vdevs}/d")?;
    world.ok(&format!("zpool split -l -o ro -R {} tank there", world.at("alt")))?;
    world.ok("zpool get -H -o value altroot there")?.prints(&world.at("alt"))?;
    world.ok("zfs list -H -o name -t all -r there")?.prints("there\nthere/fs\nthere/fs@s")?;
    Ok(())
}

/// Folders that are not there are passed over: the pool may be in the others.
pub fn places(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {dir}/nowhere -d {vdevs} tank")?;
    world.ok("zpool export tank")?;
    // Who mistyped the only place is told, and does not believe that the pool is gone.
    for options in ["", "-a "] {
        world.refused(&format!("zpool import {options}-d {{dir}}/nowhere"), 1, "No such file or directory")?.says(&world.at("nowhere"))?;
        world.refused(&format!("zpool import {options}-d /dev/null"), 1, "'/dev/null' is neither a directory nor")?;
    }
    world.refused("zpool import -d {dir}/nowhere tank", 1, "no such pool available")?.says("No such file or directory")?;
    // Two of one name.
    std::fs::create_dir(world.path("others"))?;
    std::fs::rename(world.path("vdevs/a"), world.path("others/a"))?;
    world.vdevs(&["a"])?;
    world.ok("zpool create -O canmount=off tank {vdevs}/a")?;
    let id = world.ok("zpool get -H -o value guid tank")?.out.trim().to_string();
    world.ok("zpool export tank")?;
    let several = world.refused("zpool import -d {vdevs} -d {dir}/others tank", 1, "2 pools have this name: import one by its guid")?;
    several.says(&format!("{id}  ONLINE"))?;
    std::fs::rename(world.path("others/a"), world.path("vdevs/a"))?;
    let places = format!("{}:{}", world.at("nowhere"), world.at("vdevs"));
    world.ok_with(("ZPOOL_IMPORT_PATH", Path::new(&places)), "zpool import tank")?;
    Ok(())
}

/// A pool with an alternate root is in no cache file, unless somebody names one: the next start would mount it over the system's own places.
pub fn altroot(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    let get =
        |name: &str| -> Result<String, Failure> { Ok(world.ok(&format!("zpool get -H -o value {name} tank"))?.out.trim().to_string()) };
    let (alt, cache) = (world.at("alt"), world.at("cache"));
    world.refused("zpool create -o altroot=relative tank {vdevs}/a", 1, "bad alternate root 'relative'")?;
    for how in [format!("-R {alt}"), format!("-o altroot={alt}")] {
        world.ok(&format!("zpool create {how} -O canmount=off tank {{vdevs}}/a"))?;
        same("altroot", (get("altroot")?, get("cachefile")?), (alt.clone(), "none".to_string()))?;
        world.ok("zpool export tank")?;
        world.ok(&format!("zpool import -d {{vdevs}} {how} tank"))?;
        same("altroot", (get("altroot")?, get("cachefile")?), (alt.clone(), "none".to_string()))?;
        world.ok("zpool destroy tank")?;
    }
    world.ok(&format!("zpool create -o altroot={alt} -o cachefile={cache} -O canmount=off tank {{vdevs}}/a"))?;
    same("cachefile", get("cachefile")?, cache)?;
    Ok(())
}

/// A scrub finds devices that are not there any more, or something else in their place, also those from which nothing is read.
pub fn scrub_looks(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "l", "m", "s"])?;
    world.ok("zpool create -O canmount=off tank mirror {vdevs}/a {vdevs}/b log mirror {vdevs}/l {vdevs}/m spare {vdevs}/s")?;
    world.refused("zpool add tank spare {vdevs}/s", 1, "is a hot spare of this pool already")?.says("hot spare")?;
    let bytes = std::fs::metadata(world.path("vdevs/m"))?.len();
    std::fs::File::create(world.path("vdevs/m"))?.set_len(bytes)?;
    world.ok("zpool scrub -w tank")?;
    world
        .ok("zpool status tank")?
        .shows("vdevs/m  UNAVAIL")?
        .shows("state: DEGRADED")?
        .shows("vdevs/l  ONLINE")?
        .shows("vdevs/b  ONLINE")?;
    world.ok("zpool replace -w tank {vdevs}/m")?;
    world.ok("zpool status -x")?.prints("all pools are healthy")?;
    Ok(())
}

/// Pools for systems from before feature flags.
pub fn versions(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -o version=28 -O canmount=off tank mirror {vdevs}/a {vdevs}/b")?.prints("")?;
    world.ok("zpool get -H -o value,source version tank")?.prints("28\tlocal")?;
    world.ok("zfs create -o canmount=off tank/fs")?;
    world.ok("zfs snapshot tank/fs@one")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool get -H -o value feature@lz4_compress tank")?.prints("disabled")?;
    world.ok("zpool export tank")?;
    let legacy = world.ok("zpool import -d {vdevs}")?;
    legacy.shows("state: ONLINE")?.shows("status: The pool is formatted using a legacy on-disk version.")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zfs list -H -o name -t all")?.prints("tank\ntank/fs\ntank/fs@one")?;
    world.ok("zpool destroy tank")?;
    world.refused("zpool create -o version=29 tank {vdevs}/a", 1, "property 'version' number 29 is invalid")?;
    let both = "zpool create -o version=28 -o feature@lz4_compress=enabled tank {vdevs}/a";
    world.refused(both, 1, "'feature@' and 'version' properties cannot be specified together")?;
    world.ok("zpool create -o version=5000 -O canmount=off tank {vdevs}/a")?;
    world.ok("zpool get -H -o value version tank")?.prints("-")?;
    Ok(())
}

/// Old pools become newer ones, step by step, and lack until then what they lack.
pub fn upgrades(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    world.ok("zpool create -o version=1 -O canmount=off tank {vdevs}/a")?.prints("")?;
    world.ok("zpool get -H -o value version tank")?.prints("1")?;
    world.ok("zpool upgrade")?.shows("VER  POOL\n---  ------------\n 1   tank\n")?;
    world.ok("zfs create -o canmount=off tank/fs")?;
    world.ok("zfs get -H -o value version tank/fs")?.prints("2")?;
    let must = "pool must be upgraded to set this property or value";
    for property in ["copies=2", "compression=gzip", "refquota=10M", "compression=zle"] {
        world.refused(&format!("zfs set {property} tank/fs"), 1, must)?;
    }
    world.refused("zpool set bootfs=tank/fs tank", 1, "pool must be upgraded to support 'bootfs' property")?;
    world.refused("zpool add tank cache {vdevs}/b", 1, "pool must be upgraded to add cache devices")?;
    world.refused("zpool add tank spare {vdevs}/b", 1, "pool must be upgraded to add hot spares")?;
    world.refused("zpool set feature@sha512=enabled tank", 1, "pool must be upgraded")?;
    world.refused("zpool set version=5000 tank", 1, "property 'version' number 5000 is invalid.")?;
    world
        .refused("zfs upgrade tank/fs", 1, "")?
        .shows("tank/fs: can not be upgraded; the pool version needs to first be upgraded\nto version 24\n\n0 filesystems upgraded\n")?;
    world.ok("zfs snapshot tank/fs@one")?;
    world.refused("zfs hold tag tank/fs@one", 1, "pool must be upgraded")?;
    let destroyed = world.refused("zfs destroy -d tank/fs@one", 1, "pool must be upgraded")?;
    same("words about a property", destroyed.err.contains("property"), false)?;
    world.refused("zpool history", 1, "cannot get history for pool 'tank', pool must be upgraded: unsupported version or feature")?;
    world.refused("zfs userspace tank/fs", 1, "cannot get used/quota for tank/fs: unsupported version or feature")?;
    world.refused("zfs groupspace tank/fs", 1, "cannot get used/quota for tank/fs: unsupported version or feature")?;
    world.refused("zfs set userquota@7=1M tank/fs", 1, "pool and or dataset must be upgraded to set this property or value")?;
    world.ok("zfs clone -o canmount=off tank/fs@one tank/clone")?;
    for version in [4, 10, 11, 14] {
        let to = format!("zpool upgrade -V {version} tank");
        world.ok(&to)?.shows("Successfully upgraded 'tank' from version")?.shows(&format!("to version {version}."))?;
        world.ok("zpool get -H -o value version tank")?.prints(&version.to_string())?;
    }
    world.ok("zpool upgrade -V 14 tank")?.shows("Pool 'tank' is already formatted using version 14.")?;
    world.refused("zpool set version=5 tank", 1, "property 'version' number 5 is invalid.")?;
    world.refused("zpool set version=-1 tank", 1, "property 'version' number -1 is invalid.")?;
    world.ok("zpool history tank")?.shows("zpool upgrade -V 11 tank")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zfs promote tank/clone")?;
    world.ok("zpool set version=28 tank")?;
    world.ok("zfs snapshot tank/fs@two")?;
    world.ok("zpool scrub -w tank")?;
    world
        .ok("zpool upgrade tank")?
        .shows("Successfully upgraded 'tank' from version 28 to feature flags.\nEnabled the following features")?;
    world.ok("zpool get -H -o value version tank")?.prints("-")?;
    world.ok("zfs destroy -r tank/fs")?;
    world.ok("zfs destroy tank/clone@one")?;
    world.ok("zpool status -x")?.prints("all pools are healthy")?;
    Ok(())
}

/// Who imports with `-l` has what is encrypted mounted, below and above what is not, and is told of keys that are not to be had.
pub fn keys(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b"])?;
    std::fs::write(world.path("key"), "0123456789abcdef".repeat(4))?;
    let location = format!("file://{}", world.at("key"));
    world.ok("zpool create -m {mnt}/tank tank mirror {vdevs}/a {vdevs}/b")?;
    world.ok(&format!("zfs create -o encryption=on -o keyformat=hex -o keylocation={location} tank/locked"))?;
    world.ok("zfs create -o encryption=off tank/locked/plain")?;
    let files = ["mnt/tank/locked/secret", "mnt/tank/locked/plain/open"].map(|name| world.path(name));
    files.iter().try_for_each(|file| std::fs::write(file, "text"))?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} -l tank")?.prints("1 / 1 keys successfully loaded")?;
    for file in &files {
        same("a file that was there", std::fs::read_to_string(file)?, "text".to_string())?;
    }
    world.ok("zpool export tank")?;
    std::fs::rename(world.path("key"), world.path("away"))?;
    let without = world.refused("zpool import -d {vdevs} -l tank", 1, "Key load error: Failed to open key material file")?;
    same("keys that were loaded", without.out.trim(), "0 / 1 keys successfully loaded")?;
    world.ok("zfs get -H -o value keystatus tank/locked")?.prints("unavailable")?;
    // What is divided off is opened as well.
    std::fs::rename(world.path("away"), world.path("key"))?;
    world.ok(&format!("zpool split -l -R {} tank half", world.at("alt")))?.prints("1 / 1 keys successfully loaded")?;
    world.ok("zfs get -H -o value mounted half/locked")?.prints("yes")?;
    world.ok("zpool destroy half")?;
    world.ok("zpool export tank").map(|_| ())
}
