//! A logical unit with what SCSI remembers of it: who is connected, what each has to be told, reservations, modes.

use crate::gate::Token;
use crate::scsi::mode::Modes;
use crate::scsi::ranges::Ranges;
use crate::scsi::reservations::{Effects, Reservations, Told};
use crate::scsi::sense::Sense;
use crate::scsi::table::Class;
use crate::unit::{Geometry, Kept, LogicalUnit, ReservationStore};
use exec::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of attentions that wait for one initiator, at most; further ones are dropped, as the first tells it to look at everything.
const ATTENTIONS_MAX: usize = 16;
/// Unit attentions: additional sense codes and qualifiers.
pub(crate) const POWER_ON: (u8, u8) = (0x29, 0x00);
pub(crate) const UNIT_RESET: (u8, u8) = (0x29, 0x03);
pub(crate) const NEXUS_LOSS: (u8, u8) = (0x29, 0x07);
pub(crate) const MODE_CHANGED: (u8, u8) = (0x2A, 0x01);
pub(crate) const CAPACITY_CHANGED: (u8, u8) = (0x2A, 0x09);
pub(crate) const CLEARED: (u8, u8) = (0x2F, 0x00);
pub(crate) const UNITS_CHANGED: (u8, u8) = (0x3F, 0x0E);

/// Owner of tasks that somebody else can abort.
pub(crate) trait TaskOwner: Send + Sync {
    /// Aborts tasks of `disk`; `token` is dropped when none of them touches data any more.
    fn abort(&self, disk: &Arc<Disk>, token: Token);
}

/// One initiator port that is connected to one unit (I_T_L nexus).
pub(crate) struct Nexus {
    pub(crate) disk: Arc<Disk>,
    /// Number of the session.
    pub(crate) session: u64,
    /// Transport identifier (`iqn…,i,0x…`).
    pub(crate) transport: Arc<str>,
    pub(crate) is_read_only: bool,
    owner: Arc<dyn TaskOwner>,
    has_attention: AtomicBool,
    attentions: Mutex<VecDeque<(u8, u8)>>,
}

impl Nexus {
    /// Adds something that the initiator has to be told.
    pub(crate) fn tell(&self, attention: (u8, u8)) {
        let mut attentions = self.attentions.lock();
        if !attentions.contains(&attention) && attentions.len() < ATTENTIONS_MAX {
            attentions.push_back(attention);
            self.has_attention.store(true, Ordering::Release);
        }
    }

    /// Takes the next thing that the initiator has to be told.
    pub(crate) fn attention(&self) -> Option<Sense> {
        if !self.has_attention.load(Ordering::Acquire) {
            return None;
        }
        let mut attentions = self.attentions.lock();
        let next = attentions.pop_front();
        self.has_attention.store(!attentions.is_empty(), Ordering::Release);
        next.map(|(code, qualifier)| Sense::attention(code, qualifier))
    }
}

/// A logical unit as a target shows it.
pub struct Disk {
    pub(crate) unit: Arc<dyn LogicalUnit>,
    pub(crate) store: Arc<dyn ReservationStore>,
    pub(crate) ranges: Ranges,
    pub(crate) modes: Modes,
    /// Held over a change of the reservations and its way to the store.
    pub(crate) changing: tokio::sync::Mutex<()>,
    reservations: Mutex<Reservations>,
    has_reservations: AtomicBool,
    nexuses: Mutex<Vec<Arc<Nexus>>>,
    /// Number of blocks that initiators know.
    known_blocks: AtomicU64,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("serial", &self.unit.identity().serial).finish_non_exhaustive()
    }
}

impl Disk {
    /// A disk over `unit`, with the persistent reservations that `store` had kept.
    pub fn new(unit: Arc<dyn LogicalUnit>, store: Arc<dyn ReservationStore>, kept: Option<Kept>) -> Disk {
        let known_blocks = AtomicU64::new(unit.geometry().blocks);
        let is_kept = kept.is_some();
        let reservations = Reservations { kept: kept.unwrap_or_default(), is_kept, reserved: None };
        Disk {
            unit,
            store,
            ranges: Ranges::default(),
            modes: Modes::default(),
            changing: tokio::sync::Mutex::new(()),
            has_reservations: AtomicBool::new(!reservations.is_empty()),
            reservations: Mutex::new(reservations),
            nexuses: Mutex::default(),
            known_blocks,
        }
    }

