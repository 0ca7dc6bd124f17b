//! What a generation has in flight, and the one timer that watches over all deadlines.
//!
//! A timer per graph would wake a thread per graph; here one is started only when none is due before the new deadline.

use crate::OpError;
use crate::generation::Generation;
use crate::submit::Ticket;
use exec::{Mutex, TaskClass};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

#[derive(Default)]
struct State {
    tickets: BTreeMap<u64, Arc<Ticket>>,
    due: BTreeSet<(u64, u64)>,
    last_id: u64,
    bytes: u64,
    /// Time in ns at which the earliest timer fires that was started for nothing later than it.
    armed_ns: Option<u64>,
}

/// The graphs in flight of one generation.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<State>);

impl InFlight {
    pub(crate) fn graphs(&self) -> usize {
        self.0.lock().tickets.len()
    }

    /// Every ticket there is.
    pub(crate) fn all(&self) -> Vec<Arc<Ticket>> {
        self.0.lock().tickets.values().cloned().collect()
    }

    /// Takes in a graph of `bytes` bytes, made by `make` from its number; starts a timer if need be.
    pub(crate) fn add(
        &self,
        generation: &Arc<Generation>,
        bytes: u64,
        due_ns: u64,
        make: impl FnOnce(u64) -> Arc<Ticket>,
    ) -> Result<Arc<Ticket>, OpError> {
        let limits = generation.capabilities.queue;
        let mut state = self.0.lock();
        // Whoever brings the generation down does so before it looks at the tickets.
        if generation.is_down() {
            return Err(OpError::Down);
        }
        let is_first = state.tickets.is_empty();
        if !is_first && (state.tickets.len() >= limits.graphs_max || state.bytes.saturating_add(bytes) > limits.bytes_max) {
            return Err(OpError::Full);
        }
        state.last_id += 1;
        let id = state.last_id;
        let ticket = make(id);
        state.tickets.insert(id, ticket.clone());
        state.due.insert((due_ns, id));
        state.bytes += bytes;
        let start_timer = state.armed_ns.is_none_or(|armed| due_ns < armed);
        if start_timer {
            state.armed_ns = Some(due_ns);
        }
        drop(state);
        if start_timer {
            arm(generation, due_ns);
        }
        Ok(ticket)
    }

    /// A graph has ended.
    pub(crate) fn remove(&self, id: u64, bytes: u64, due_ns: u64) {
        let mut state = self.0.lock();
        let gone = state.tickets.remove(&id);
        if gone.is_some() {
            state.due.remove(&(due_ns, id));
            state.bytes -= bytes;
        }
        drop(state);
        drop(gone);
    }

    /// The timer that was started for `due_ns` fired.
    fn fired(&self, generation: &Arc<Generation>, due_ns: u64) {
        let now = generation.exec.now_ns();
        let mut state = self.0.lock();
        let late: Vec<Arc<Ticket>> =
            state.due.iter().take_while(|(due, _)| *due <= now).filter_map(|(_, id)| state.tickets.get(id).cloned()).collect();
        let next = state.due.iter().map(|(due, _)| *due).find(|due| *due > now);
        let mut start = None;
        if state.armed_ns.is_some_and(|armed| armed <= due_ns) {
            state.armed_ns = next;
            start = next;
        }
        drop(state);
        for ticket in late {
            ticket.give_up(OpError::Timeout);
        }
        if let Some(due) = start {
            arm(generation, due);
        }
    }
}

/// Starts a timer for `due_ns`; it holds nothing alive.
fn arm(generation: &Arc<Generation>, due_ns: u64) {
    let weak: Weak<Generation> = Arc::downgrade(generation);
    let delay_ns = due_ns.saturating_sub(generation.exec.now_ns());
    let job = move || {
        if let Some(generation) = weak.upgrade() {
            generation.in_flight.fired(&generation, due_ns);
        }
    };
    generation.exec.spawn_after(delay_ns, TaskClass::Interrupt, Box::new(job));
}
