//! `zfs receive` as users see it, with streams made by hand: what is received, what is refused, and what is left of it.

use crate::world::{Failure, Ran, World, judge, same};

const RECORD_BYTES: usize = 312;
const SUM_AT: usize = 280;
const MAGIC: u64 = 0x2_F5BA_CBAC;
const BLOCK_BYTES: u64 = 4096;
const BEGIN: u32 = 0;
const OBJECT: u32 = 1;
const WRITE: u32 = 3;
const FREE: u32 = 4;
const END: u32 = 5;

/// Stream of a dataset, with its running checksum.
struct Stream {
    bytes: Vec<u8>,
    sum: [u64; 4],
    to: u64,
}

impl Stream {
    /// Begins the stream of a volume's snapshot with this name and guid, since the one with the guid `from`.
    fn begin(name: &str, guids: (u64, u64)) -> Stream {
        Stream::of(3, name, guids)
    }

    /// Begins the stream of a dataset of this kind.
    fn of(kind: u64, name: &str, (from, to): (u64, u64)) -> Stream {
        let mut stream = Stream { bytes: Vec::new(), sum: [0; 4], to };
        let mut record = head(BEGIN, &[(8, MAGIC), (16, 1), (24, 1_000), (32, kind | 12 << 32), (40, to), (48, from)]);
        record[56..56 + name.len()].copy_from_slice(name.as_bytes());
        stream.fold(&record);
        stream.bytes.extend(record);
        stream
    }

