//! What changed from a snapshot to another one, or since: `zfs diff`.

use crate::world::{Failure, World, same};

/// Lines in the order of their text: the command's goes by the files' numbers.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// Has a command print these lines, in any order; `%` stands for the place of the file system.
fn prints(world: &World, line: &str, place: &str, expected: &[&str]) -> Result<(), Failure> {
    let expected: Vec<String> = expected.iter().map(|line| line.replace('%', place)).collect();
    same(line, sorted(&world.ok(line)?.out), sorted(&expected.join("\n")))
}

/// Every kind of difference, between all that can be compared.
pub fn diff(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zfs create tank/a")?;
    let place = world.at("mnt/tank/a");
    let path = |name: &str| world.path("mnt/tank/a").join(name);
    for name in ["removed", "renamed", "changed", "linked", "left alone"] {
        std::fs::write(path(name), name)?;
    }
    std::fs::create_dir(path("dir"))?;
    world.ok("zfs snapshot tank/a@1")?;
    std::fs::remove_file(path("removed"))?;
    std::fs::rename(path("renamed"), path("dir/again"))?;
    std::fs::write(path("changed"), "otherwise")?;
    std::fs::hard_link(path("linked"), path("second"))?;
    std::os::unix::fs::symlink("changed", path("a b"))?;
    world.ok("zfs wait tank/a")?;
    let all = ["M\t%/", "M\t%/dir", "-\t%/removed", "R\t%/renamed -> %/dir/again", "M\t%/changed", "M\t%/linked\t(+1)", "+\t%/a b"];
    prints(world, "zfs diff -h tank/a@1", &place, &all)?;
    world.ok("zfs list -H -o name -t snapshot tank/a")?.prints("tank/a@1")?;
    world.ok("zfs snapshot tank/a@2")?;
    prints(world, "zfs diff -h tank/a@1 tank/a@2", &place, &all)?;
    prints(world, "zfs diff -h @1 tank/a", &place, &all)?;
    world.ok("zfs diff tank/a@1 @2")?.shows("/a\\0040b\n")?;
    world.ok("zfs diff tank/a@2")?.prints("")?;
    let typed = ["M\t/\t%/", "M\t/\t%/dir", "-\tF\t%/removed", "R\tF\t%/renamed\t%/dir/again", "M\tF\t%/changed", "M\tF\t%/linked\t(+1)"];
    prints(world, "zfs diff -hFH tank/a@1 tank/a@2", &place, &[&typed[..], &["+\t@\t%/a b"][..]].concat())?;
    let times = world.ok("zfs diff -t tank/a@1 tank/a@2")?.out;
    same("a time before each", times.lines().all(|line| line.split('\t').next().is_some_and(|time| time.contains('.'))), true)?;
    world.ok("zfs clone tank/a@1 tank/c")?;
    std::fs::write(world.path("mnt/tank/c/new"), "new")?;
    prints(world, "zfs diff -h tank/a@1 tank/c", &world.at("mnt/tank/c"), &["M\t%/", "+\t%/new"])?;
    refusals(world)
}

fn refusals(world: &World) -> Result<(), Failure> {
    world.ok("zfs create -V 1M tank/v")?;
    let later = "Unable to obtain diffs:\n   Not an earlier snapshot from the same fs";
    world.refused("zfs diff tank/a@2 tank/a@1", 1, later)?;
    world.refused("zfs diff tank/a@1 tank/a@1", 1, later)?;
    world.refused("zfs diff tank/a@2 tank/c", 1, later)?;
    world.refused("zfs diff tank/a@1 tank", 1, "Not an earlier snapshot from the same fs: invalid name")?;
    world.refused("zfs diff tank/a@no", 1, "Unable to obtain diffs: snapshot 'tank/a@no' does not exist")?;
    world.refused("zfs diff tank/a@1 tank/a@no", 1, "Unable to obtain diffs: snapshot 'tank/a@no' does not exist")?;
    world.refused("zfs diff tank/a", 1, "Badly formed snapshot name tank/a: missing '@' delimiter in snapshot name")?;
    world.refused("zfs diff tank/a tank/a@1", 1, "Unable to determine which snapshots to compare: invalid name")?;
    world.refused("zfs diff tank/no@1", 1, "cannot open 'tank/no': dataset does not exist")?;
    world.refused("zfs diff tank/v@1", 1, "cannot open 'tank/v': operation not applicable to datasets of this type")?;
    world.refused("zfs diff", 2, "must provide at least one snapshot name")?;
    world.ok("zfs unmount tank/a")?;
    world.refused("zfs diff tank/a@1", 1, "Cannot diff an unmounted snapshot: operation not applicable to datasets of this type")?;
    world.ok("zfs list -H -o name -t snapshot tank/a")?.prints("tank/a@1\ntank/a@2")?;
    Ok(())
}
