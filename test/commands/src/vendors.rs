//! Libraries of vendors that crash and hang, at every place where they are called: the daemon lives, answers, and loses nothing.

use crate::providers::{SOURCES, check_files, until_listed, write_files};
use crate::world::{Failure, World, same};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time by which whoever looks has an answer.
const LOOK: Duration = Duration::from_secs(5);
/// Time by which what is done by itself is done.
const PATIENCE: Duration = Duration::from_secs(120);

/// Code by which the library harms itself, by what stands in a file: `abort` or `sleep`, and where; with `once` before it, the file goes first. It says
/// when it is opened.
const HARM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void harm(const char *where)
{
	char how[16] = "", place[32] = "", once[8] = "";
	if (strcmp(where, "open") == 0)
		fputs("no licence, but never mind\n", stderr);
	FILE *file = fopen(HARM_FILE, "r");
	int words = file ? fscanf(file, "%15s %31s %7s", how, place, once) : 0;
	if (file)
		fclose(file);
	if (words < 2 || strcmp(place, where) != 0 || (words == 3 && unlink(HARM_FILE) != 0))
		return;
	if (strcmp(how, "abort") == 0)
		abort();
	for (;;)
		pause();
}

static void *harm_later(void *self)
{
	for (;;) {
		harm("thread");
		usleep(10000);
	}
	return self;
}
"#;

/// Builds the example with harm at every entry point.
fn build(world: &World) -> Result<(), Failure> {
    let example = std::fs::read_to_string(Path::new(SOURCES).join("examples/provider-c/provider.c"))?;
    let (includes, rest) = example.split_once("static const struct zp_host *host;").ok_or("      another example")?;
    let mut source = format!("{includes}{HARM}\nstatic const struct zp_host *host;{rest}");
    for (place, function) in [
        ("capabilities", "static uint64_t capabilities(void *self, struct zp_capability *list, uint64_t max)\n{\n"),
        ("alloc", "static int32_t buffer_alloc(void *self, uint64_t bytes, void **buffer)\n{\n"),
        ("submit", "static uint64_t submit(void *self, const struct zp_program *programs, uint64_t count)\n{\n"),
        ("open", "int32_t zirconia_provider_open(const struct zp_host *the_host, struct zp_provider *provider)\n{\n"),
    ] {
        same(place, source.contains(function), true)?;
        source = source.replace(function, &format!("{function}\tharm(\"{place}\");\n"));
    }
    let thread = "\tpthread_t later;\n\tpthread_create(&later, NULL, harm_later, NULL);\n\thost = the_host;\n";
    let source = source.replace("\thost = the_host;\n", thread);
    std::fs::write(world.path("harmful.c"), source)?;
    let flags = "-std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -shared -pthread";
    let harm = format!("-DHARM_FILE=\"{}\"", world.at("harm"));
    world.ok(&format!("cc {flags} {harm} -I {SOURCES}/include -o {{dir}}/harmful.so {{dir}}/harmful.c")).map(drop)
}

/// Has the library harm itself from now on; an empty text ends that.
fn set_harm(world: &World, harm: &str) -> Result<(), Failure> {
    let fresh = world.path("harm.new");
    std::fs::write(&fresh, harm)?;
    Ok(std::fs::rename(fresh, world.path("harm"))?)
}

/// Number of the provider's generation while it is active.
fn generation(world: &World) -> Result<Option<u64>, Failure> {
    let info = world.ok("zirconia provider info example")?;
    let state = info.out.lines().find_map(|line| line.strip_prefix("state:")).unwrap_or_default().trim().to_string();
    Ok(state.strip_prefix("active (generation ").and_then(|rest| rest.strip_suffix(')')?.parse().ok()))
}