    fn fold(&mut self, bytes: &[u8]) {
        for word in bytes.chunks_exact(4) {
            self.sum[0] = self.sum[0].wrapping_add(u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
            (1..4).for_each(|at| self.sum[at] = self.sum[at].wrapping_add(self.sum[at - 1]));
        }
    }

    fn record(mut self, kind: u32, fields: &[(usize, u64)], payload: &[u8]) -> Stream {
        let mut record = head(kind, fields);
        self.fold(&record[..SUM_AT]);
        for (at, word) in self.sum.into_iter().enumerate() {
            record[SUM_AT + 8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        self.fold(&record[SUM_AT..]);
        self.fold(payload);
        self.bytes.extend(record);
        self.bytes.extend(payload);
        self
    }

    /// An object of this number, type and block size, which has nothing else than what follows.
    fn object(self, number: u64, kind: u64, block_bytes: u64) -> Stream {
        let to = self.to;
        let object = self.record(OBJECT, &[(8, number), (16, kind), (24, block_bytes), (34, 1), (40, to)], &[]);
        object.record(FREE, &[(8, number), (16, block_bytes), (24, u64::MAX), (32, to)], &[])
    }

    fn write(self, (number, kind): (u64, u64), offset: u64, data: &[u8]) -> Stream {
        let to = self.to;
        self.record(WRITE, &[(8, number), (16, kind), (24, offset), (32, data.len() as u64), (40, to)], data)
    }

    fn end(self) -> Vec<u8> {
        let (sum, to) = (self.sum, self.to);
        self.record(END, &[(8, sum[0]), (16, sum[1]), (24, sum[2]), (32, sum[3]), (40, to)], &[]).bytes
    }
}

/// Bytes of a record with these words at these offsets.
fn head(kind: u32, fields: &[(usize, u64)]) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..4].copy_from_slice(&kind.to_le_bytes());
    for (at, value) in fields {
        for (byte, part) in record[*at..].iter_mut().zip(value.to_le_bytes()) {
            *byte |= part;
        }
    }
    record
}

/// A volume of 64 KiB whose first block is filled with a byte.
pub fn full(name: &str, guid: u64, byte: u8) -> Vec<u8> {
    let mut table = vec![0; 512];
    table[..8].copy_from_slice(&((1u64 << 63) + 3).to_le_bytes());
    table[64..72].copy_from_slice(&(16 * BLOCK_BYTES).to_le_bytes());
    table[78..82].copy_from_slice(b"size");
    let data = Stream::begin(name, (0, guid)).object(1, 23, BLOCK_BYTES).write((1, 23), 0, &[byte; BLOCK_BYTES as usize]);
    data.object(2, 24, 512).write((2, 24), 0, &table).end()
}

/// Changes of such a volume.
fn changes(name: &str, guids: (u64, u64), byte: u8) -> Vec<u8> {
    let begun = Stream::begin(name, guids).object(1, 23, BLOCK_BYTES);
    let written = begun.write((1, 23), 0, &[byte; BLOCK_BYTES as usize]);
    written.write((1, 23), BLOCK_BYTES, &[byte; BLOCK_BYTES as usize]).end()
}

/// Runs `zfs` with these words and a stream on its standard input.
fn zfs(world: &World, words: &str, stream: &[u8]) -> Result<Ran, Failure> {
    std::fs::write(world.path("stream"), stream)?;
    std::fs::write(world.path("fed"), "exec \"$@\" < stream\n")?;
    world.run(&format!("sh {{dir}}/fed {} {words}", world.program("zfs")))
}

/// Runs `zfs` with a stream, which it has to take.
pub fn received(world: &World, words: &str, stream: &[u8]) -> Result<Ran, Failure> {
    let ran = zfs(world, words, stream)?;
    if ran.code == 0 { Ok(ran) } else { Err(ran.fault("it should be received")) }
}

/// Runs `zfs` with a stream, which it has to refuse with these words.
pub fn refused(world: &World, words: &str, stream: &[u8], text: &str) -> Result<(), Failure> {
    let ran = zfs(world, words, stream)?;
    if ran.code != 1 {
        return Err(ran.fault("it should be refused with 1"));
    }
    ran.says(text).map(drop)
}

fn value(world: &World, property: &str, name: &str) -> Result<String, Failure> {
    Ok(world.ok(&format!("zfs get -H -p -o value {property} {name}"))?.out.trim().to_string())
}

/// Streams are received under the names that were asked for, and refused in OpenZFS's words.
pub fn receives(world: &World) -> Result<(), Failure> {
    let zdb = judge("receive: OpenZFS's judgement")?;
    world.vdevs(&["a"])?;
    world.ok("zpool create -O mountpoint=none tank {vdevs}/a")?;
    let first = full("far/deep/v@one", 0x1111, 1);
    world.refused("zfs receive tank/v", 1, "cannot receive: failed to read from stream")?;
    refused(world, "receive tank/v", &[7; 4096], "cannot receive: invalid stream (bad magic number)")?;
    refused(world, "receive no/v", &first, "cannot open 'no/v'")?;
    received(world, "receive -n tank/v", &first)?.prints("")?;
    refused(world, "receive -o origin=tank/x@no tank/v", &first, "local origin for clone tank/v@one does not exist\n'tank/x@no' is no")?;
    received(world, "receive -nv tank/v", &first)?.shows("would receive full stream of far/deep/v@one into tank/v@one")?;
    refused(world, "receive tank/v", &first[..first.len() - 1], "cannot receive new filesystem stream: incomplete stream")?;
    world.ok("zfs list -H -o name -r tank")?.prints("tank")?;
    received(world, "receive -v tank/v", &first)?.shows("receiving full stream of far/deep/v@one into tank/v@one")?.shows("received ")?;
    refused(world, "recv -e tank", &first, "destination 'tank/v' exists\nmust specify -F to overwrite it")?;
    received(world, "receive -d -o compression=off tank", &first)?;
    same("its size", value(world, "volsize", "tank/v")?, "65536".to_string())?;
    same("its guid", value(world, "guid", "tank/v@one")?, 0x1111.to_string())?;
    same("its compression", value(world, "compression", "tank/deep/v")?, "off".to_string())?;
    world.ok("zfs list -H -o name -r -t volume,snapshot tank")?.prints("tank/deep/v\ntank/deep/v@one\ntank/v\ntank/v@one")?;
    increments(world)?;
    resumed(world)?;
    hollow(world)?;
    destroyed(world)?;
    left(world)?;
    world.ok("zpool export tank")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch tank").map(drop)
}

/// Streams that go on from a snapshot are received on top of it, and no others.
fn increments(world: &World) -> Result<(), Failure> {
    let second = changes("far/deep/v@two", (0x1111, 0x2222), 2);
    let stranger = changes("far/deep/v@two", (0x9999, 0x2222), 2);
    let why = "cannot receive incremental stream: most recent snapshot of tank/v does not\nmatch incremental source";
    refused(world, "receive tank/v", &stranger, why)?;
    refused(world, "receive tank/none", &second, "cannot receive incremental stream: destination 'tank/none' does not exist")?;
    let mut damaged = second.clone();
    damaged[3 * RECORD_BYTES + 100] ^= 1;
    refused(world, "receive tank/v", &damaged, "cannot receive incremental stream: checksum mismatch")?;
    let whole = full("far/deep/v@two", 0x3333, 3);
    refused(world, "receive -F tank/v", &whole, "destination has snapshots (eg. tank/v@one)\nmust destroy them to overwrite it")?;
    received(world, "receive -v tank/v", &second)?.shows("receiving incremental stream of far/deep/v@two into tank/v@two")?;
    refused(world, "receive tank/v", &second, "cannot restore to tank/v@two: destination already exists")?;
    world.ok("zfs snapshot tank/v@mine")?;
    let third = changes("far/deep/v@three", (0x1111, 0x4444), 4);
    refused(world, "receive tank/v", &third, "destination tank/v has been modified\nsince most recent snapshot")?;
    received(world, "receive -F tank/v", &third)?;
    world.ok("zfs list -H -o name -t snapshot -r tank/v")?.prints("tank/v@one\ntank/v@three").map(drop)
}

/// Interrupted streams are kept where that was asked for, and can be given up.
fn resumed(world: &World) -> Result<(), Failure> {
    let fourth = changes("far/deep/v@four", (0x4444, 0x5555), 5);
    refused(world, "receive -s tank/v", &fourth[..fourth.len() - RECORD_BYTES], "    zfs send -t 1-")?;
    let token = value(world, "receive_resume_token", "tank/v")?;
    same("the token's beginning", token.get(..2), Some("1-"))?;
    let text = "destination tank/v contains partially-complete state from \"zfs receive -s\".";
    refused(world, "receive tank/v", &fourth, text)?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    same("the token after an import", value(world, "receive_resume_token", "tank/v")?, token)?;
    world.ok("zfs receive -A tank/v")?;
    world.refused("zfs receive -A tank/v", 1, "'tank/v' does not have any resumable receive state to abort")?;
    same("no token", value(world, "receive_resume_token", "tank/v")?, "-".to_string())?;
    received(world, "receive tank/v", &fourth)?;
    world.ok("zfs destroy -r tank/v").map(drop)
}

/// File systems without contents are refused at the end of their stream, and hide nothing and hinder nobody before it.
fn hollow(world: &World) -> Result<(), Failure> {
    let empty = Stream::of(2, "far/deep/f@one", (0, 0x6666)).end();
    refused(world, "receive tank/f", &empty, "cannot receive new filesystem stream: invalid backup stream")?;
    world.ok("zfs list -H -o name -r tank")?.prints("tank\ntank/deep\ntank/deep/v")?;
    refused(world, "receive -s tank/f", &empty[..2 * RECORD_BYTES - 1], "    zfs send -t 1-")?;
    world.ok("zfs list -H -o name -r tank")?.prints("tank\ntank/deep\ntank/deep/v\ntank/f")?;
    same("its token", value(world, "receive_resume_token", "tank/f")?.get(..2), Some("1-"))?;
    same("what it has not yet", value(world, "version", "tank/f")?, "-".to_string())?;
    world.ok("zfs snapshot -r tank@all")?;
    let snapshots = "tank@all\ntank/deep@all\ntank/deep/v@one\ntank/deep/v@all";
    world.ok("zfs list -H -o name -t snapshot -r tank")?.prints(snapshots)?;
    world.ok("zfs receive -A tank/f")?;
    world.ok("zfs destroy -r tank@all").map(drop)
}

/// What is being received goes with `-r` once all of it has come, with the snapshot that it has then.
fn destroyed(world: &World) -> Result<(), Failure> {
    std::fs::write(world.path("slow"), full("far/deep/w@one", 0x7777, 1))?;
    let feeding = "{ head -c 312 slow; until test -e go; do sleep 0.1; done; tail -c +313 slow; } | zfs receive tank/w &";
    let begun = "n=0; until zfs list tank/w > seen 2>&1; do n=$((n+1)); test $n -lt 300 || { touch go; exit 1; }; sleep 0.1; done";
    let destroying = "until zfs destroy -r tank/w 2> why; do grep -q busy why || { cat why; exit 1; }; done";
    let ran = shell(world, &format!("{feeding}\n{begun}\n{{ sleep 0.5; touch go; }} &\n{destroying}\nwait"))?;
    if ran.code != 0 {
        return Err(ran.fault("it should be destroyed"));
    }
    world.ok("zfs list -H -o name -r tank")?.prints("tank\ntank/deep\ntank/deep/v").map(drop)
}

/// Begins to receive a snapshot on top of a volume with one of the same content, and is interrupted.
fn half_on_top(world: &World, name: &str) -> Result<(), Failure> {
    let second = changes("far/u@two", (0x8881, 0x8882), 2);
    refused(world, &format!("receive -s {name}"), &second[..second.len() - RECORD_BYTES], "    zfs send -t 1-")
}

/// If this fails, nobody can destroy a dataset with what is left of an interrupted receive: what is in the way has a name that no command takes.
fn left(world: &World) -> Result<(), Failure> {
    let first = full("far/u@one", 0x8881, 1);
    world.ok("zfs create tank/p")?;
    received(world, "receive tank/p/u", &first)?;
    half_on_top(world, "tank/p/u")?;
    world.refused("zfs destroy tank/p/u", 1, "volume has children\nuse '-r' to destroy the following datasets:\ntank/p/u@one")?;
    world.ok("zfs destroy -nvr tank/p/u")?.shows("would destroy tank/p/u@one")?.hides("%")?;
    world.refused("zfs destroy tank/p/u@one", 1, "a receive into 'tank/p/u', interrupted or under way, goes on from it")?;
    world.ok("zfs destroy -R tank/p/u@one")?;
    same("no token", value(world, "receive_resume_token", "tank/p/u")?, "-".to_string())?;
    world.ok("zfs destroy tank/p/u")?;
    for line in ["destroy -r tank/p/u", "destroy -R tank/p/u", "destroy -r tank/p"] {
        received(world, "receive tank/p/u", &first)?;
        half_on_top(world, "tank/p/u")?;
        world.ok(&format!("zfs {line}"))?;
    }
    // Without snapshots it has nothing that anybody sees.
    world.ok("zfs create -s -V 64K tank/p")?;
    refused(world, "receive -s -F tank/p", &first[..first.len() - RECORD_BYTES], "    zfs send -t 1-")?;
    world.ok("zfs destroy tank/p")?;
    // What it goes on from is another's now.
    received(world, "receive tank/u", &first)?;
    half_on_top(world, "tank/u")?;
    world.ok("zfs clone tank/u@one tank/c")?;
    world.ok("zfs promote tank/c")?;
    world.ok("zfs destroy -R tank/c")?;
    gone_back(world, &first)?;
    world.ok("zfs list -H -o name -r tank")?.prints("tank\ntank/deep\ntank/deep/v").map(drop)
}

/// If this fails, a rollback gives up what hours of a receive brought without a word.
fn gone_back(world: &World, first: &[u8]) -> Result<(), Failure> {
    received(world, "receive tank/q", first)?;
    received(world, "receive tank/q", &changes("far/u@two", (0x8881, 0x8884), 2))?;
    let third = changes("far/u@three", (0x8884, 0x8885), 3);
    refused(world, "receive -s tank/q", &third[..third.len() - RECORD_BYTES], "    zfs send -t 1-")?;
    world.refused("zfs rollback -r tank/q@one", 1, "a receive into 'tank/q', interrupted or under way, goes on from it")?;
    world.ok("zfs rollback -R tank/q@one")?;
    world.ok("zfs list -H -o name -r -t snapshot tank/q")?.prints("tank/q@one")?;
    world.ok("zfs destroy -r tank/q").map(drop)
}

/// Writes a line of the shell in which `zfs` and `zstream` are ours; returns the command that runs it.
pub fn job(world: &World, name: &str, line: &str) -> Result<String, Failure> {
    let ours = |line: String, program: &str| line.replace(&format!("{program} "), &format!("{} ", world.program(program)));
    std::fs::write(world.path(name), ours(ours(line.to_string(), "zstream"), "zfs"))?;
    Ok(format!("sh {{dir}}/{name}"))
}

/// Runs a line of the shell in which `zfs` and `zstream` are ours.
pub fn shell(world: &World, line: &str) -> Result<Ran, Failure> {
    world.run(&job(world, "job", line)?)
}

/// Runs such a line, which must succeed.
pub fn piped(world: &World, line: &str) -> Result<Ran, Failure> {
    let ran = shell(world, line)?;
    if ran.code == 0 { Ok(ran) } else { Err(ran.fault("it should be received")) }
}

fn text(world: &World, path: &str) -> Result<String, Failure> {
    Ok(std::fs::read_to_string(world.path(path))?)
}

fn with_source(world: &World, property: &str, name: &str) -> Result<String, Failure> {
    Ok(world.ok(&format!("zfs get -H -o value,source {property} {name}"))?.out.trim().to_string())
}

/// File systems that are sent are received in another pool, while they are mounted there, with what they are set to.
pub fn file_systems(world: &World) -> Result<(), Failure> {
    let zdb = judge("receive: OpenZFS's judgement of file systems")?;
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank tank {vdevs}/a")?;
    world.ok("zpool create -m {mnt}/copy copy {vdevs}/b")?;
    world.ok("zfs create -o compression=zstd -o org:tag=mine tank/a")?;
    world.ok("zfs create tank/a/b")?;
    std::fs::write(world.path("mnt/tank/a/file"), "first")?;
    std::fs::write(world.path("mnt/tank/a/large"), vec![7; 700_000])?;
    std::fs::write(world.path("mnt/tank/a/b/inner"), "inside")?;
    world.ok("zfs snapshot -r tank/a@one")?;
    piped(world, "zfs send tank/a@one | zfs receive -o readonly=on copy/a")?;
    same("the copy", text(world, "mnt/copy/a/file")?, "first".to_string())?;
    std::fs::write(world.path("mnt/tank/a/file"), "second")?;
    std::fs::remove_file(world.path("mnt/tank/a/large"))?;
    world.ok("zfs snapshot -r tank/a@two")?;
    piped(world, "zfs send -c -i @one tank/a@two | zfs receive copy/a")?;
    same("the copy goes on", text(world, "mnt/copy/a/file")?, "second".to_string())?;
    same("what was removed", world.path("mnt/copy/a/large").exists(), false)?;
    same("the older snapshot", text(world, "mnt/copy/a/.zfs/snapshot/one/file")?, "first".to_string())?;
    piped(world, "zfs send -c tank/a@one | zstream recompress gzip-1 | zfs receive copy/g")?;
    same("compressed on the way", text(world, "mnt/copy/g/large")?, text(world, "mnt/tank/a/.zfs/snapshot/one/large")?)?;
    world.ok("zfs destroy -r copy/g")?;
    world.ok("zpool create -d -m none old {vdevs}/c")?;
    let ran = shell(world, "zfs send -c tank/a@one | zfs receive -u old/a")?;
    same("what an old pool does not know", ran.code, 1)?;
    ran.says("cannot receive new filesystem stream: pool must be upgraded to receive this stream.")?;
    piped(world, "zfs send tank/a@one | zfs receive -u old/a")?;
    world.ok("zpool destroy old")?;
    packages(world)?;
    world.ok("zpool export copy")?;
    world.clean(&zdb, "-e -p {vdevs} -bcch copy").map(drop)
}

/// Packages bring properties, what lies below, and what the sender has no more.
fn packages(world: &World) -> Result<(), Failure> {
    world.ok("zfs create copy/r")?;
    piped(world, "zfs send -R tank/a@two | zfs receive -d -v copy/r")?
        .shows("receiving full stream of tank/a/b@one into copy/r/a/b@one")?;
    same("what lies below", text(world, "mnt/copy/r/a/b/inner")?, "inside".to_string())?;
    world.ok("zfs list -H -o name -t snapshot -r copy/r")?.prints("copy/r/a@one\ncopy/r/a@two\ncopy/r/a/b@one\ncopy/r/a/b@two")?;
    same("a received property", with_source(world, "compression", "copy/r/a")?, "zstd\treceived".to_string())?;
    world.ok("zfs set compression=off copy/r/a")?;
    same("set here", with_source(world, "compression", "copy/r/a")?, "off\tlocal".to_string())?;
    world.ok("zfs inherit -S compression copy/r/a")?;
    same("as received again", with_source(world, "compression", "copy/r/a")?, "zstd\treceived".to_string())?;
    piped(world, "zfs send -p tank/a@two | zfs receive -x compression -o org:tag=yours -u copy/x")?;
    same("left out", with_source(world, "compression", "copy/x")?.contains("zstd"), false)?;
    same("set on the command line", with_source(world, "org:tag", "copy/x")?, "yours\tlocal".to_string())?;
    same("not mounted", value(world, "mounted", "copy/x")?, "no".to_string())?;
    renamed(world)?;
    properties(world)?;
    named(world)?;
    absent(world)?;
    promoted(world)?;
    held(world)?;
    interrupted(world)?;
    half(world)?;
    limited(world)?;
    now(world)?;
    world.ok("zfs rename tank/a/b tank/a/c")?;
    world.ok("zfs snapshot -r tank/a@moved")?;
    piped(world, "zfs send -R -I @two tank/a@moved | zfs receive -F -d copy/r")?;
    same("under its new name", text(world, "mnt/copy/r/a/c/inner")?, "inside".to_string())?;
    world.ok("zfs destroy -r tank/a/c")?;
    world.ok("zfs destroy tank/a@moved")?;
    world.ok("zfs snapshot tank/a@three")?;
    piped(world, "zfs send -R -I @two tank/a@three | zfs receive -F -d copy/r")?;
    world
        .ok("zfs list -H -o name -r -t filesystem,snapshot copy/r")?
        .prints("copy/r\ncopy/r/a\ncopy/r/a@one\ncopy/r/a@two\ncopy/r/a@three")?;
    Ok(())
}

/// Changes find the dataset that has their base under the name that it got here, unless another one was given in full.
fn renamed(world: &World) -> Result<(), Failure> {
    world.ok("zfs create tank/m")?;
    world.ok("zfs snapshot tank/m@one")?;
    world.ok("zfs snapshot tank/m@two")?;
    piped(world, "zfs send tank/m@one | zfs receive -u -d copy")?;
    world.ok("zfs rename -u copy/m copy/elsewhere")?;
    same("by its full name", shell(world, "zfs send -i @one tank/m@two | zfs receive -u copy/m")?.code, 1)?;
    piped(world, "zfs send -i @one tank/m@two | zfs receive -u -d copy")?;
    world.ok("zfs list -H -o name -t snapshot -r copy/elsewhere")?.prints("copy/elsewhere@one\ncopy/elsewhere@two")?;
    world.ok("zfs destroy -r copy/elsewhere")?;
    world.ok("zfs destroy -r tank/m").map(drop)
}

/// Properties that cannot be named are refused, and those that some of what comes does not have are passed over.
fn named(world: &World) -> Result<(), Failure> {
    for word in ["-x version", "-x normalization", "-o volblocksize=8K", "-o volsize=1M", "-x used"] {
        let ran = shell(world, &format!("zfs send tank/a@two | zfs receive -u {word} copy/n"))?;
        same(word, ran.code, 1)?;
        ran.says("cannot receive: invalid property '")?;
    }
    for word in ["-o encryption=on", "-o keyformat=raw"] {
        let ran = shell(world, &format!("zfs send tank/a@two | zfs receive -u {word} copy/n"))?;
        same(word, ran.code, 1)?;
        ran.says("is not available in this version")?;
    }
    same("-d and -e", shell(world, "zfs send tank/a@two | zfs receive -d -e copy")?.code, 2)?;
    let ran = shell(world, "zfs send tank/a@two | zfs receive -e copy/none")?;
    ran.says("cannot receive: specified fs (copy/none) does not exist")?;
    same("no name", shell(world, "zfs send tank/a@two | zfs receive -x compress=off copy/n")?.code, 2)?;
    world.ok("zfs create tank/q")?;
    world.ok("zfs create -s -V 64K tank/q/v")?;
    world.ok("zfs snapshot -r tank/q@one")?;
    piped(world, "zfs send -R tank/q@one | zfs receive -u -o atime=off copy/q")?;
    same("set at the top", with_source(world, "atime", "copy/q")?, "off\tlocal".to_string())?;
    same("a volume in it", value(world, "type", "copy/q/v")?, "volume".to_string())?;
    let ran = shell(world, "zfs send tank/q/v@one | zfs receive -o atime=off copy/v")?;
    same("a volume alone", ran.code, 1)?;
    let ran = piped(world, "zfs send tank/q/v@one | zfs receive -x atime copy/v")?;
    ran.says("Warning: copy/v: property 'atime' does not apply to datasets of this type")?;
    world.ok("zfs destroy -r copy/v")?;
    world.ok("zfs destroy -r copy/q")?;
    world.ok("zfs destroy -r tank/q").map(drop)
}

/// Clones that the sender has no more go before what they are of.
fn absent(world: &World) -> Result<(), Failure> {
    world.ok("zfs create -p tank/d/e")?;
    world.ok("zfs snapshot -r tank/d@one")?;
    world.ok("zfs clone tank/d/e@one tank/d/a")?;
    world.ok("zfs snapshot -r tank/d@two")?;
    piped(world, "zfs send -R tank/d@two | zfs receive -u copy/d")?;
    same("a clone", value(world, "origin", "copy/d/a")?, "copy/d/e@one".to_string())?;
    world.ok("zfs destroy -r tank/d/a")?;
    world.ok("zfs destroy -r tank/d/e")?;
    world.ok("zfs snapshot tank/d@three")?;
    piped(world, "zfs send -R -I @two tank/d@three | zfs receive -F -u copy/d")?;
    world.ok("zfs list -H -o name -r -t filesystem,snapshot copy/d")?.prints("copy/d\ncopy/d@one\ncopy/d@two\ncopy/d@three")?;
    world.ok("zfs destroy -r copy/d")?;
    world.ok("zfs destroy -r tank/d").map(drop)
}

/// Clones that were promoted at the sender are promoted here, and what they are of goes on as theirs.
fn promoted(world: &World) -> Result<(), Failure> {
    world.ok("zfs create -p tank/o/f")?;
    world.ok("zfs snapshot -r tank/o@a")?;
    world.ok("zfs clone tank/o/f@a tank/o/c")?;
    world.ok("zfs snapshot -r tank/o@b")?;
    piped(world, "zfs send -R tank/o@b | zfs receive -u copy/o")?;
    same("a clone", value(world, "origin", "copy/o/c")?, "copy/o/f@a".to_string())?;
    world.ok("zfs promote tank/o/c")?;
    world.ok("zfs snapshot -r tank/o@c")?;
    piped(world, "zfs send -R -I @b tank/o@c | zfs receive -v -u copy/o")?.shows("promoting copy/o/c")?;
    same("no clone any more", value(world, "origin", "copy/o/c")?, "-".to_string())?;
    same("a clone now", value(world, "origin", "copy/o/f")?, "copy/o/c@a".to_string())?;
    let all = "copy/o@a\ncopy/o@b\ncopy/o@c\ncopy/o/c@a\ncopy/o/c@b\ncopy/o/c@c\ncopy/o/f@b\ncopy/o/f@c";
    world.ok("zfs list -H -o name -r -t snapshot copy/o")?.prints(all)?;
    world.ok("zfs destroy -R copy/o")?;
    world.ok("zfs destroy -R tank/o").map(drop)
}

/// Holds of a stream are taken, under any name of the snapshot.
fn held(world: &World) -> Result<(), Failure> {
    world.ok("zfs create tank/h")?;
    world.ok("zfs snapshot tank/h@one")?;
    world.ok("zfs hold keep tank/h@one")?;
    piped(world, "zfs send -h tank/h@one | zfs receive -u copy/h@mine")?;
    world.ok("zfs holds -H copy/h@mine")?.shows("copy/h@mine\tkeep\t")?;
    piped(world, "zfs send -h tank/h@one | zfs receive -h -u copy/free")?;
    world.ok("zfs holds -H copy/free@one")?.hides("keep")?;
    world.ok("zfs release keep copy/h@mine")?;
    world.ok("zfs release keep tank/h@one")?;
    ["copy/h", "copy/free", "tank/h"].into_iter().try_for_each(|name| world.ok(&format!("zfs destroy -r {name}")).map(drop))
}

/// What was begun over a file system that is there goes on over it only for who says so again.
fn interrupted(world: &World) -> Result<(), Failure> {
    let going_on = "zfs send -t $(zfs get -H -o value receive_resume_token copy/w) | zfs receive -s -u";
    world.ok("zfs create tank/w")?;
    std::fs::write(world.path("mnt/tank/w/file"), vec![7; 300_000])?;
    world.ok("zfs snapshot tank/w@one")?;
    world.ok("zfs create copy/w")?;
    let ran = shell(world, "zfs send tank/w@one | head -c 200000 | zfs receive -s -F -u copy/w")?;
    same("a stream that ends early", ran.code, 1)?;
    let ran = shell(world, &format!("{going_on} copy/w"))?;
    same("not over what is there", ran.code, 1)?;
    ran.says("cannot receive resume stream: Resuming recv on existing destination 'copy/w'\nmust specify -F to overwrite it")?;
    piped(world, &format!("{going_on} -F copy/w"))?;
    world.ok("zfs list -H -o name -t snapshot -r copy/w")?.prints("copy/w@one")?;
    world.ok("zfs destroy -r copy/w")?;
    world.ok("zfs destroy -r tank/w").map(drop)
}

/// What came of an interrupted receive can be sent on, and gone on with where it came to.
fn half(world: &World) -> Result<(), Failure> {
    let rest = "zfs send -t $(zfs get -H -o value receive_resume_token tank/there) | zfs receive -s -u tank/there";
    world.ok("zfs create tank/w")?;
    std::fs::write(world.path("mnt/tank/w/one"), vec![7; 500_000])?;
    world.ok("zfs snapshot tank/w@one")?;
    std::fs::write(world.path("mnt/tank/w/two"), vec![8; 500_000])?;
    world.ok("zfs snapshot tank/w@two")?;
    for (since, first) in [("", "true"), ("-i @one", "zfs send tank/w@one | zfs receive -u")] {
        for name in ["copy/half", "tank/there"] {
            let begun = if since.is_empty() { first.to_string() } else { format!("{first} {name}") };
            piped(world, &begun)?;
        }
        let ran = shell(world, &format!("zfs send {since} tank/w@two | head -c 400000 | zfs receive -s -u copy/half"))?;
        same("a stream that ends early", ran.code, 1)?;
        let ran = shell(world, "zfs send -S copy/half | zfs receive -s -u tank/there")?;
        same("one that has no end", ran.code, 1)?;
        ran.says("Partially received snapshot is saved.")?;
        piped(world, rest)?;
        world.ok("zfs mount tank/there")?;
        same("what came twice", text(world, "mnt/tank/there/two")?, text(world, "mnt/tank/w/two")?)?;
        ["copy/half", "tank/there"].into_iter().try_for_each(|name| {
            shell(world, &format!("zfs receive -A {name}"))?;
            world.run(&format!("zfs destroy -r {name}")).map(drop)
        })?;
    }
    world.ok("zfs destroy -r tank/w").map(drop)
}

/// A limit that an older snapshot exceeds is set when the newer one is there.
fn limited(world: &World) -> Result<(), Failure> {
    let noise = |seed: u64| -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..3_000_000).map(|_| next()).collect()
    };
    world.ok("zfs create -o compression=off tank/l")?;
    std::fs::write(world.path("mnt/tank/l/one"), noise(1))?;
    std::fs::write(world.path("mnt/tank/l/two"), noise(2))?;
    world.ok("zfs snapshot tank/l@one")?;
    std::fs::remove_file(world.path("mnt/tank/l/two"))?;
    let setting = "n=0; until zfs set refquota=4M tank/l 2> why; do n=$((n+1)); test $n -lt 300 || { cat why; exit 1; }; sleep 0.1; done";
    piped(world, setting)?;
    world.ok("zfs snapshot tank/l@two")?;
    let ran = piped(world, "zfs send -R tank/l@two | zfs receive -u copy/l")?;
    same("words about it", ran.err.contains("refquota"), false)?;
    same("the limit", with_source(world, "refquota", "copy/l")?, "4M\treceived".to_string())?;
    world.ok("zfs list -H -o name -t snapshot -r copy/l")?.prints("copy/l@one\ncopy/l@two")?;
    world.ok("zfs destroy -r copy/l")?;
    world.ok("zfs destroy -r tank/l").map(drop)
}

