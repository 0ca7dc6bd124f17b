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
    mut places: impl Iterator<Item = (&'a Dnode, u64)>,
) -> Result<Stream, String> {
    let (told, replies) = mpsc::channel::<Result<u32, String>>();
    let mut stream = Stream::default();
    let (mut in_flight, mut started) = (0, 0);
    let records = (data.len() as u64 / size).max(1);
    loop {
        while in_flight < depth.max(1) {
            let Some((object, offset)) = places.next() else { break };
            let (told, begun) = (told.clone(), Instant::now());
            let done = move |result: Result<(), String>| {
                let _ = told.send(result.map(|()| nanoseconds(begun)));
            };
            match direction {
                Direction::Read => subject.read_direct_then(object, offset, size as usize, done),
                Direction::Write => {
                    let start = (started % records * size) as usize;
                    subject.write_direct_then(object, offset, data.slice(start..start + size as usize), done)?;
                }
            }
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
