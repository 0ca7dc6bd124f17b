//! The rings of one owner, one for each processor up to a limit, and the watcher that sees to it that no slow request holds up others.

use super::processors::Processors;
use super::ring::{Crowd, Ring, Watcher};
use super::seat::{Area, Seat};
use super::{Share, Uring};
use crate::served::Mount;
use crate::{Errno, Reply};
use exec::{Condvar, Exec, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Number of rings at most; where there are more processors a ring serves several.
const RINGS_MAX: usize = 16;
/// Number of threads beyond one for each ring: as many requests may wait for disks before others wait for them.
const THREADS_MORE: usize = 16;
/// Number of seats for a processor, in the sum of those that run, and for one at least and at most.
const SEATS: (usize, usize, usize) = (32, 2, 8);
/// Time after which a thread that serves a request is taken for one that waits.
const TICK: Duration = Duration::from_millis(2);
/// Number of ticks without requests after which nobody watches.
const TICKS_IDLE: u32 = 50;

/// Watch over slow requests.
#[derive(Default)]
struct Watch {
    is_on: AtomicBool,
    /// True when the last mount is gone.
    ends: Mutex<bool>,
    changed: Condvar,
}

impl Watcher for Watch {
    fn wake(&self) {
        // Looked at first: a line that all threads read stays theirs.
        if !self.is_on.load(Ordering::Relaxed) {
            let _ends = self.ends.lock();
            self.is_on.store(true, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }
}

/// Rings of one owner.
pub(crate) struct Rings {
    rings: Vec<Arc<Ring>>,
    processors: Processors,
    watch: Arc<Watch>,
}

/// Place for one mount's seats among the rings.
pub(crate) struct Place {
    rings: Arc<Rings>,
    /// Memory for seats, before there are any.
    share: Mutex<Option<Share>>,
    capacity: usize,
}

impl Rings {
    /// Makes a place for a mount whose requests have `capacity` bytes at most; None where it is not wanted or cannot be had.
    pub fn place(exec: &Exec, known: &Mutex<Weak<Rings>>, wanted: Uring, capacity: usize) -> Option<Place> {
        let processors = Processors::look().filter(|_| wanted.is_wanted())?;
        let share = Share::take(processors.seats().checked_mul(capacity)?)?;
        let mut known = known.lock();
        let rings = match known.upgrade() {
            Some(rings) if rings.processors == processors => rings,
            _ => {
                let rings = Arc::new(Rings::start(exec, processors).ok()?);
                *known = Arc::downgrade(&rings);
                rings
            }
        };
        Some(Place { rings, share: Mutex::new(Some(share)), capacity })
    }

    fn start(exec: &Exec, processors: Processors) -> Reply<Rings> {
        let count = processors.online.len().min(RINGS_MAX);
        let crowd = Arc::new(Crowd::new(count + THREADS_MORE));
        let watch = Arc::new(Watch::default());
        let mut rings = Rings { rings: Vec::new(), processors, watch: watch.clone() };
        for processor in rings.processors.online.iter().take(count) {
            // Those that were started end with `rings`.
            rings.rings.push(Ring::start(exec, *processor, &crowd, watch.clone())?);
        }
        let (own, all) = (watch, rings.rings.clone());
        exec.spawn_alone("z-fuse-watch", Box::new(move || own.run(&all))).map_err(|_| rustix::io::Errno::AGAIN)?;
        Ok(rings)
    }

    /// Ring that serves a queue.
    fn of_queue(&self, queue: usize) -> &Arc<Ring> {
        let number = self.processors.online.binary_search(&queue).unwrap_or(queue);
        &self.rings[number % self.rings.len()]
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.rings.iter().for_each(|ring| ring.end());
        *self.watch.ends.lock() = true;
        self.watch.changed.notify_all();
    }
}

impl Watch {
    fn run(&self, rings: &[Arc<Ring>]) {
        let mut idle = 0;
        let mut ends = self.ends.lock();
        while !*ends {
            if self.is_on.load(Ordering::Relaxed) {
                self.changed.wait_for(&mut ends, TICK);
                // All of them: each notes what it saw.
                let happened = rings.iter().filter(|ring| ring.look()).count();
                idle = if happened > 0 { 0 } else { idle + 1 };
                if idle > TICKS_IDLE {
                    self.is_on.store(false, Ordering::Relaxed);
                }
            } else {
                idle = 0;
                self.changed.wait(&mut ends);
            }
        }
    }
}

impl Processors {
    /// Number of seats in a queue: those of processors that don't run have one, without which the kernel uses none.
    fn seats_of(&self, queue: usize) -> usize {
        let (sum, least, most) = SEATS;
        if self.online.contains(&queue) { (sum / self.online.len().max(1)).clamp(least, most) } else { 1 }
    }

    /// Number of seats of a mount.
    fn seats(&self) -> usize {
        (0..self.possible).map(|queue| self.seats_of(queue)).sum()
    }
}

impl Place {
    /// Gives a mount its seats: on return its requests come to them.
    ///
    /// # Errors
    /// The kernel refused them; the connection is of no use then.
    pub fn seat(&self, mount: &Arc<Mount>) -> Reply<()> {
        let Rings { rings, processors, .. } = &*self.rings;
        let share = self.share.lock().take().ok_or(Errno::EIO)?;
        let area = Arc::new(Area::new(processors.seats(), self.capacity, share)?);
        let mut by_ring: Vec<Vec<Arc<Seat>>> = rings.iter().map(|_| Vec::new()).collect();
        let mut index = 0;
        for queue in 0..processors.possible {
            let ring = self.rings.of_queue(queue);
            let number = rings.iter().position(|other| Arc::ptr_eq(other, ring)).unwrap_or_default();
            for _ in 0..processors.seats_of(queue) {
                by_ring[number].push(Seat::new(&area, index, queue as u16, ring.clone(), mount));
                index += 1;
            }
        }
        let taken = rings.iter().zip(by_ring).all(|(ring, seats)| ring.register(seats));
        if taken { Ok(()) } else { Err(Errno(libc::EOPNOTSUPP)) }
    }
}
