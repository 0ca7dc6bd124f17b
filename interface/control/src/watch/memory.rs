//! How much memory there is, and what is done when it gets short: budgets follow the machine and the control groups that the daemon is in, caches give
//! way when either runs out of memory, and what was freed goes back to the system.
//!
//! ```text
//! every half second: look ──room below the reserve, or tasks stall for memory──► caches shrink and may not grow, freed memory goes back
//!                     └──room for twice the reserve──► caches may grow again
//! every few seconds: what buffers kept and nobody used goes back; now and then the heap, sooner after a pool was closed
//! ```

use crate::pool::Pools;
use crate::watch::watcher::Watcher;
use exec::Exec;
use metrics::Parameters;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Pause between looks.
const STEP: Duration = Duration::from_millis(500);
/// Number of looks between those at what buffers keep.
const IDLE_LOOKS: u64 = 10;
/// Number of looks between trims of the heap at first, and at most when they bring nothing.
const HEAP_LOOKS_MIN: u64 = 20;
const HEAP_LOOKS_MAX: u64 = 640;
/// Number of looks after a pool was closed until all of it is freed.
const CLOSING_LOOKS: u64 = 3;
/// Bytes that a trim must bring to be repeated soon; growth by as many asks for another one.
const HEAP_STEP_BYTES: u64 = 16 << 20;
/// Percent of the last ten seconds in which some task waited for memory: more is too much.
const STALLED_PERCENT_MAX: f64 = 10.0;
/// Least and largest room in bytes that is kept free, and its share of what there is.
const RESERVE_BYTES: (u64, u64) = (16 << 20, 1 << 30);
const RESERVE_SHARE: u64 = 32;

/// Places where the kernel tells of memory.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    proc: PathBuf,
    /// Control groups of the process and those above them that may have a limit.
    groups: Vec<Group>,
}

/// Files of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    folder: PathBuf,
    is_v2: bool,
}

/// Findings of a look at the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Room {
    /// Bytes that the process could ever have.
    pub(crate) limit_bytes: u64,
    /// Bytes that the process could have now, as far as anybody knows.
    pub(crate) free_bytes: u64,
    /// Percent of the last seconds in which some task waited for memory.
    stalled_percent: f64,
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Bytes or number in a line `name value` or `name: value kB`.
fn of_line(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([':', ' ']))?;
    let mut words = rest.split_whitespace();
    let value: u64 = words.next()?.parse().ok()?;
    Some(if words.next() == Some("kB") { value << 10 } else { value })
}

fn stalled(path: &Path) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let average = text.lines().find_map(|line| line.strip_prefix("some ")?.split_whitespace().find_map(|word| word.strip_prefix("avg10=")));
    average.and_then(|percent| percent.parse().ok()).unwrap_or(0.0)
}

impl Group {
    fn limit(&self) -> Option<u64> {
        let names: &[&str] = if self.is_v2 { &["memory.max", "memory.high"] } else { &["memory.limit_in_bytes"] };
        // No limit is the word `max`, or a number that nobody has.
        names.iter().filter_map(|name| number(&self.folder.join(name))).min()
    }

    /// Bytes that are used and would not be given back at once: files that are cached can be read again.
    fn used(&self) -> u64 {
        let (usage, inactive) =
            if self.is_v2 { ("memory.current", "inactive_file") } else { ("memory.usage_in_bytes", "total_inactive_file") };
        let stat = std::fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        number(&self.folder.join(usage)).unwrap_or(0).saturating_sub(of_line(&stat, inactive).unwrap_or(0))
    }
}

/// Control groups for memory that a process is in, with those above, from its `cgroup` and `mountinfo`.
fn groups(cgroup: &str, mountinfo: &str) -> Vec<Group> {
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        let Some((mount, kind)) = line.split_once(" - ") else { continue };
        let (mount, kind): (Vec<&str>, Vec<&str>) = (mount.split(' ').collect(), kind.split(' ').collect());
        let (Some(root), Some(point), Some(kind), Some(options)) = (mount.get(3), mount.get(4), kind.first(), kind.get(2)) else {
            continue;
        };
        let is_v2 = *kind == "cgroup2";
        let is_v1 = *kind == "cgroup" && options.split(',').any(|option| option == "memory");
        if !is_v1 && !is_v2 {
            continue;
        }
        let own = cgroup.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_it = if is_v2 { controllers.is_empty() } else { controllers.split(',').any(|one| one == "memory") };
            is_it.then_some(path)
        });
        let Some(own) = own else { continue };
        // In a container the mount may show a part of the tree only, or the process be outside of what it shows.
        let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
        let folder: PathBuf = Path::new(point).components().chain(below.components()).collect();
        let above = folder.ancestors().take_while(|folder| folder.starts_with(point));
        found.extend(above.map(|folder| Group { folder: folder.to_path_buf(), is_v2 }));
    }
    found
}