/// Waits until there is another generation.
fn until_replaced(world: &World, before: u64) -> Result<u64, Failure> {
    let begun = Instant::now();
    loop {
        match generation(world)? {
            Some(now) if now > before => return Ok(now),
            _ if begun.elapsed() > PATIENCE => return Err("      the provider does not come back".into()),
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Waits until the pool is there: each look is answered at once, also by a daemon that has just been started, whatever libraries do.
fn until_online(world: &World) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let (ran, _) = world.start("zpool list -H -o name,health", LOOK)?.finish()?;
        if start.elapsed() > PATIENCE || !ran.out.contains("UNAVAIL") {
            return ran.prints("tank\tONLINE").map(drop);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn until_shown(world: &World, text: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let info = world.ok("zirconia provider info example")?;
        if info.out.contains(text) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(info.fault(format!("it should show '{text}' by now")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Builds the library, and a pool that may use it.
fn prepare(world: &World) -> Result<(), Failure> {
    build(world)?;
    set_harm(world, "")?;
    world.vdevs(&["a", "b", "c"])?;
    world.ok("zpool create -m {mnt}/tank -O recordsize=128K tank raidz1 {vdevs}/a {vdevs}/b {vdevs}/c")?;
    Ok(std::fs::write(world.path("state/sys/module/zfs/parameters/zirconia_provider_deadline_ms"), "700")?)
}

/// Has the pool use the library.
fn load(world: &World) -> Result<(), Failure> {
    world.ok("zirconia provider load {dir}/harmful.so")?.shows("name:         example")?.shows("state:        active")?;
    for property in ["zia_checksum=on", "zia_raidz1_gen=on", "zia_provider=example"] {
        world.ok(&format!("zpool set {property} tank"))?;
    }
    Ok(())
}

/// Has the library harm itself in every manner at every place once, under writers. `files` counts what was written.
fn each_harm(world: &World, files: &mut u32) -> Result<(), Failure> {
    for harms in
        [["abort submit once", "sleep submit once", "abort alloc once"], ["sleep alloc once", "abort thread once", "sleep thread once"]]
    {
        // Loaded by a person: its failures are counted anew.
        let mut now = 0;
        world.ok("zirconia provider load -r {dir}/harmful.so")?;
        for harm in harms {
            now = until_replaced(world, now.max(1) - 1)?;
            set_harm(world, harm)?;
            write_files(world, *files..*files + 3)?;
            world.start("zpool list", LOOK)?.finish()?.0.shows("ONLINE")?;
            *files += 3;
            check_files(world, 0..*files)?;
            // A thread that sleeps is nobody's trouble.
            if harm != "sleep thread once" {
                now = until_replaced(world, now)?;
            }
        }
    }
    Ok(())
}

/// Does the like a number of times, and gives how long each look at the pools took meanwhile, and the number of files, none of which is wrong.
pub fn looked_at(world: &World, times: u32) -> Result<(Vec<Duration>, u32), Failure> {
    prepare(world)?;
    load(world)?;
    let (mut files, over) = (0, AtomicBool::new(false));
    let (harmed, looks) = std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let look = || {
                let (ran, took) = world.start("zpool list", LOOK)?.finish()?;
                ran.shows("ONLINE").map(|_| took)
            };
            let mut looks = Vec::new();
            while !over.load(Ordering::Acquire) {
                // A failure stays in its thread; its text does not.
                looks.push(look().map_err(|failure| failure.to_string())?);
            }
            Ok::<_, String>(looks)
        });
        let harmed = (0..times).try_for_each(|_| each_harm(world, &mut files));
        over.store(true, Ordering::Release);
        (harmed, looker.join())
    });
    harmed?;
    Ok((looks.map_err(|_| "      whoever looks failed")??, files))
}

/// While pools use it, and when the daemon starts.
pub fn harmful(world: &World) -> Result<(), Failure> {
    prepare(world)?;
    // Before the daemon has it.
    set_harm(world, "abort submit")?;
    let tested = world.refused("zirconia provider test {dir}/harmful.so", 1, "its process was ended by signal 6 (SIGABRT)")?;
    // Nobody takes what it prints for our words, and it is not lost.
    tested.says("library 'harmful.so' says: no licence, but never mind\n")?;
    set_harm(world, "abort open")?;
    world.refused("zirconia provider load {dir}/harmful.so", 1, "ended by signal 6 (SIGABRT) while it was loaded")?;
    set_harm(world, "sleep capabilities")?;
    world.refused("zirconia provider load {dir}/harmful.so", 1, "it was not loaded within 700 ms, and was ended")?;
    set_harm(world, "")?;
    load(world)?;
    world.logged(&["library 'harmful.so' says: no licence, but never mind"])?;
    let daemon = world.daemon()?;
    let mut files = 0;
    each_harm(world, &mut files)?;
    same("the daemon", world.daemon()?, daemon)?;
    world.ok("zpool events")?.shows("sysevent.fs.zfs.zia_provider_down")?.shows("sysevent.fs.zfs.zia_provider_replaced")?;
    // When the daemon starts: it crashes each time, and is given up.
    world.ok("zirconia stop")?;
    set_harm(world, "abort open")?;
    until_online(world)?;
    check_files(world, 0..files)?;
    until_shown(world, "given up after 5 failures: 'zirconia provider load -r ")?;
    world.ok("zirconia provider info example")?.shows("ended by signal 6 (SIGABRT)")?.shows("state:        down")?;
    world.ok("zpool status tank")?.shows("   zia: provider example is ")?;
    // It hangs.
    world.ok("zirconia stop")?;
    set_harm(world, "sleep open")?;
    until_online(world)?;
    write_files(world, files..files + 2)?;
    files += 2;
    check_files(world, 0..files)?;
    world.start("zirconia stop", Duration::from_secs(20))?.finish()?;
    set_harm(world, "")?;
    world.ok("zpool list")?.shows("tank")?;
    until_listed(world, "example\tactive\t1\t")?;
    check_files(world, 0..files)?;
    world.ok("zpool scrub -w tank")?;
    world.ok("zpool status tank")?.shows("with 0 errors")?;
    world.ok("zirconia provider unload -f example")?;
    world.ok("zirconia provider list -H")?.hides("example").map(drop)
}

/// Builds an emulated GPU whose driver does not answer as long as a file is there.
fn build_driver(world: &World) -> Result<(), Failure> {
    let emulator = std::fs::read_to_string(Path::new(SOURCES).join("accel/provider-cuda/tests/emulator.cpp"))?;
    let begin = "API CUresult cuInit(unsigned flags) {";
    let kernels = "\"../src/kernels.cu\"";
    same("the emulator", emulator.contains(begin) && emulator.contains(kernels), true)?;
    let waits = format!("#include <unistd.h>\n{begin}\n\twhile (access(HANG_FILE, F_OK) == 0)\n\t\tusleep(10000);\n");
    let source = emulator.replace(begin, &waits).replace(kernels, &format!("\"{SOURCES}/accel/provider-cuda/src/kernels.cu\""));
    std::fs::write(world.path("driver.cpp"), source)?;
    let flags = "-std=c++17 -O2 -fno-strict-aliasing -U_FORTIFY_SOURCE -fPIC -shared -fvisibility=hidden";
    world.ok(&format!("c++ {flags} -DHANG_FILE=\"{}\" -o {{dir}}/libcuda.so.1 {{dir}}/driver.cpp", world.at("hang")))?;
    std::fs::copy(world.path("libcuda.so.1"), world.path("libnvrtc.so.13"))?;
    Ok(())
}

/// If this fails, whoever loads a GPU whose driver hangs waits without a word, for ever; or the daemon answers nobody meanwhile, or never has the GPU again.
pub fn silent_driver(world: &World) -> Result<(), Failure> {
    build_driver(world)?;
    std::fs::write(world.path("hang"), "")?;
    world.ok_with(("LD_LIBRARY_PATH", &*world.path(".")), "zirconia start")?;
    let deadline = world.path("state/sys/module/zfs/parameters/zirconia_provider_deadline_ms");
    std::fs::write(&deadline, "1000")?;
    let load = world.start("zirconia provider load cuda", PATIENCE)?;
    world.ok("zpool list")?.prints("no pools available")?;
    world.ok("zirconia provider list -H")?.hides("cuda")?;
    let (late, _) = load.finish()?;
    same("the exit status of what came too late", late.code, 1)?;
    late.says("does not answer: the GPU is not open after 12 s; 'nvidia-smi' shows whether the driver does")?;
    late.says("waiting for ")?.says(" s: 'cuda' is opened, and each of its operations tested and timed; see ")?;
    world.logged(&["a GPU is opened: its driver is loaded, and kernels are compiled for it"])?;
    // It goes on where the driver does.
    std::fs::remove_file(world.path("hang"))?;
    std::fs::write(deadline, "60000")?;
    world.ok("zirconia provider load cuda")?.shows("name:         cuda")?.shows("state:        active")?;
    world.logged(&["provider 'cuda': its operations are tested", "provider 'cuda' is loaded"])
}