    /// Connects an initiator port.
    pub(crate) fn connect(
        self: &Arc<Disk>,
        session: u64,
        transport: Arc<str>,
        is_read_only: bool,
        owner: Arc<dyn TaskOwner>,
        first: (u8, u8),
    ) -> Arc<Nexus> {
        let nexus = Arc::new(Nexus {
            disk: self.clone(),
            session,
            transport,
            is_read_only,
            owner,
            has_attention: AtomicBool::new(true),
            attentions: Mutex::new(VecDeque::from([first])),
        });
        self.nexuses.lock().push(nexus.clone());
        nexus
    }

    /// Forgets an initiator port whose session has ended; registrations stay.
    pub(crate) fn disconnect(&self, nexus: &Arc<Nexus>) {
        self.nexuses.lock().retain(|one| !Arc::ptr_eq(one, nexus));
        if self.has_reservations.load(Ordering::Acquire) {
            self.change(|state| state.release_whole(&nexus.transport));
        }
    }

    /// Shape of the unit; tells everybody when it has grown or shrunk.
    pub(crate) fn geometry(&self) -> Geometry {
        let geometry = self.unit.geometry();
        if self.known_blocks.load(Ordering::Relaxed) != geometry.blocks
            && self.known_blocks.swap(geometry.blocks, Ordering::AcqRel) != geometry.blocks
        {
            self.tell_all(None, CAPACITY_CHANGED);
        }
        geometry
    }

    /// True when a reservation of somebody else forbids a command of `class`.
    pub(crate) fn is_forbidden(&self, nexus: &Nexus, class: Class) -> bool {
        self.has_reservations.load(Ordering::Acquire) && self.reservations.lock().forbids(&nexus.transport, class)
    }

    /// A copy of the reservations.
    pub(crate) fn reservations(&self) -> Reservations {
        self.reservations.lock().clone()
    }

    /// Changes the reservations.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Reservations) -> T) -> T {
        let mut state = self.reservations.lock();
        let result = change(&mut state);
        self.has_reservations.store(!state.is_empty(), Ordering::Release);
        result
    }

    /// Tells initiator ports what a change of reservations means for them.
    pub(crate) fn tell(&self, told: &[Told]) {
        for nexus in self.nexuses.lock().iter() {
            told.iter().filter(|(who, _)| **who == *nexus.transport).for_each(|(_, what)| nexus.tell(*what));
        }
    }

    /// Tells every initiator port but that of `but`.
    pub(crate) fn tell_all(&self, but: Option<&Nexus>, attention: (u8, u8)) {
        for nexus in self.nexuses.lock().iter().filter(|nexus| but.is_none_or(|but| but.session != nexus.session)) {
            nexus.tell(attention);
        }
    }

    /// Aborts the tasks of initiator ports that were preempted.
    pub(crate) fn abort_preempted(self: &Arc<Disk>, by: &Nexus, effects: &Effects, token: &Token) {
        let is_hit = |nexus: &&Arc<Nexus>| nexus.session != by.session && effects.preempted.iter().any(|who| **who == *nexus.transport);
        self.abort_of(is_hit, None, token);
    }

    /// Aborts the tasks of everybody but `but`, who are told that theirs were cleared.
    pub(crate) fn abort_others(self: &Arc<Disk>, but: u64, attention: Option<(u8, u8)>, token: &Token) {
        self.abort_of(|nexus| nexus.session != but, attention, token);
    }

    fn abort_of(self: &Arc<Disk>, is_hit: impl Fn(&&Arc<Nexus>) -> bool, attention: Option<(u8, u8)>, token: &Token) {
        let hit: Vec<Arc<Nexus>> = self.nexuses.lock().iter().filter(|nexus| is_hit(nexus)).cloned().collect();
        for nexus in hit {
            attention.into_iter().for_each(|attention| nexus.tell(attention));
            nexus.owner.abort(self, token.clone());
        }
    }
}