impl Places {
    /// Places of this process.
    pub(crate) fn own() -> Places {
        let read = |name: &str| std::fs::read_to_string(Path::new("/proc/self").join(name)).unwrap_or_default();
        Places { proc: "/proc".into(), groups: groups(&read("cgroup"), &read("mountinfo")) }
    }

    /// Looks at the memory. Where nothing is told there is no limit and no shortage.
    pub(crate) fn look(&self) -> Room {
        let machine = std::fs::read_to_string(self.proc.join("meminfo")).unwrap_or_default();
        let known = |name| of_line(&machine, name).unwrap_or(u64::MAX);
        let mut room = Room {
            limit_bytes: known("MemTotal"),
            free_bytes: known("MemAvailable"),
            stalled_percent: stalled(&self.proc.join("pressure/memory")),
        };
        for group in &self.groups {
            if group.is_v2 {
                room.stalled_percent = room.stalled_percent.max(stalled(&group.folder.join("memory.pressure")));
            }
            if let Some(limit) = group.limit() {
                room.limit_bytes = room.limit_bytes.min(limit);
                room.free_bytes = room.free_bytes.min(limit.saturating_sub(group.used()));
            }
        }
        room
    }
}

/// Order to caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Give back so many bytes, and do not grow.
    Shrink(u64),
    /// Grow as they like.
    Grow,
    /// Go on as they are.
    Stay,
}

impl Room {
    /// Bytes of the largest cache of a pool (OpenZFS: `zfs_arc_max`) where nobody says another number.
    pub(crate) fn arc_max(&self, usual: u64) -> u64 {
        usual.min(self.limit_bytes / 4)
    }

    /// Bytes of dirty data of a pool at most (OpenZFS: a tenth of the memory), between `least` and what is usual.
    pub(crate) fn dirty_data_max(&self, least: u64, usual: u64) -> u64 {
        (self.limit_bytes / 10).clamp(least, usual)
    }

    /// Bytes of buffers that may be kept empty.
    pub(crate) fn spare_max(&self, usual: u64) -> usize {
        usual.min(self.limit_bytes / 16) as usize
    }

    /// Bytes of room that is kept free (`zfs_arc_sys_free`; 0 is the default).
    fn reserve(&self, asked: u64) -> u64 {
        if asked > 0 { asked } else { (self.limit_bytes / RESERVE_SHARE).clamp(RESERVE_BYTES.0, RESERVE_BYTES.1) }
    }

    /// Order to caches of `size` bytes in all, when 1/2^`shift` of them is a step (`zfs_arc_shrink_shift`).
    fn order(&self, size: u64, sys_free: u64, shift: u32) -> Order {
        let reserve = self.reserve(sys_free);
        let step = size.checked_shr(shift).unwrap_or(0).max(1);
        if self.free_bytes < reserve {
            Order::Shrink(reserve - self.free_bytes + step)
        } else if self.stalled_percent > STALLED_PERCENT_MAX {
            Order::Shrink(step)
        } else if self.free_bytes > reserve.saturating_mul(2) {
            Order::Grow
        } else {
            Order::Stay
        }
    }
}

/// Look at which the heap is trimmed next.
struct Heap {
    at: u64,
    pause: u64,
    resident: u64,
}

impl Heap {
    /// True when it is time: after a while, sooner when the process has grown.
    fn is_due(&self, look: u64, resident: u64) -> bool {
        look >= self.at || (resident > self.resident + HEAP_STEP_BYTES && look + self.pause >= self.at + HEAP_LOOKS_MIN)
    }

