//! Encrypted file systems as users have them: made, locked, opened, with another key, cloned; pools are judged by OpenZFS's `zdb`.

use crate::receives::{piped, shell};
use crate::waiting::until;
use crate::world::{Failure, World, judge, same};
use std::os::unix::fs::MetadataExt;

/// Words that nobody may find on a device.
const SECRET: &[u8] = b"words that nobody else may read";
/// Times that a file has them.
const TIMES: usize = 1000;

fn is_there(world: &World, file: &str, wanted: &[u8]) -> Result<bool, Failure> {
    Ok(std::fs::read(world.path(file))? == wanted)
}

/// If this fails, what users believe to be encrypted is on the device in the clear, is lost when its key was away, or opens with a key that it has no more.
pub fn encrypted(world: &World) -> Result<(), Failure> {
    let zdb = judge("encrypted file systems: OpenZFS's judgement")?;
    world.vdevs(&["a"])?;
    std::fs::write(world.path("key"), [7u8; 32])?;
    std::fs::write(world.path("words"), "correct horse\n")?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.refused("zfs create -o encryption=on tank/a", 1, "Keyformat required for new encryption root.")?;
    let hex = "zfs create -o encryption=on -o keyformat=hex -o keylocation=file://{dir}/key tank/a";
    world.refused(hex, 1, "Hex key too short (expected 64).")?;
    world.ok("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://{dir}/key tank/a")?;
    world.ok("zfs create tank/a/b")?;
    world.ok("zfs get -H -o value encryption,keystatus,encryptionroot tank/a/b")?.prints("aes-256-gcm\navailable\ntank/a")?;
    world.refused("zfs inherit keylocation tank/a", 1, "'keylocation' property cannot be inherited")?;
    world.refused("zfs inherit quota tank/a", 1, "'quota' property cannot be inherited")?;
    let contents = SECRET.repeat(TIMES);
    std::fs::write(world.path("mnt/tank/a/b/file"), &contents)?;
    world.ok("zfs snapshot tank/a/b@one")?;
    world.refused("zfs unload-key tank/a", 1, "'tank/a' is busy.")?;
    world.refused("zfs unload-key tank/a", 1, "unmount what has this key: tank/a/b, tank/a")?;
    world.ok("zfs unmount tank/a/b")?;
    world.ok("zfs unmount tank/a")?;
    world.ok("zfs unload-key tank/a")?;
    world.refused("zfs mount tank/a/b", 1, "encryption key not loaded")?;
    world.refused("zfs create tank/a/c", 1, "encryption key not loaded")?;
    world.refused("zfs change-key tank/a", 1, "Key must be loaded.")?;
    let device = std::fs::read(world.path("vdevs/a"))?;
    same("words on the device", device.windows(SECRET.len()).any(|part| part[0] == SECRET[0] && part == SECRET), false)?;
    world.ok("zfs load-key tank/a")?;
    world.ok("zfs mount -a")?;
    same("the file", is_there(world, "mnt/tank/a/b/file", &contents)?, true)?;
    world.ok("zfs change-key -o keyformat=passphrase -o pbkdf2iters=100000 -o keylocation=file://{dir}/words tank/a")?;
    world.ok("zfs clone tank/a/b@one tank/a/clone")?;
    std::fs::write(world.path("mnt/tank/a/clone/more"), SECRET)?;
    world.refused("zfs send -p tank/a/b@one", 1, "may not be sent with properties without the raw flag")?;
    world.ok("zpool export tank")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zfs get -H -o value keystatus,keyformat tank/a/clone")?.prints("unavailable\npassphrase")?;
    world.refused("zfs load-key -L file://{dir}/key tank/a", 1, "Incorrect key provided for 'tank/a'.")?;
    world.ok("zfs mount -l -a")?;
    let files = [is_there(world, "mnt/tank/a/b/file", &contents)?, is_there(world, "mnt/tank/a/clone/more", SECRET)?];
    same("the files", files, [true, true])?;
    world.ok("zfs rollback tank/a/b@one")?;
    world.ok("zfs promote tank/a/clone")?;
    world.ok("zfs get -H -o value encryptionroot tank/a/b")?.prints("tank/a")?;
    world.ok("zfs destroy tank/a/b")?;
    same("what was promoted", is_there(world, "mnt/tank/a/clone/file", &contents)?, true)
}

