//! Many direct requests in flight from one thread: submit, don't wait, submit the next when any completes.

use crate::subject::Subject;
use abd::Abd;
use dmu::Dnode;
use std::sync::mpsc;
use std::time::Instant;

/// Figures of one stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Number of bytes moved.
    pub bytes: u64,
    /// Latency of each request in nanoseconds.
    pub latencies_ns: Vec<u32>,
}

impl Stream {
    /// Counts a request that took `begun.elapsed()`.
    pub fn note(&mut self, bytes: u64, begun: Instant) {
        self.latencies_ns.push(nanoseconds(begun));
        self.bytes += bytes;
    }
}

fn nanoseconds(begun: Instant) -> u32 {
    begun.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32
}

/// Direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads, from the devices.
    Read,
    /// Writes, to the devices.
    Write,
}

/// Runs direct requests of `size` bytes at `offsets`, at most `depth` in flight; returns when all are done. `data` is at least `size` long,
/// and its records are written in turn.
pub fn run(
    subject: &Subject,
    object: &Dnode,
    direction: Direction,
    depth: usize,
    size: u64,
    data: &Abd,
    offsets: impl Iterator<Item = u64>,
) -> Result<Stream, String> {
    run_over(subject, direction, depth, size, data, offsets.map(|offset| (object, offset)))
}

/// Does [`run`] over places of several objects.
pub fn run_over<'a>(
    subject: &Subject,
    direction: Direction,
    depth: usize,
    size: u64,
    data: &Abd,
    places: impl Iterator<Item = (&'a Dnode, u64)>,
) -> Result<Stream, String> {
    keep_in_flight(depth, size, places, |(object, offset), number, ending| {
        let done = move |result: Result<(), String>| ending.tell(result);
        match direction {
            Direction::Read => {
                subject.read_direct_then(object, offset, size as usize, done);
                Ok(())
            }
            Direction::Write => subject.write_direct_then(object, offset, part(data, size, number), done),
        }
    })
}

/// Bytes that the write of a number writes: parts of `data`, which is at least as long, in turn.
pub fn part(data: &Abd, size: u64, number: u64) -> Abd {
    let records = (data.len() as u64 / size).max(1);
    let start = (number % records * size) as usize;
    data.slice(start..start + size as usize)
}

/// End of a request that is under way.
#[derive(Debug)]
pub struct Ending {
    told: mpsc::Sender<Result<u32, String>>,
    begun: Instant,
}

impl Ending {
    /// Tells how the request ended.
    pub fn tell(self, result: Result<(), String>) {
        let took = nanoseconds(self.begun);
        // Whoever waited may have given up.
        let _ = self.told.send(result.map(|()| took));
    }
}

/// Starts requests of `size` bytes at `places`, at most `depth` in flight; `start` gets the place, the number of the request and its end. Returns
/// when all are done.
pub fn keep_in_flight<P>(
    depth: usize,
    size: u64,
    mut places: impl Iterator<Item = P>,
    mut start: impl FnMut(P, u64, Ending) -> Result<(), String>,
) -> Result<Stream, String> {
    let (told, replies) = mpsc::channel();
    let mut stream = Stream::default();
    let (mut in_flight, mut started) = (0, 0);
    loop {
        while in_flight < depth.max(1) {
            let Some(place) = places.next() else { break };
            start(place, started, Ending { told: told.clone(), begun: Instant::now() })?;
            in_flight += 1;
            started += 1;
        }
        if in_flight == 0 {
            return Ok(stream);
        }
        let took = replies.recv().map_err(|_| "a request was never answered".to_string())??;
        in_flight -= 1;
        stream.latencies_ns.push(took);
        stream.bytes += size;
    }
}

/// Offsets at random: multiples of `size` below `end`, until `deadline`.
pub fn random_offsets(size: u64, end: u64, seed: u64, deadline: Instant) -> impl Iterator<Item = u64> {
    let (mut state, places) = (seed | 1, (end / size).max(1));
    std::iter::from_fn(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (Instant::now() < deadline).then(|| (state >> 33) % places * size)
    })
}