    /// Notes that the heap was trimmed, and the process had so many bytes before and after.
    fn trimmed(&mut self, look: u64, before: u64, after: u64) {
        let was_worth_it = before.saturating_sub(after) >= HEAP_STEP_BYTES;
        self.pause = if was_worth_it { HEAP_LOOKS_MIN } else { (self.pause * 2).min(HEAP_LOOKS_MAX) };
        (self.at, self.resident) = (look + self.pause, after);
    }
}

/// Keeper of the memory, with what it remembers between looks.
struct Keeper {
    places: Places,
    looks: u64,
    heap: Heap,
    pools: usize,
    /// Number of looks to go in which a pool that was closed may still let go of its memory.
    closing: u64,
}

impl Keeper {
    fn look(&mut self, pools: &Pools, parameters: &Parameters) {
        self.looks += 1;
        let pools = pools.all();
        let get = |name: &str| parameters.get(name).unwrap_or_default();
        let size: u64 = pools.iter().map(|open| open.pool().cache().size()).sum();
        let order = self.places.look().order(size, get("zfs_arc_sys_free"), get("zfs_arc_shrink_shift") as u32);
        for open in &pools {
            let cache = open.pool().cache();
            match order {
                // Each gives its share.
                Order::Shrink(bytes) => {
                    let share = u128::from(bytes) * u128::from(cache.size()) / u128::from(size.max(1));
                    // What is below the budget is no memory yet.
                    let unused = cache.max().saturating_sub(cache.size());
                    cache.shrink((share as u64).saturating_add(unused), true);
                }
                Order::Grow => cache.shrink(0, false),
                Order::Stay => {}
            }
        }
        let is_short = matches!(order, Order::Shrink(_));
        let is_closed = self.closing == 1;
        self.closing = if pools.len() < self.pools { CLOSING_LOOKS } else { self.closing.saturating_sub(1) };
        self.pools = pools.len();
        drop(pools);
        if is_short || self.closing > 0 || is_closed {
            abd::trim_cache();
        } else if self.looks.is_multiple_of(IDLE_LOOKS) {
            abd::trim_idle();
        }
        let before = metrics::resident_bytes();
        // A pool that is closed has much to give back; what is short must not cost a walk over the heap each time.
        if is_closed || self.heap.is_due(self.looks, before) {
            abd::trim_heap();
            self.heap.trimmed(self.looks, before, metrics::resident_bytes());
        }
    }
}