/// If this fails, who has the key of a pool that cannot be imported does not get at what is in it; or who has none takes what is sound for damaged.
pub fn looked_into(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a"])?;
    std::fs::write(world.path("words"), "correcthorse\n")?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    let form = "-o keyformat=passphrase -o pbkdf2iters=100000 -o keylocation=file://{dir}/words";
    world.ok(&format!("zfs create -o encryption=on {form} tank/a"))?;
    world.ok("zfs create tank/a/b")?;
    world.ok("zfs create tank/plain")?;
    let contents = SECRET.repeat(TIMES);
    std::fs::write(world.path("mnt/tank/a/b/file"), &contents)?;
    let object = std::fs::metadata(world.path("mnt/tank/a/b/file"))?.ino();
    world.ok("zfs snapshot tank/a/b@s")?;
    let snapshot = world.ok("zfs get -H -p -o value objsetid tank/a/b@s")?.out.trim().to_string();
    world.ok("zpool export tank")?;
    let size = format!("\tsize\t{}\n", contents.len());
    let locked = world.ok(&format!("zdb -e -p {{vdevs}} -ddddd tank/a/b {object}"))?;
    locked.shows("\t\t(bonus encrypted)\n\t\t(object encrypted)\nIndirect blocks:\n")?.hides(&size)?;
    let open = world.ok(&format!("zdb -K correcthorse -e -p {{vdevs}} -ddddd tank/a/b {object}"))?;
    open.shows("Unlocked encryption root: tank/a\n")?.shows(&size)?.shows("\tpath\t/file\n")?.hides("encrypted)")?;
    world.ok("zdb -K correcthorse -e -p {vdevs} -r tank/a/b file {dir}/out")?;
    same("the file", is_there(world, "out", &contents)?, true)?;
    world.refused("zdb -K wronghorse -e -p {vdevs} -d tank/a/b", 1, "couldn't load encryption key for tank/a: ")?;
    world.refused("zdb -K correcthorse -e -p {vdevs} -d tank/plain", 1, "zdb: can't open 'tank/plain': ")?;
    world.refused(&format!("zdb -B -e -p {{vdevs}} tank/{snapshot}"), 1, "dump_backup: ")?;
    let zdb = format!("{} -B -e -p {}", world.program("zdb"), world.at("vdevs"));
    for (words, is_clear) in [(format!("-K correcthorse tank/{snapshot}"), true), (format!("tank/{snapshot} w"), false)] {
        piped(world, &format!("{zdb} {words} > stream"))?;
        let stream = std::fs::read(world.path("stream"))?;
        same("a whole stream", stream.len() > 2000, true)?;
        same(&words, stream.windows(SECRET.len()).any(|part| part == SECRET), is_clear)?;
    }
    Ok(())
}

/// Closes what is encrypted in the pool that is sent.
fn lock(world: &World) -> Result<(), Failure> {
    world.ok("zfs unmount tank/a/b")?;
    world.ok("zfs unmount tank/a")?;
    world.ok("zfs unload-key tank/a").map(drop)
}

/// If this fails, a copy on a host that has no key is none, asks for other keys than what was sent, or cannot be gone on with.
pub fn raw_copies(world: &World) -> Result<(), Failure> {
    let zdb = judge("raw copies: OpenZFS's judgement")?;
    world.vdevs(&["a", "b"])?;
    std::fs::write(world.path("key"), [7u8; 32])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zpool create -m {mnt}/copy copy {vdevs}/b")?;
    world.ok("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://{dir}/key tank/a")?;
    world.ok("zfs create tank/a/b")?;
    let contents = SECRET.repeat(TIMES);
    std::fs::write(world.path("mnt/tank/a/b/file"), &contents)?;
    world.ok("zfs snapshot -r tank/a@one")?;
    lock(world)?;
    piped(world, "zfs send -w -R tank/a@one | zfs receive copy/a")?;
    world.ok("zfs get -H -o value encryptionroot,keystatus,keylocation copy/a")?.prints("copy/a\nunavailable\nprompt")?;
    world.ok("zfs get -H -o value encryptionroot,keystatus copy/a/b")?.prints("copy/a\nunavailable")?;
    world.refused("zfs mount copy/a/b", 1, "encryption key not loaded")?;
    let device = std::fs::read(world.path("vdevs/b"))?;
    same("words on the device", device.windows(SECRET.len()).any(|part| part[0] == SECRET[0] && part == SECRET), false)?;
    world.ok("zfs load-key tank/a")?;
    world.ok("zfs mount -a")?;
    std::fs::write(world.path("mnt/tank/a/b/more"), SECRET)?;
    world.ok("zfs snapshot -r tank/a@two")?;
    world.ok("zfs bookmark tank/a/b@two tank/a/b#two")?;
    let counted = world.ok("zfs userspace -Hpn -o name,objused tank/a/b")?.out;
    lock(world)?;
    piped(world, "zfs send -w -R -I @one tank/a@two | zfs receive copy/a")?;
    world.ok("zfs load-key -L file://{dir}/key copy/a")?;
    world.ok("zfs mount -a")?;
    // Nobody could count what came without a key.
    until("who uses how much of the copy", || Ok(world.ok("zfs userspace -Hpn -o name,objused copy/a/b")?.out == counted))?;
    let files = [is_there(world, "mnt/copy/a/b/file", &contents)?, is_there(world, "mnt/copy/a/b/more", SECRET)?];
    same("the files", files, [true, true])?;
    world.ok("zfs snapshot -r tank/a@three")?;
    piped(world, "zfs send -w -i '#two' tank/a/b@three | zfs receive -F copy/a/b")?;
    for word in ["-o encryption=off", "-x encryption"] {
        let ran = shell(world, &format!("zfs send -w tank/a@two | zfs receive {word} copy/x"))?;
        same(word, ran.code, 1)?;
        ran.says("cannot be set or excluded for raw streams")?;
    }
    let ran = shell(world, "zfs send -w tank/a@two | zfs receive -F copy/a")?;
    same("over what is encrypted", ran.code, 1)?;
    world.ok("zpool export copy")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch copy").map(drop)
}
