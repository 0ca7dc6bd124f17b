//! Vdevs for metadata and small blocks, and for tables of deduplication, as users make them, see them and rely on them.

use crate::world::{Failure, World, judge, mebibytes, same};
use serde_json::Value;

/// Bytes of the file that is written again and again; less than small blocks may take of the vdev.
const FILE_MIB: usize = 10;

/// Bytes taken of a top-level vdev, as `zpool list -v` has them.
fn taken(world: &World, vdev: &str) -> Result<u64, Failure> {
    let listed = world.ok("zpool list -vHp tank")?;
    let line = listed.out.lines().find(|line| line.starts_with(&format!("\t{vdev}\t")));
    let bytes = line.and_then(|line| line.split('\t').nth(3)).and_then(|word| word.parse().ok());
    bytes.ok_or_else(|| listed.fault(format!("no line of {vdev}")))
}

/// What does not go together, or has no redundancy, is refused; words stand where OpenZFS puts them.
pub fn words(world: &World) -> Result<(), Failure> {
    const OVERRIDE: &str = "use '-f' to override the following errors:";
    const MADE: &str = "zpool create -O canmount=off";
    world.vdevs(&["a", "b", "c", "m", "n", "o", "d", "l"])?;
    for (line, why) in [
        ("tank mirror {vdevs}/a {vdevs}/b special {vdevs}/m", "both mirror and file vdevs are present"),
        ("tank raidz {vdevs}/a {vdevs}/b {vdevs}/c dedup {vdevs}/d", "both raidz and file vdevs are present"),
    ] {
        world.refused(&format!("{MADE} {line}"), 1, OVERRIDE)?.says(&format!("mismatched replication level: {why}"))?;
    }
    let raidz = "tank mirror {vdevs}/a {vdevs}/b special raidz {vdevs}/m {vdevs}/n {vdevs}/o";
    world.refused(&format!("{MADE} {raidz}"), 1, "invalid vdev specification: unsupported 'special' device: raidz")?;
    for word in ["special", "dedup"] {
        world.refused(&format!("{MADE} -d tank {{vdevs}}/a {word} {{vdevs}}/m"), 1, "'allocation_classes', which is not enabled")?;
        world.refused(&format!("{MADE} tank {word} {{vdevs}}/m"), 1, "at least one toplevel vdev must be specified")?;
    }
    let all = "log {vdevs}/l special mirror {vdevs}/m {vdevs}/n dedup {vdevs}/d";
    let dry = world.ok(&format!("{MADE} -nf tank mirror {{vdevs}}/a {{vdevs}}/b {all}"))?;
    let at = |name: &str| world.at(&format!("vdevs/{name}"));
    let [mirror, pair] = [["a", "b"], ["m", "n"]].map(|names| names.map(|name| format!("\t    {}\n", at(name))).concat());
    let layout = format!("\ttank\n\t  mirror\n{mirror}\tdedup\n\t  {}\n\tspecial\n\t  mirror\n{pair}\tlogs\n\t  {}\n", at("d"), at("l"));
    dry.shows(&layout)?;
    world.ok(&format!("{MADE} tank mirror {{vdevs}}/a {{vdevs}}/b"))?;
    world.ok("zpool get -H -o value feature@allocation_classes tank")?.prints("enabled")?;
    world.refused("zpool add tank special {vdevs}/m", 1, OVERRIDE)?.says("pool uses mirror and new vdev is file")?;
    world.ok("zfs set special_small_blocks=4K tank")?.says("but the pool has no special vdev")?;
    let dry = world.ok("zpool add -nf tank special mirror {vdevs}/m {vdevs}/n dedup {vdevs}/d")?;
    dry.shows(&format!("\t  mirror-0\n{mirror}\tdedup\n\t  {}\n\tspecial\n\t  mirror\n{pair}", at("d")))?;
    world.ok("zpool add tank special mirror {vdevs}/m {vdevs}/n")?.prints("")?;
    world.ok("zpool add -f tank dedup {vdevs}/d")?.prints("")?;
    world.ok("zpool get -H -o value feature@allocation_classes tank")?.prints("active")?;
    same("warnings", world.ok("zfs set special_small_blocks=8K tank")?.err, String::new())?;
    for (value, bytes) in [("256", 256), ("1025", 1025), ("32M", 32 << 20)] {
        let why = format!("invalid 'special_small_blocks={bytes}' property: must be zero or a power of 2 from 512B to 16M");
        world.refused(&format!("zfs set special_small_blocks={value} tank"), 1, "cannot set property for 'tank'")?.says(&why)?;
    }
    world.ok("zpool remove -w tank mirror-1")?.prints("")?;
    world.ok("zpool status tank")?.hides("special")?.shows("remove: Removal of vdev 1 copied ")?;
    world.ok("zpool export tank").map(drop)
}