/// Starts the keeper of the memory. It ends when the watcher does, or when the daemon's pools go.
pub(crate) fn keep(exec: &Exec, watcher: &Arc<Watcher>, pools: &Arc<Pools>, parameters: &Arc<Parameters>) {
    let (watcher, pools, parameters) = (watcher.clone(), Arc::downgrade(pools), parameters.clone());
    let heap = Heap { at: HEAP_LOOKS_MIN, pause: HEAP_LOOKS_MIN, resident: 0 };
    let mut keeper = Keeper { places: Places::own(), looks: 0, heap, pools: 0, closing: 0 };
    let look = move || {
        while watcher.pause(STEP) {
            let Some(pools) = pools.upgrade() else { return };
            keeper.look(&pools, &parameters);
        }
    };
    // Nobody waits for it.
    drop(exec.spawn_operation("z-memory", Box::new(look)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("zirconia-memory-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("pressure")).expect("made");
        std::fs::write(folder.join("meminfo"), "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n").expect("written");
        folder
    }

    /// A daemon in a container of 400 MiB is killed if it takes the machine for its own: the limit may be any group's above, of either version, and the
    /// mount may show a part of the tree only.
    #[test]
    fn limits_of_nested_groups_count_of_both_versions() {
        let v1 = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n36 31 0:33 / /cg/cpu rw - cgroup cgroup rw,cpu";
        let all = |groups: Vec<Group>| groups.into_iter().map(|group| group.folder.display().to_string()).collect::<Vec<_>>();
        assert_eq!(all(groups("4:memory:/a/b\n1:cpu:/x\n0::/", v1)), ["/cg/memory/a/b", "/cg/memory/a", "/cg/memory"]);
        let v2 = "35 31 0:32 /docker/1 /cg rw - cgroup2 cgroup2 rw";
        assert_eq!(all(groups("0::/docker/1/x", v2)), ["/cg/x", "/cg"]);
        assert_eq!(all(groups("0::/", v2)), ["/cg"], "outside of what is shown");

        let place = folder("groups");
        let (outer, inner) = (place.join("outer"), place.join("outer/inner"));
        std::fs::create_dir_all(&inner).expect("made");
        let write = |folder: &Path, name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
        write(&outer, "memory.max", "419430400\n");
        write(&outer, "memory.current", "400000000\n");
        write(&outer, "memory.stat", "anon 1\ninactive_file 104857600\n");
        write(&outer, "memory.pressure", "some avg10=23.50 avg60=1.00 avg300=0.00 total=1\n");
        write(&inner, "memory.max", "max\n");
        write(&inner, "memory.high", "max\n");
        let group = |folder: &Path, is_v2| Group { folder: folder.to_path_buf(), is_v2 };
        let places = Places { proc: place.clone(), groups: vec![group(&inner, true), group(&outer, true)] };
        let room = places.look();
        assert_eq!((room.limit_bytes, room.free_bytes), (400 * MIB, 419_430_400 - (400_000_000 - 104_857_600)));
        assert_eq!(room.stalled_percent, 23.5);
        write(&inner, "memory.limit_in_bytes", "209715200\n");
        write(&inner, "memory.usage_in_bytes", "209000000\n");
        let places = Places { proc: place.clone(), groups: vec![group(&inner, false), group(&outer, true)] };
        assert_eq!((places.look().limit_bytes, places.look().free_bytes), (200 * MIB, 715_200));
        write(&inner, "memory.limit_in_bytes", "9223372036854771712\n");
        let places = Places { proc: place.clone(), groups: vec![group(&inner, false)] };
        assert_eq!((places.look().limit_bytes, places.look().free_bytes), (8 << 30, 4 << 30), "no limit");
        let _ = std::fs::remove_dir_all(&place);
    }

    /// Budgets that do not fit into the limit get the daemon killed, with all its mounts; on an ordinary machine they are what they were.
    #[test]
    fn budgets_follow_what_there_is() {
        let room = |limit_bytes, free_bytes, stalled_percent| Room { limit_bytes, free_bytes, stalled_percent };
        let small = room(400 * MIB, 100 * MIB, 0.0);
        let sum = small.arc_max(256 * MIB) + small.dirty_data_max(64 * MIB, 1 << 30) + small.spare_max(1 << 30) as u64;
        assert!(sum < 200 * MIB, "{sum}");
        let large = room(24 << 30, 12 << 30, 0.0);
        assert_eq!((large.arc_max(256 * MIB), large.dirty_data_max(64 * MIB, 1 << 30)), (256 * MIB, 1 << 30));

        assert_eq!(small.order(80 * MIB, 0, 7), Order::Grow);
        assert_eq!(room(400 * MIB, 10 * MIB, 0.0).order(64 * MIB, 0, 7), Order::Shrink(6 * MIB + MIB / 2));
        assert_eq!(room(400 * MIB, 20 * MIB, 0.0).order(64 * MIB, 0, 7), Order::Stay);
        assert_eq!(room(400 * MIB, 100 * MIB, 11.0).order(64 * MIB, 0, 6), Order::Shrink(MIB), "tasks stall");
        assert_eq!(room(400 * MIB, 100 * MIB, 0.0).order(64 * MIB, 150 * MIB, 6), Order::Shrink(51 * MIB), "as it is told");
        assert_eq!(room(u64::MAX, u64::MAX, 0.0).order(64 * MIB, 0, 7), Order::Grow, "nothing is known");
    }

    /// A heap that is walked all the time costs a processor; one that is never walked keeps what a million files took.
    #[test]
    fn heaps_are_trimmed_while_it_is_worth_it() {
        let mut heap = Heap { at: HEAP_LOOKS_MIN, pause: HEAP_LOOKS_MIN, resident: 0 };
        let (mut trims, mut resident) = (Vec::new(), 900 * MIB);
        for look in 1..2000 {
            if look == 1500 {
                resident = 500 * MIB;
            }
            if heap.is_due(look, resident) {
                let before = resident;
                resident = resident.min(100 * MIB);
                heap.trimmed(look, before, resident);
                trims.push(look);
            }
        }
        assert_eq!(trims[0], HEAP_LOOKS_MIN);
        assert!(trims.len() < 16, "{trims:?}");
        assert!(trims.contains(&1500), "the process has grown: {trims:?}");
    }
}
