//! Requests that were begun and not answered yet, with what was noted for them: who goes on after a death has to know that they were done.

use super::facts::Done;
use exec::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Cells that tell, without a lock, that nothing was noted for a request.
const CELLS: usize = 1024;

/// Knowledge of a request that one entry has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Position of the entry.
    pub position: u64,
    pub done: Done,
}

/// Requests by their numbers, each with its object set and what was noted.
#[derive(Debug)]
pub(super) struct Requests {
    noted: Mutex<HashMap<u64, (u64, Vec<Part>)>>,
    cells: Vec<AtomicU32>,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { noted: Mutex::default(), cells: (0..CELLS).map(|_| AtomicU32::new(0)).collect() }
    }
}

impl Requests {
    fn cell(&self, unique: u64) -> &AtomicU32 {
        &self.cells[(unique.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize % CELLS]
    }

    /// Notes what an entry tells of a request under way.
    pub(super) fn note(&self, objset: u64, unique: u64, part: Part) {
        if unique == 0 {
            return;
        }
        let mut noted = self.noted.lock();
        let (_, parts) = noted.entry(unique).or_insert_with(|| {
            self.cell(unique).fetch_add(1, Ordering::Release);
            (objset, Vec::with_capacity(1))
        });
        parts.push(part);
    }

    /// A request was answered.
    pub(super) fn answered(&self, unique: u64) {
        // Whatever was noted for it happened before its answer.
        if unique != 0 && self.cell(unique).load(Ordering::Acquire) > 0 && self.noted.lock().remove(&unique).is_some() {
            self.cell(unique).fetch_sub(1, Ordering::Release);
        }
    }

    /// Requests of which entries before this position tell: number, object set, and what they tell together.
    pub(super) fn told_before(&self, position: u64) -> Vec<(u64, u64, Done)> {
        let noted = self.noted.lock();
        let told = |(unique, (objset, parts)): (&u64, &(u64, Vec<Part>))| {
            let before = parts.iter().filter(|part| part.position < position);
            let done = before.map(|part| part.done).reduce(Done::and)?;
            Some((*unique, *objset, done))
        };
        noted.iter().filter_map(told).collect()
    }

    /// Lets another entry tell what those before a position told of a request.
    pub(super) fn retold(&self, unique: u64, before: u64, part: Part) {
        if let Some((_, parts)) = self.noted.lock().get_mut(&unique) {
            parts.retain(|part| part.position >= before);
            parts.push(part);
        }
    }
}