/// Who makes a pool with small blocks that can lie nowhere, or with records that all are such blocks by a slip, is told so, and not after all metadata's
/// vdev is full of files.
pub fn limits(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "m", "p"])?;
    for (record, small, largest) in [("", "256K", "128K"), ("-O recordsize=4K", "8K", "4K"), ("-O recordsize=1M", "2M", "1M")] {
        let line =
            format!("zpool create -n -f -O canmount=off {record} -O special_small_blocks={small} tank {{vdevs}}/a special {{vdevs}}/m");
        world.refused(&line, 1, "cannot create 'tank'")?.says(&format!("must be zero or a power of 2 from 512B to {largest}"))?;
    }
    let line = "zpool create -O canmount=off -O special_small_blocks=4K tank {vdevs}/a";
    world.refused(line, 1, "special_small_blocks property requires a special vdev")?;
    let line = "zpool create -f -O canmount=off -O recordsize=1M -O special_small_blocks=1M tank {vdevs}/a special {vdevs}/m";
    world.ok(line)?.prints("")?;
    // Of a file system that is there the pool's largest block is the limit.
    world.ok("zfs set recordsize=4K tank")?;
    world.ok("zfs set special_small_blocks=16M tank")?;
    world.ok("zpool create -d -O canmount=off plain {vdevs}/p")?;
    world.refused("zfs set special_small_blocks=256K plain", 1, "cannot set property for 'plain'")?;
    world.ok("zfs set special_small_blocks=128K plain").map(drop)
}

/// Metadata lies on its vdev alone, and small blocks where that was asked for; everybody sees which vdev is for what, also after an import, and without
/// it there is no pool.
pub fn places(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "m", "n", "o"])?;
    world.ok(
        "zpool create -m {mnt}/tank -O compression=off -O atime=off tank mirror {vdevs}/a {vdevs}/b special mirror {vdevs}/m {vdevs}/n",
    )?;
    let status = world.ok("zpool status tank")?;
    status.shows("\n\t  mirror-0 ")?.shows("\tspecial\t\n\t  mirror-1 ")?;
    world.ok("zpool list -v tank")?.shows("\nspecial ")?.shows("\n  mirror-1 ")?;
    world.ok("zpool iostat -v tank")?.shows("\nspecial ")?.shows("\n  mirror-1 ")?;
    let json: Value = serde_json::from_str(&world.ok("zpool status -j tank")?.out)?;
    let special = &json["pools"]["tank"]["special"]["mirror-1"];
    same("class of the mirror", special["class"].as_str(), Some("special"))?;
    same("class of its devices", special["vdevs"][world.at("vdevs/m")]["class"].as_str(), Some("special"))?;
    same("metadata", taken(world, "mirror-1")? > 0, true)?;
    // The whole file, and nothing but the file, lies beside it; then it is the other way round.
    let (file, whole) = (mebibytes(FILE_MIB), (FILE_MIB << 20) as u64);
    for (small, holder, other) in [("0", "mirror-0", "mirror-1"), ("128K", "mirror-1", "mirror-0")] {
        world.ok(&format!("zfs set special_small_blocks={small} tank"))?;
        // What earlier txgs freed rests for some more: it is not to go while the file comes.
        (0..3).try_for_each(|_| world.ok("zpool sync -f tank").map(drop))?;
        let before = (taken(world, holder)?, taken(world, other)?);
        std::fs::write(world.path(&format!("mnt/tank/file-{small}")), &file)?;
        world.ok("zpool sync tank")?;
        same(holder, taken(world, holder)? >= before.0 + whole, true)?;
        same(other, taken(world, other)? < before.1 + whole / 2, true)?;
    }
    // A device of it is replaced as any other.
    world.ok("zpool replace -w tank {vdevs}/n {vdevs}/o")?;
    world.ok("zpool status tank")?.shows("\tspecial\t\n\t  mirror-1 ")?.shows("vdevs/o ")?.hides("vdevs/n ")?;
    world.ok("zpool export tank")?;
    let zdb = judge("vdevs for some blocks: OpenZFS's judgement")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch tank")?;
    world.ok("zpool import -d {vdevs}")?.shows("\tspecial\n\t  mirror-1 ")?;
    // One device of it may be away, both may not: nobody knows where anything is.
    for name in ["m", "o"] {
        std::fs::rename(world.path(&format!("vdevs/{name}")), world.path(&format!("away-{name}")))?;
        match name {
            "m" => {
                world.ok("zpool import -d {vdevs} tank")?;
                world.ok("zpool status tank")?.shows("DEGRADED")?.shows("\tspecial\t\n\t  mirror-1 ")?;
                world.ok("zpool export tank")?;
            }
            _ => world.refused("zpool import -d {vdevs} tank", 1, "cannot import 'tank'").map(drop)?,
        }
    }
    for name in ["m", "o"] {
        std::fs::rename(world.path(&format!("away-{name}")), world.path(&format!("vdevs/{name}")))?;
    }
    world.ok("zpool import -d {vdevs} tank")?;
    for small in ["0", "128K"] {
        same("the file", std::fs::read(world.path(&format!("mnt/tank/file-{small}")))? == file, true)?;
    }
    world.ok("zpool wait -t resilver tank")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("errors: No known data errors")?;
    // A pool of mirrors is divided with it.
    let half = world.at("vdevs/b");
    world.ok("zpool split -n tank half")?.shows(&format!("\thalf\n\t  {half}\n\tspecial\n\t  "))?;
    world.ok("zpool split tank half")?;
    world.ok("zpool import -N -d {vdevs} half")?;
    world.ok("zpool scrub -w half")?;
    world.ok("zpool status half")?.shows("\tspecial\t\n\t  ")?.shows("errors: No known data errors")?;
    world.ok("zpool destroy half")?;
    world.ok("zpool destroy tank").map(drop)
}
