//! Tests of a row: threads that share the objects out, each object a stream from its beginning on that its threads go along together.

use super::args::Layer;
use super::bed::{Bed, Ground, Setup, Target, Used};
use super::line::{Row, Test, extremes, mib_per_second};
use super::mount::Mount;
use super::rates::Direction;
use super::stand::Stand;
use crate::measure::{GIB, cpu_seconds};
use exec::{Exec, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Point of the survey's grid.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Bytes that each test moves, about.
    pub bytes: u64,
    /// Bytes of a request.
    pub request: u64,
    /// Number of objects.
    pub objects: usize,
    /// Number of threads: a multiple of the objects.
    pub threads: usize,
    /// Nanoseconds of the intervals whose rates are shown.
    pub interval_ns: u64,
}

impl Point {
    /// Number of requests of each thread.
    fn each(&self) -> u64 {
        (self.bytes / (self.request * self.threads as u64)).max(1)
    }

    /// Bytes that each test moves.
    fn total(&self) -> u64 {
        self.each() * self.request * self.threads as u64
    }
}

/// Times in ns at which requests ended, and their bytes; or why one failed.
type Moved = Arc<Mutex<Result<Vec<(u64, u64)>, String>>>;

/// Thread of a test.
struct Worker {
    exec: Exec,
    target: Arc<dyn Target>,
    point: Point,
    direction: Direction,
    object: usize,
    /// Requests of each object that were begun.
    begun: Arc<Vec<AtomicU64>>,
    moved: Moved,
}

impl Worker {
    fn run(self) {
        let mut moved = Vec::with_capacity(self.point.each() as usize);
        let result = (0..self.point.each()).try_for_each(|_| {
            let offset = self.begun[self.object].fetch_add(1, Ordering::Relaxed) * self.point.request;
            let range = offset..offset + self.point.request;
            match self.direction {
                Direction::Read => self.target.read(self.object, range)?,
                Direction::Write => self.target.write(self.object, range)?,
            }
            moved.push((self.exec.now_ns(), self.point.request));
            Ok(())
        });
        let mut all = self.moved.lock();
        match (result, &mut *all) {
            (Ok(()), Ok(all)) => all.extend(moved),
            (Err(error), Ok(_)) => *all = Err(error),
            (_, Err(_)) => {}
        }
    }
}

/// Runs all threads; gives the ends of their requests.
fn move_all(bed: &dyn Ground, target: &Arc<dyn Target>, point: Point, direction: Direction) -> Result<Vec<(u64, u64)>, String> {
    let moved: Moved = Arc::new(Mutex::new(Ok(Vec::new())));
    let begun: Arc<Vec<AtomicU64>> = Arc::new((0..point.objects).map(|_| AtomicU64::new(0)).collect());
    let start = |thread: usize| {
        let worker = Worker {
            exec: bed.exec().clone(),
            target: target.clone(),
            point,
            direction,
            object: thread / (point.threads / point.objects),
            begun: begun.clone(),
            moved: moved.clone(),
        };
        bed.exec().spawn_operation("zbench-survey", Box::new(move || worker.run()))
    };
    let threads: Vec<_> = (0..point.threads).map(start).collect();
    threads.into_iter().for_each(exec::OperationHandle::join);
    std::mem::replace(&mut *moved.lock(), Ok(Vec::new()))
}

/// Amounts that were used up to now.
fn used(stand: &Stand, bed: &dyn Ground) -> Result<Used, String> {
    let own = || Used { device_bytes: stand.bytes(), copied: stand.copied(), cpu: cpu_seconds() };
    Ok(bed.used()?.unwrap_or_else(own))
}

/// Runs one test.
fn test(stand: &Stand, bed: &dyn Ground, target: &Arc<dyn Target>, point: Point, name: &'static str) -> Result<Test, String> {
    let direction = if name.ends_with("write") { Direction::Write } else { Direction::Read };
    let exec = bed.exec();
    let (before, direct) = (used(stand, bed)?, target.direct_bytes());
    let begun = exec.now_ns();
    let mut moved = move_all(bed, target, point, direction)?;
    let took_ns = exec.now_ns() - begun;
    let synced_ns = match direction {
        Direction::Write => {
            bed.sync()?;
            Some(exec.now_ns() - begun)
        }
        Direction::Read => None,
    };
    let after = used(stand, bed)?;
    moved.iter_mut().for_each(|(at, _)| *at = at.saturating_sub(begun));
    let total = point.total();
    let part = |bytes: u64| bytes as f64 / total as f64;
    Ok(Test {
        name,
        rate: mib_per_second(total, took_ns),
        extremes: extremes(&moved, point.interval_ns),
        synced: synced_ns.map(|ns| mib_per_second(total, ns)),
        device_bytes: part(after.device_bytes - before.device_bytes),
        direct: Some(100.0 * part(target.direct_bytes() - direct)),
        copies: Some(part(after.copied - before.copied)),
        cpu: (!stand.is_virtual()).then(|| (after.cpu - before.cpu) / (total as f64 / GIB)),
    })
}

/// Runs the tests of a point with objects of their own, from the number `first` on; gives the pool back, without them.
fn row(stand: &Stand, bed: Box<dyn Ground>, point: Point, first: u32) -> Result<(Box<dyn Ground>, Row), String> {
    let numbers = first..first + point.objects as u32;
    let target = bed.open(numbers.clone(), point.request, true)?;
    bed.sync()?;
    let warm = ["write", "rewrite", "read"].map(|name| test(stand, &*bed, &target, point, name));
    let mut tests = warm.into_iter().collect::<Result<Vec<_>, _>>()?;
    drop(target);
    let bed = bed.again()?;
    let target = bed.open(numbers, point.request, false)?;
    tests.push(test(stand, &*bed, &target, point, "cold")?);
    target.destroy()?;
    drop(target);
    bed.settle()?;
    let (total_kib, request_kib) = (point.total() >> 10, point.request >> 10);
    Ok((bed, Row { total_kib, request_kib, objects: point.objects, threads: point.threads, tests }))
}

/// Makes a pool on the devices and runs the tests of all points; tells each row.
pub fn run(stand: &Stand, setup: &Setup, points: &[Point], tell: &mut dyn FnMut(&Row)) -> Result<(), String> {
    let mut bed: Box<dyn Ground> = match setup.layer {
        Layer::Mount => Box::new(Mount::create(stand.exec(), stand.paths(), setup)?),
        _ => Box::new(Bed::create(stand.exec(), stand.devices(), setup)?),
    };
    let mut first = 0;
    for point in points {
        let (left, row) = row(stand, bed, *point, first)?;
        tell(&row);
        bed = left;
        first += point.objects as u32;
    }
    bed.end()
}
