//! Connections that have not logged in: how many there are of an address, and which of them goes when there are too many.
//!
//! Whoever only connects takes a place. When places are short, the connection that was silent longest gives up its own for the next one, so that
//! silence keeps nobody out; who has said all that a login needs, and waits for us, keeps it.

use exec::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Pause between two lines in the log about too many connections.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Numbers of connections that have not logged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number that are open now.
    pub connections: usize,
    /// Number that were closed so far to make room for others, or that got no place.
    pub turned_away: u64,
}

struct Place {
    address: IpAddr,
    /// Turn in which something was heard last.
    heard: u64,
    is_admitting: bool,
    leave: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// Connections by their numbers.
    places: BTreeMap<u64, Place>,
    turn: u64,
    turned_away: u64,
    told: Option<Instant>,
}

impl State {
    /// Frees the place of the connection that was silent longest, of an address or of all; false when none may go.
    fn make_room(&mut self, of: Option<IpAddr>) -> bool {
        let may_go = |place: &Place| !place.is_admitting && of.is_none_or(|address| place.address == address);
        let silent = self.places.iter().filter(|(_, place)| may_go(place)).min_by_key(|(_, place)| place.heard);
        let Some(number) = silent.map(|(number, _)| *number) else { return false };
        if let Some(place) = self.places.remove(&number) {
            place.leave.notify_one();
        }
        true
    }

    /// Says that there are too many, not more often than somebody can read.
    fn tell(&mut self, address: IpAddr) {
        self.turned_away += 1;
        let now = Instant::now();
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < TELL_AGAIN) {
            return;
        }
        self.told = Some(now);
        let own = self.places.values().filter(|place| place.address == address).count();
        tracing::warn!(
            "too many iSCSI connections do not log in ({own} of {address}, {} of all): those that are silent longest are closed for new ones; \
             {} were turned away so far",
            self.places.len(),
            self.turned_away
        );
    }
}

/// Connections of a server that have not logged in.
#[derive(Default)]
pub(crate) struct Crowd(Mutex<State>);

impl Crowd {
    /// Place for a connection of `address`, which has `most` at most; somebody silent makes room if there are too many of it, or of all (`is_full`).
    /// None when nobody can.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr, most: usize, is_full: bool) -> Option<HalfOpen> {
        let mut state = self.0.lock();
        let is_crowded = state.places.values().filter(|place| place.address == address).count() >= most;
        if is_crowded || is_full {
            let has_room = state.make_room(is_crowded.then_some(address));
            state.tell(address);
            if !has_room {
                return None;
            }
        }
        state.turn += 1;
        let (number, leave) = (state.turn, Arc::<Notify>::default());
        state.places.insert(number, Place { address, heard: number, is_admitting: false, leave: leave.clone() });
        Some(HalfOpen { number, leave, crowd: self.clone() })
    }

    /// Notes a connection that got no place for another reason.
    pub(crate) fn refuse(&self, address: IpAddr) {
        self.0.lock().tell(address);
    }

    /// Numbers of this moment.
    pub(crate) fn waiting(&self) -> Waiting {
        let state = self.0.lock();
        Waiting { connections: state.places.len(), turned_away: state.turned_away }
    }
}

/// Place of a connection that has not logged in; free again when this is dropped.
pub(crate) struct HalfOpen {
    number: u64,
    leave: Arc<Notify>,
    crowd: Arc<Crowd>,
}

impl HalfOpen {
    /// Notes that something was heard.
    pub(crate) fn heard(&self) {
        let mut state = self.crowd.0.lock();
        state.turn += 1;
        let turn = state.turn;
        if let Some(place) = state.places.get_mut(&self.number) {
            place.heard = turn;
        }
    }

    /// Notes that the initiator has said all that its login needs.
    pub(crate) fn admitting(&self) {
        if let Some(place) = self.crowd.0.lock().places.get_mut(&self.number) {
            place.is_admitting = true;
        }
    }

    /// Bell that rings when the place is another one's.
    pub(crate) fn leave(&self) -> Arc<Notify> {
        self.leave.clone()
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.crowd.0.lock().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn is_told(place: &HalfOpen) -> bool {
        !place.crowd.0.lock().places.contains_key(&place.number)
    }

    /// If this fails, connections that say nothing lock out who wants to log in, or who is just doing that goes for them.
    #[test]
    fn the_longest_silence_makes_room() {
        let crowd = Arc::new(Crowd::default());
        let enter = |address| crowd.enter(address, 3, false);
        let (Some(first), Some(second), Some(third)) = (enter(ONE), enter(ONE), enter(ONE)) else { panic!("there is room") };
        first.heard();
        second.admitting();
        let beside = enter(OTHER).expect("another address has its own places");
        assert_eq!(crowd.waiting(), Waiting { connections: 4, turned_away: 0 });
        let fourth = enter(ONE).expect("somebody makes room");
        assert_eq!([&first, &second, &third, &beside].map(is_told), [false, false, true, false]);
        drop(third);
        assert_eq!(crowd.waiting(), Waiting { connections: 4, turned_away: 1 });
        let fifth = enter(ONE).expect("somebody makes room");
        assert!(is_told(&first) && !is_told(&second) && !is_told(&fourth));
        // All together are too many: whoever was silent longest, of whatever address.
        assert!(crowd.enter(ONE, 9, true).is_some() && is_told(&beside) && !is_told(&fifth));
        let places = [&fourth, &fifth];
        places.iter().for_each(|place| place.admitting());
        assert!(crowd.enter(ONE, 3, false).is_none(), "nobody goes who waits for us");
    }
}