/// A file system that is not mounted is sent as it is; one that is mounted is not.
fn now(world: &World) -> Result<(), Failure> {
    world.ok("zfs create tank/w")?;
    std::fs::write(world.path("mnt/tank/w/file"), vec![7; 300_000])?;
    world.refused("zfs send tank/w", 1, "warning: cannot send 'tank/w': target is busy; if a filesystem, it must not be mounted")?;
    world.ok("zfs unmount tank/w")?;
    let ran = shell(world, "zfs send tank/w | head -c 200000 | zfs receive -s -u copy/w")?;
    same("a stream that ends early", ran.code, 1)?;
    piped(world, "zfs send -t $(zfs get -H -o value receive_resume_token copy/w) | zfs receive -s copy/w")?;
    same("what it had", text(world, "mnt/copy/w/file")?.len(), 300_000)?;
    world.ok("zfs list -H -o name -t snapshot -r copy/w")?.prints("copy/w@--head--")?;
    world.ok("zfs list -H -o name -t filesystem,snapshot -r tank/w")?.prints("tank/w")?;
    world.ok("zfs destroy -r copy/w")?;
    world.ok("zfs destroy -r tank/w").map(drop)
}

/// Values that came with a stream stay known beneath others, and go back with a backup; what users made up comes too.
fn properties(world: &World) -> Result<(), Failure> {
    world.ok("zfs create -o test:y=plain -o atime=off tank/p")?;
    world.ok("zfs snapshot -o test:s=1 tank/p@e")?;
    piped(world, "zfs send -p tank/p@e | zfs receive -u copy/p")?;
    same("a user property", with_source(world, "test:y", "copy/p")?, "plain\treceived".to_string())?;
    same("one of a snapshot", with_source(world, "test:s", "copy/p@e")?, "1\treceived".to_string())?;
    world.ok("zfs set atime=on test:y=other copy/p")?;
    world.ok("zfs get -H -o all atime,test:y copy/p")?.prints("copy/p\tatime\ton\toff\tlocal\ncopy/p\ttest:y\tother\tplain\tlocal")?;
    piped(world, "zfs send -b copy/p@e | zfs receive -u tank/back")?;
    same("a value that was covered", with_source(world, "atime", "tank/back")?, "off\treceived".to_string())?;
    same("another one", with_source(world, "test:y", "tank/back")?, "plain\treceived".to_string())?;
    world.ok("zfs destroy -r tank/back")?;
    world.ok("zfs destroy -r copy/p")?;
    piped(world, "zfs send -p tank/p@e | zfs receive -u -o atime=on -x test:y copy/p")?;
    same("set with the receive", with_source(world, "atime", "copy/p")?, "on\tlocal".to_string())?;
    same("left out of it", with_source(world, "test:y", "copy/p")?, "-\t-".to_string())?;
    world.ok("zfs inherit -S atime copy/p")?;
    world.ok("zfs inherit -S test:y copy/p")?;
    same("what was sent", with_source(world, "atime", "copy/p")?, "off\treceived".to_string())?;
    same("what was left out", with_source(world, "test:y", "copy/p")?, "plain\treceived".to_string())?;
    world.ok("zfs destroy -r copy/p")?;
    world.ok("zfs destroy -r tank/p").map(drop)
}
