//! Accelerators as users see them: `zirconia provider`, the pool properties `zia_*`.

use crate::world::{Failure, World, same};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Listed, chosen for a pool, used, let go.
pub fn life(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=gzip tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    world.ok("zpool get -H -o value,source zia_available,zia_provider,zia_compress tank")?.prints("yes\t-\noff\tdefault\noff\tdefault")?;
    world.ok("zirconia provider list -H")?.shows("software\tactive\t0\t")?;
    world.refused("zpool set zia_provider=nobody tank", 1, "given provider does not exist")?;
    world.refused("zpool set zia_verify=200 tank", 1, "'200' is no value for 'zia_verify'")?;
    for property in [
        "zia_provider=software",
        "zia_compress=on",
        "zia_checksum=on",
        "zia_raidz1_gen=on",
        "zia_raidz1_rec=on",
        "zia_file_write=on",
        "zia_verify=10",
    ] {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    let data: Vec<u8> = (0..1_u32 << 19).flat_map(|word| (word / 9).to_le_bytes()).collect();
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool sync tank")?;
    let info = world.ok("zirconia provider info software")?;
    info.shows("used by:      1 pools")?
        .shows("compress gzip-6")?
        .shows("counter:      compress_blocks ")?
        .shows("counter:      raidz_gen_blocks ")?
        .shows("counter:      store_blocks ")?;
    world.ok("zpool status tank")?.shows("   zia: provider software is active\n\t")?.shows(" compress")?;
    let kstat = std::fs::read_to_string(world.path("state/proc/spl/kstat/zfs/tank/zia"))?;
    same("the statistic names the provider", kstat.contains("\nprovider                        7    software\n"), true)?;
    world.refused("zirconia provider info nobody", 1, "no provider is called 'nobody'")?;
    world.refused("zirconia provider unload software", 1, "it is built in")?;
    world.refused("zirconia provider load {vdevs}/a", 1, "the library cannot be loaded")?;
    // A file that is not in memory is decompressed there, too.
    world.ok("zpool set zia_decompress=on tank")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    let before = counter(world, "software", "decompress_blocks")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    same("its 16 records were", counter(world, "software", "decompress_blocks")? >= before + 16, true)?;
    // Without the provider's help it reads the same.
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    world.ok("zpool get -H -o value zia_provider tank")?.prints("software")?;
    world.ok("zpool set zia_provider=off tank")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?.hides("zia:")?;
    world.ok("zirconia provider list -H")?.shows("software\tactive\t0\t")?;
    Ok(())
}

/// Time by which a target that was started has to be in use again.
const BACK: Duration = Duration::from_secs(120);

/// Path of the top of the source tree, where vendors find the header and the example.
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A provider that a vendor writes in C: built with `cc`, tried before any daemon has it, given to the daemon, used by a pool. One that computes
/// wrongly is named, and what it does wrongly is not used.
pub fn in_c(world: &World) -> Result<(), Failure> {
    let example = Path::new(SOURCES).join("examples/provider-c/provider.c");
    std::fs::copy(&example, world.path("right.c"))?;
    let source = std::fs::read_to_string(&example)?;
    let wrong = source.replace("parity[byte] ^= data[byte];", "parity[byte] |= data[byte];");
    let silent =
        source.replace("host->complete(program.cookie, results, program.nodes_count);", "host->complete(program.cookie, NULL, 0);");
    same("the broken examples differ from the right one", wrong == source || silent == source, false)?;
    std::fs::write(world.path("wrong.c"), wrong)?;
    std::fs::write(world.path("silent.c"), silent)?;
    for name in ["right", "wrong", "silent"] {
        let flags = "-std=c11 -O2 -Wall -Wextra -Werror -pedantic -fPIC -shared";
        world.ok(&format!("cc {flags} -I {SOURCES}/include -o {{dir}}/{name}.so {{dir}}/{name}.c"))?;
    }
    world
        .ok("zirconia provider test {dir}/right.so")?
        .shows("ok      raidz1 generate")?
        .hides("FAILED")?
        .shows("capabilities agree with software, 0 do not")?;
    let wrong = world.run("zirconia provider test {dir}/wrong.so")?;
    same("exit status of a test that found something", wrong.code, 1)?;
    wrong.shows("FAILED  raidz1 generate: the answer was wrong")?.shows("capabilities agree with software, 1 do not")?;
    world.refused("zirconia provider test {dir}/silent.so", 1, "provider '")?.says("bytes copied to the provider and back: ")?;
    world.refused("zirconia provider test {dir}/none.so", 1, "it is not registered")?;
    world.ok("zirconia provider load {dir}/right.so")?.shows("name:         example")?.shows("state:        active")?;
    world.ok("zirconia provider test example")?.shows("example 1.0: ")?;
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -O mountpoint=none tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    world.ok("zpool set zia_checksum=on tank")?;
    world.ok("zpool set zia_provider=example tank")?;
    world.ok("zirconia provider list -H")?.shows("example\tactive\t1\t")?;
    world.refused("zirconia provider load {dir}/right.so", 1, "'zirconia provider load -r' puts this one in its place")?;
    // The broken one takes its place: what it computes wrongly is not used.
    let replaced = world.ok("zirconia provider load -r {dir}/wrong.so")?;
    replaced.shows("disabled:     raidz1 generate: the answer was wrong")?.shows("used by:      1 pools")?;
    world.refused("zirconia provider unload example", 1, "unload it with -f")?;
    world.ok("zirconia provider unload -f example")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    Ok(())
}

/// A provider whose Fletcher-4 goes wrong after it was registered, with the properties as they are by default: it is switched off at once, stays so over a
/// restart, comes back when somebody loads it, and no record is lost.
pub fn liar(world: &World) -> Result<(), Failure> {
    let example = std::fs::read_to_string(Path::new(SOURCES).join("examples/provider-c/provider.c"))?;
    let sign = world.path("sign");
    let lying = example
        .replace("result->checksum[0] = a;", &format!("result->checksum[0] = access(\"{}\", F_OK) ? a : a ^ 1;", sign.display()))
        .replace("#include <stdlib.h>", "#include <stdlib.h>\n#include <unistd.h>");
    std::fs::write(world.path("liar.c"), lying)?;
    world.ok(&format!("cc -std=gnu11 -O2 -fPIC -shared -I {SOURCES}/include -o {{dir}}/liar.so {{dir}}/liar.c"))?;
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O recordsize=16k tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    world.ok("zirconia provider load {dir}/liar.so")?.shows("checksum")?;
    for property in ["zia_checksum=on", "zia_raidz1_gen=on", "zia_provider=example"] {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    world.ok("zpool get -H -o value zia_verify tank")?.prints("100")?;
    // Sixteen records each.
    write_files(world, 0..20)?;
    same("it computes checksums", counter(world, "example", "checksum_blocks")? >= 320, true)?;
    std::fs::write(&sign, "")?;
    write_files(world, 20..100)?;
    let said = "a result of checksum was wrong";
    world.ok("zpool status tank")?.shows("   zia: provider example is distrusted\n\ta result of checksum was wrong")?;
    world.ok("zirconia provider info example")?.shows("state:        distrusted")?.shows(said)?;
    world.ok("zpool events -v")?.shows("sysevent.fs.zfs.zia_provider_distrusted")?.shows("operation = \"checksum\"")?;
    let computed = counter(world, "example", "checksum_blocks")?;
    check_files(world, 0..100)?;
    world.ok("zirconia stop")?;
    // The next life: it is known, and not used, whatever it would say.
    std::fs::remove_file(&sign)?;
    world.ok("zirconia provider list -H")?.shows("example\tdistrusted\t1\t")?;
    world.ok("zpool status tank")?.shows("zia: provider example is distrusted")?;
    write_files(world, 100..104)?;
    same("nothing goes there", counter(world, "example", "checksum_blocks")?, 0)?;
    world.ok("zirconia provider load {dir}/liar.so")?.shows("state:        active")?;
    write_files(world, 104..108)?;
    same("it is used again", counter(world, "example", "checksum_blocks")? > 0 && computed < 1_700, true)?;
    // A system without it.
    world.ok("zpool set zia_provider=off tank")?;
    world.ok("zirconia provider unload -f example")?;
    world.ok("zpool export tank")?;
    world.ok("zpool import -d {vdevs} tank")?;
    check_files(world, 0..108)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?.shows("repaired 0B")?;
    Ok(())
}

/// A library that is slower than the processors: what it does is not used, with the numbers, by whoever asks, until somebody wants it all the same.
pub fn slow(world: &World) -> Result<(), Failure> {
    let example = std::fs::read_to_string(Path::new(SOURCES).join("examples/provider-c/provider.c"))?;
    let slow = example
        .replace("result->checksum[0] = a;", "usleep(20000), result->checksum[0] = a;")
        .replace("#include <stdlib.h>", "#include <stdlib.h>\n#include <unistd.h>");
    same("the slow example differs from the right one", slow == example, false)?;
    std::fs::write(world.path("slow.c"), slow)?;
    world.ok(&format!("cc -std=gnu11 -O2 -fPIC -shared -I {SOURCES}/include -o {{dir}}/slow.so {{dir}}/slow.c"))?;
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -O mountpoint=none tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    let admission = world.path("state/sys/module/zfs/parameters/zirconia_provider_admission");
    std::fs::write(&admission, "110")?;
    let reason = "checksum fletcher4: it is not faster than the processors of this machine: 16K ";
    let loaded = world.ok("zirconia provider load {dir}/slow.so")?;
    loaded.shows("state:        active")?.shows(&format!("disabled:     {reason}"))?;
    loaded.says(&format!("provider 'example' does not do {reason}"))?;
    same("it is counted", counter(world, "example", "checksum_too_slow")? > 0, true)?;
    world.ok("zpool set zia_checksum=on tank")?;
    let set = world.ok("zpool set zia_provider=example tank")?;
    set.says("zia_checksum is on, and provider 'example' does not do that: it is not faster than the processors")?;
    world.ok("zpool status tank")?.shows("zia_checksum is on, and the provider does not do that: it is not faster than the processors")?;
    // Who tries something out wants it.
    std::fs::write(&admission, "0")?;
    world.ok("zirconia provider load -r {dir}/slow.so")?.hides("not faster")?;
    world.ok("zpool status tank")?.hides("does not do that")?;
    world.ok("zirconia provider unload -f example").map(drop)
}

/// An administrator rehearses: a pool works on a model of an accelerator, and on one that begins to lie in the middle of it.
pub fn rehearsal(world: &World) -> Result<(), Failure> {
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O recordsize=16k tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    for property in ["zia_checksum=on", "zia_raidz1_gen=on"] {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    world.refused("zirconia provider load -n far sim", 1, "only a target can be given one")?;
    let sim = world.ok("zirconia provider load sim")?;
    sim.shows("name:         sim")?.shows("from:         sim")?.shows("state:        active")?.hides("measured:")?;
    world.ok("zpool set zia_provider=sim tank")?;
    write_files(world, 0..2)?;
    same("it computes checksums", counter(world, "sim", "checksum_blocks")? >= 32, true)?;
    world.refused("zirconia provider load faulty?checksum=ly", 1, "'checksum=ly' is no failure to rehearse")?.says("lie, short, stall")?;
    world.ok("zirconia provider load faulty?checksum=lie&after=64")?.shows("from:         faulty?checksum=lie&after=64")?;
    world.ok("zpool set zia_provider=faulty tank")?;
    world.ok("zirconia provider unload -f sim")?;
    write_files(world, 2..4)?;
    world.ok("zpool status tank")?.shows("zia: provider faulty is active")?;
    write_files(world, 4..10)?;
    world.ok("zpool status tank")?.shows("zia: provider faulty is distrusted\n\ta result of checksum was wrong")?;
    world.ok("zpool events")?.shows("sysevent.fs.zfs.zia_provider_distrusted")?;
    check_files(world, 0..10)?;
    world.ok("zirconia provider load faulty")?.shows("state:        active")?.shows("from:         faulty\n")?;
    write_files(world, 10..20)?;
    world.ok("zirconia stop")?;
    until_listed(world, "faulty\tactive\t1\t")?;
    world.ok("zfs mount -a")?;
    check_files(world, 0..20)?;
    world.ok("zirconia provider unload -f faulty")?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors").map(drop)
}

/// A GPU that is not there is said; one that is there (a library that stands for the driver, over the same kernels) does a pool's work.
pub fn cuda(world: &World) -> Result<(), Failure> {
    let libraries = world.path(".");
    std::fs::write(world.path("libcuda.so.1"), "no library")?;
    let path = ("LD_LIBRARY_PATH", &*libraries);
    world.ok_with(path, "zirconia provider list -H")?.hides("cuda")?;
    world.refused("zirconia provider info cuda", 1, "no provider is called 'cuda'")?.says("(or cuda)")?;
    let refused = world.refused("zirconia provider load cuda", 1, "not available: the NVIDIA driver cannot be loaded: ")?;
    refused.says("libcuda.so.1")?.says("install the NVIDIA driver")?;
    world.ok("zirconia provider list -H")?.hides("cuda")?;
    std::fs::remove_file(world.path("libcuda.so.1"))?;
    let flags = "-std=c++17 -O2 -fno-strict-aliasing -U_FORTIFY_SOURCE -fPIC -shared -fvisibility=hidden";
    world.ok(&format!("c++ {flags} -o {{dir}}/libcuda.so.1 {SOURCES}/accel/provider-cuda/tests/emulator.cpp"))?;
    std::fs::copy(world.path("libcuda.so.1"), world.path("libnvrtc.so.13"))?;
    let shapes = "zirconia provider test --shapes 100 --kib 64 --at-once 50 cuda";
    world.ok_with(path, shapes)?.shows("100 random shapes agree with software")?;
    let bench = world.ok_with(path, "zirconia provider bench --kib 64 --at-once 8 --only lz4 cuda")?;
    bench.shows("OPERATION (8 x 64 KiB)")?.shows("decompress lz4")?.hides("fletcher")?.hides("the provider")?;
    world.ok("zirconia provider load cuda")?.shows("name:         cuda")?.shows("Emulated GPU")?.shows("state:        active")?;
    world.refused("zirconia provider load cuda", 1, "'zirconia provider load -r' puts this one in its place")?;
    world.vdevs(&["a", "b", "c", "d"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=lz4 tank raidz2 {vdevs}/a {vdevs}/b {vdevs}/c {vdevs}/d")?;
    for property in ["zia_compress=on", "zia_checksum=on", "zia_raidz2_gen=on", "zia_verify=100", "zia_provider=cuda"] {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    let data: Vec<u8> = (0..1_u32 << 18).flat_map(|word| (word / 9).to_le_bytes()).collect();
    std::fs::write(world.path("mnt/tank/file"), &data)?;
    world.ok("zpool sync tank")?;
    let info = world.ok("zirconia provider info cuda")?;
    info.shows("counter:      compress_blocks ")?.shows("counter:      checksum_blocks ")?.shows("counter:      raidz_gen_blocks ")?;
    info.hides("verify_failures")?;
    world.ok("zpool export tank")?;
    world.ok("zirconia stop")?;
    // A daemon that starts later has it again.
    world.ok_with(path, "zpool import -d {vdevs} tank")?;
    world.ok("zirconia provider list -H")?.shows("cuda\tactive\t1\t")?;
    world.ok("zpool set zia_provider=off tank")?;
    same("the file", std::fs::read(world.path("mnt/tank/file"))? == data, true)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    world.ok("zirconia provider unload cuda")?;
    world.ok("zirconia provider list -H")?.hides("cuda")?;
    Ok(())
}

/// Process of a `zirconia-target`; killed when it goes.
struct Target(Child);

impl Target {
    /// Starts a target that listens at `{dir}/target.sock`, with a lease of two seconds, and may write everything in `{dir}`.
    fn start(world: &World) -> Result<Target, Failure> {
        Target::allowing(world, &["."])
    }

    /// Starts a target that may write these paths below `{dir}`, and nothing else.
    fn allowing(world: &World, paths: &[&str]) -> Result<Target, Failure> {
        let folder = world.path(".").canonicalize()?;
        let mut child = Command::new(world.program("zirconia-target"))
            .args(["--lease", "2", "--memory", "256M", "--listen"])
            .arg(format!("unix:{}", folder.join("target.sock").display()))
            .arg("--secret-file")
            .arg(folder.join("secret"))
            .args(paths.iter().flat_map(|path| [std::path::PathBuf::from("--allow"), folder.join(path)]))
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.take().map(BufReader::new).and_then(|out| out.lines().next());
        let target = Target(child);
        match said {
            Some(Ok(line)) if line.starts_with("zirconia-target: listening at unix:") => Ok(target),
            other => Err(format!("      the target said {other:?}").into()),
        }
    }

    /// Ends the target as a crash does.
    fn kill(mut self) -> Result<(), Failure> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// Has the target hang from now on, or go on.
    fn hang(&self, hangs: bool) -> Result<(), Failure> {
        let target = rustix::process::Pid::from_child(&self.0);
        let signal = if hangs { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        Ok(rustix::process::kill_process(target, signal)?)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the list of providers shows a line.
pub fn until_listed(world: &World, line: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let list = world.ok("zirconia provider list -H")?;
        if list.out.contains(line) {
            return Ok(());
        }
        if begun.elapsed() > BACK {
            return Err(list.fault(format!("it should show '{line}' by now")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Value of a counter of a provider; zero when it is not shown.
fn counter(world: &World, provider: &str, name: &str) -> Result<u64, Failure> {
    let info = world.ok(&format!("zirconia provider info {provider}"))?;
    let value = info.out.lines().find_map(|line| line.strip_prefix("counter:")?.trim().strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    Ok(value.unwrap_or(0))
}

/// Contents of a file, by its number: they compress to about a half.
fn contents(number: u32) -> Vec<u8> {
    let mut state = number.wrapping_mul(2_654_435_761) | 1;
    let word = |at: u32| {
        state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        if at.is_multiple_of(2) { state >> 8 } else { number }
    };
    (0..64_u32 << 10).map(word).flat_map(u32::to_le_bytes).collect()
}

/// Writes files and has each of them on stable storage before the next.
pub fn write_files(world: &World, numbers: std::ops::Range<u32>) -> Result<(), Failure> {
    for number in numbers {
        let mut file = std::fs::File::create(world.path(&format!("mnt/tank/{number}")))?;
        file.write_all(&contents(number))?;
        // Not fsync: the log's blocks are no provider's.
        drop(file);
        world.ok("zpool sync tank")?;
    }
    Ok(())
}

pub fn check_files(world: &World, numbers: std::ops::Range<u32>) -> Result<(), Failure> {
    for number in numbers {
        let found = std::fs::read(world.path(&format!("mnt/tank/{number}")))?;
        same(&format!("file {number} is what was written"), found == contents(number), true)?;
    }
    Ok(())
}

/// The target is not there when the daemon starts, and comes later. Gives the one that came.
fn away_at_the_start(world: &World, target: Target) -> Result<Target, Failure> {
    target.kill()?;
    world.ok("zirconia stop")?;
    // It waits for the pools, which may name it; the other for what was mounted.
    world.ok("zirconia provider list -H")?.shows("target\tdown\t1\t")?;
    world.ok("zfs mount -a")?;
    check_files(world, 0..52)?;
    write_files(world, 52..56)?;
    let target = Target::start(world)?;
    until_listed(world, "target\tactive\t1\t")?;
    write_files(world, 56..60)?;
    same("it compresses for the new daemon", counter(world, "target", "compress_blocks")? > 0, true)?;
    Ok(target)
}

/// A target as the provider of a pool: loaded by its address, killed while files are written, started again, not there when the daemon starts.
/// Nothing that was acknowledged is lost, and it is used whenever it is there.
pub fn target(world: &World) -> Result<(), Failure> {
    std::fs::write(world.path("secret"), "correct horse battery staple\n")?;
    let place = "unix:target.sock?secret-file=secret";
    world.refused(&format!("zirconia provider load {place}"), 1, "the target cannot be reached")?;
    world.refused("zirconia provider load unix:target.sock", 1, "the address of a target ends with '?secret-file=FILE'")?;
    world.refused("zirconia provider load tcp:nowhere?secret-file=secret", 1, "neither unix:PATH nor tcp:HOST:PORT")?;
    world.refused("zirconia provider load unix:target.sock?secret-file=none", 1, "No such file")?;
    let target = Target::start(world)?;
    let info = world.ok(&format!("zirconia provider load {place}"))?;
    info.shows("name:         target")?.shows("state:        active")?.shows("compress gzip-6")?.shows("file write")?;
    world.refused(&format!("zirconia provider load {place}"), 1, "'zirconia provider load -r' puts this one in its place")?;
    world.ok(&format!("zirconia provider load -n far {place}&shared-memory=off"))?.shows("name:         far")?;
    same("far shares no memory", counter(world, "far", "link_shared_bytes_out")?, 0)?;
    world.ok("zirconia provider unload far")?;
    world.ok("zirconia provider list -H")?.hides("far")?.shows("target\tactive\t0\t")?;

    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O compression=gzip -O recordsize=128K tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    for property in
        ["zia_provider=target", "zia_compress=on", "zia_checksum=on", "zia_raidz1_gen=on", "zia_raidz1_rec=on", "zia_file_write=on"]
    {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    write_files(world, 0..8)?;
    for name in ["compress_blocks", "store_blocks", "link_bytes_out", "link_round_trips", "link_shared_bytes_out"] {
        same(&format!("{name} is counted"), counter(world, "target", name)? > 0, true)?;
    }
    // Killed while others write.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(world, 8..40).map_err(|error| error.to_string()));
        std::thread::sleep(Duration::from_millis(200));
        target.kill()?;
        writer.join().map_err(|_| "      the writer failed")??;
        Ok::<(), Failure>(())
    })?;
    until_listed(world, "target\tdown\t1\t")?;
    world.ok("zirconia provider info target")?.shows("problem:      ")?;
    world.ok("zpool status tank")?.shows("   zia: provider target is down\n")?;
    world.ok("zpool events")?.shows("sysevent.fs.zfs.zia_provider_down")?;
    write_files(world, 40..44)?;
    check_files(world, 0..44)?;
    // There again, and used again.
    let target = Target::start(world)?;
    until_listed(world, "target\tactive\t1\t")?;
    world.ok("zirconia provider info target")?.hides("problem:")?;
    world.ok("zpool events")?.shows("sysevent.fs.zfs.zia_provider_replaced")?;
    let (compressed, stored) = (counter(world, "target", "compress_blocks")?, counter(world, "target", "store_blocks")?);
    write_files(world, 44..52)?;
    same("it compresses again", counter(world, "target", "compress_blocks")? > compressed, true)?;
    same("it writes again", counter(world, "target", "store_blocks")? > stored, true)?;
    let target = away_at_the_start(world, target)?;
    world.refused("zirconia provider unload target", 1, "unload it with -f")?;
    world.ok("zirconia provider unload -f target")?;
    world.ok("zirconia provider list -H")?.hides("target")?;
    target.kill()?;
    check_files(world, 0..60)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    Ok(())
}

/// A target that may write a pool's devices, and not where that is tried out, writes nothing: who set it up is told so by each command, and what has
/// to be allowed; with that it writes.
pub fn unallowed(world: &World) -> Result<(), Failure> {
    std::fs::write(world.path("secret"), "correct horse battery staple\n")?;
    world.vdevs(&["a", "b", "c"])?;
    let devices = ["vdevs/a", "vdevs/b", "vdevs/c"];
    let target = Target::allowing(world, &devices)?;
    let loaded = world.ok("zirconia provider load unix:target.sock?secret-file=secret")?;
    let reason = format!("file write: the write failed (errno 13): it is tried out in {}", world.at("state/provider-tests"));
    loaded.shows(&format!("disabled:     {reason}"))?.says(&format!("provider 'target' does not do {reason}"))?;
    world.ok("zpool create -m {mnt}/tank -O recordsize=128K tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    for property in ["zia_file_write=on", "zia_checksum=on", "zia_raidz1_gen=on"] {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    let refusal = "zia_file_write is on, and provider 'target' does not do that: the write failed (errno 13)";
    world.ok("zpool set zia_provider=target tank")?.says(refusal)?.says("which a target has to see and be allowed to write ('--allow')")?;
    world.ok("zpool set zia_file_write=on tank")?.says(refusal)?;
    world.ok("zpool status tank")?.shows("\tzia_file_write is on, and the provider does not do that: the write failed (errno 13)")?;
    write_files(world, 0..4)?;
    same("nothing is written by it", counter(world, "target", "store_blocks")?, 0)?;
    target.kill()?;
    until_listed(world, "target\tdown\t1\t")?;
    let target = Target::allowing(world, &[&devices[..], &["state/provider-tests"]].concat())?;
    until_listed(world, "target\tactive\t1\t")?;
    let set = world.ok("zpool set zia_file_write=on tank")?;
    same("remarks", &*set.err, "")?;
    world.ok("zpool status tank")?.hides("does not do that")?;
    write_files(world, 4..8)?;
    same("it writes", counter(world, "target", "store_blocks")? > 0, true)?;
    check_files(world, 0..8)?;
    target.kill()
}

/// A target that hangs when the daemon starts is a provider of its pool all the same: it can be named, is let go by force only, and is used as soon as
/// it answers.
pub fn hanging(world: &World) -> Result<(), Failure> {
    std::fs::write(world.path("secret"), "correct horse battery staple\n")?;
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    let target = Target::start(world)?;
    world.ok("zirconia provider load unix:target.sock?secret-file=secret")?;
    for property in ["zia_provider=target", "zia_compress=on", "zia_checksum=on"] {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    world.ok("zirconia stop")?;
    target.hang(true)?;
    world.ok("zirconia start")?;
    let shown = world.ok("zpool status tank")?;
    let is_shown = ["starting", "down"].iter().any(|state| shown.out.contains(&format!("   zia: provider target is {state}\n")));
    same("it is shown as starting or down", is_shown, true)?;
    world.refused("zirconia provider unload target", 1, "1 pool names it")?.says("unload it with -f")?;
    let list = world.ok("zirconia provider list -H")?;
    let is_listed = ["starting", "down"].iter().any(|state| list.out.contains(&format!("target\t{state}\t1\t")));
    same("it is listed with its pool", is_listed, true)?;
    world.ok("zpool set zia_provider=target tank")?.says("the pool goes on in software until it is there")?;
    target.hang(false)?;
    until_listed(world, "target\tactive\t1\t")?;
    write_files(world, 0..4)?;
    same("it computes checksums", counter(world, "target", "checksum_blocks")? > 0, true)?;
    check_files(world, 0..4)?;
    world.ok("zirconia provider unload -f target")?;
    world.ok("zpool status tank")?.shows("   zia: provider target is absent\n")?;
    world.refused("zpool set zia_provider=target tank", 1, "given provider does not exist")?;
    target.kill()
}
