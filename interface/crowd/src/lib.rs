//! Connections that may be anybody's: how many there are of an origin, and which of them goes when there are too many.
//!
//! Whoever only connects takes a place. When places are short, the connection that was silent longest gives up its own for the next one, so that
//! silence keeps nobody out; who has said all that a login needs, and waits for us, keeps it. Where nobody has to prove who they are, whoever came
//! in can be such a one too: then the origin with the most of them gives one up to an origin with fewer.
#![forbid(unsafe_code)]

use exec::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Pause between two lines in the log about too many connections.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// Origin of connections, each with a share of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Programs of this machine.
    Machine,
    /// Address from which they come.
    Address(IpAddr),
    /// User of this machine, by number.
    User(u32),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Machine => f.write_str("this machine"),
            Origin::Address(address) => write!(f, "{address}"),
            Origin::User(user) => write!(f, "user {user}"),
        }
    }
}

/// Numbers of connections that have not come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Number that are open now.
    pub connections: usize,
    /// Number that were closed so far to make room for others, or that got no place.
    pub turned_away: u64,
}

/// Stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Something is still to be heard of it.
    Talking,
    /// All that is needed was heard: it waits for us.
    Admitting,
    /// Come in.
    In,
}

struct Entry {
    origin: Origin,
    /// Turn in which something was heard last.
    heard: u64,
    stage: Stage,
    leave: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// Connections by their numbers.
    entries: BTreeMap<u64, Entry>,
    turn: u64,
    turned_away: u64,
    told: Option<Instant>,
}

impl State {
    /// Number of connections of an origin that have not come in.
    fn waiting_of(&self, origin: Origin) -> usize {
        self.entries.values().filter(|entry| entry.origin == origin && entry.stage != Stage::In).count()
    }

    /// Frees the place of the connection that was silent longest of those that may go; false when there is none.
    fn make_room(&mut self, may_go: impl Fn(&Entry) -> bool) -> bool {
        let silent = self.entries.iter().filter(|(_, entry)| may_go(entry)).min_by_key(|(_, entry)| entry.heard);
        let Some(number) = silent.map(|(number, _)| *number) else { return false };
        if let Some(entry) = self.entries.remove(&number) {
            entry.leave.notify_one();
        }
        true
    }

    /// Frees a place of the origin from which most have come in; false unless those are more than of this one.
    fn share(&mut self, origin: Origin) -> bool {
        let mut counts: BTreeMap<Origin, usize> = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| entry.stage == Stage::In) {
            *counts.entry(entry.origin).or_default() += 1;
        }
        let own = counts.get(&origin).copied().unwrap_or_default();
        let Some((most, _)) = counts.into_iter().filter(|(_, count)| *count > own + 1).max_by_key(|(_, count)| *count) else {
            return false;
        };
        self.make_room(|entry| entry.stage == Stage::In && entry.origin == most)
    }

    /// Says that there are too many, not more often than somebody can read.
    fn tell(&mut self, what: &str, origin: Origin) {
        self.turned_away += 1;
        let now = Instant::now();
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < TELL_AGAIN) {
            return;
        }
        self.told = Some(now);
        let own = self.entries.values().filter(|entry| entry.origin == origin).count();
        tracing::warn!(
            "too many {what} ({own} of {origin}, {} of all): those that are silent longest are closed for new ones; \
             {} were turned away so far",
            self.entries.len(),
            self.turned_away
        );
    }
}

/// Connections of a server.
pub struct Crowd {
    /// Words for too many of them.
    what: &'static str,
    state: Mutex<State>,
}

impl Crowd {
    /// Nobody yet; `what` says what is wrong with too many: "NBD connections have no volume".
    pub fn new(what: &'static str) -> Arc<Crowd> {
        Arc::new(Crowd { what, state: Mutex::default() })
    }

    /// Place for a connection of `origin`, of which `most` may not have come in; somebody silent makes room if there are too many of it, or of all
    /// (`is_full`). None when nobody can.
    pub fn enter(self: &Arc<Self>, origin: Origin, most: usize, is_full: bool) -> Option<Place> {
        let mut state = self.state.lock();
        let is_crowded = state.waiting_of(origin) >= most;
        if is_crowded || is_full {
            let may_go = |entry: &Entry| entry.stage == Stage::Talking && (!is_crowded || entry.origin == origin);
            let has_room = state.make_room(may_go) || !is_crowded && state.share(origin);
            state.tell(self.what, origin);
            if !has_room {
                return None;
            }
        }
        state.turn += 1;
        let (number, leave) = (state.turn, Arc::<Notify>::default());
        state.entries.insert(number, Entry { origin, heard: number, stage: Stage::Talking, leave: leave.clone() });
        Some(Place { number, leave, crowd: self.clone() })
    }

    /// Notes a connection that got no place for another reason.
    pub fn refuse(&self, origin: Origin) {
        self.state.lock().tell(self.what, origin);
    }

    /// Numbers of this moment.
    pub fn waiting(&self) -> Waiting {
        let state = self.state.lock();
        let connections = state.entries.values().filter(|entry| entry.stage != Stage::In).count();
        Waiting { connections, turned_away: state.turned_away }
    }
}

/// Place of a connection; free again when this is dropped.
pub struct Place {
    number: u64,
    leave: Arc<Notify>,
    crowd: Arc<Crowd>,
}

impl Place {
    /// Notes that something was heard.
    pub fn heard(&self) {
        let mut state = self.crowd.state.lock();
        state.turn += 1;
        let turn = state.turn;
        if let Some(entry) = state.entries.get_mut(&self.number) {
            entry.heard = turn;
        }
    }

    /// Notes that the other end has said all that is needed.
    pub fn admitting(&self) {
        self.reach(Stage::Admitting);
    }

    /// Notes that the connection has come in, and keeps its place.
    pub fn comes_in(&self) {
        self.reach(Stage::In);
    }

    fn reach(&self, stage: Stage) {
        if let Some(entry) = self.crowd.state.lock().entries.get_mut(&self.number) {
            entry.stage = stage;
        }
    }

    /// True once the place is another one's.
    pub fn is_lost(&self) -> bool {
        !self.crowd.state.lock().entries.contains_key(&self.number)
    }

    /// Bell that rings when the place is another one's.
    pub fn leave(&self) -> Arc<Notify> {
        self.leave.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.state.lock().entries.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const ONE: Origin = Origin::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    const OTHER: Origin = Origin::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

    /// If this fails, connections that say nothing lock out who wants to log in, or who is just doing that goes for them.
    #[test]
    fn the_longest_silence_makes_room() {
        let crowd = Crowd::new("connections do not log in");
        let enter = |origin| crowd.enter(origin, 3, false);
        let (Some(first), Some(second), Some(third)) = (enter(ONE), enter(ONE), enter(ONE)) else { panic!("there is room") };
        first.heard();
        second.admitting();
        let beside = enter(OTHER).expect("another address has its own places");
        assert_eq!(crowd.waiting(), Waiting { connections: 4, turned_away: 0 });
        let fourth = enter(ONE).expect("somebody makes room");
        assert_eq!([&first, &second, &third, &beside].map(Place::is_lost), [false, false, true, false]);
        drop(third);
        assert_eq!(crowd.waiting(), Waiting { connections: 4, turned_away: 1 });
        let fifth = enter(ONE).expect("somebody makes room");
        assert!(first.is_lost() && !second.is_lost() && !fourth.is_lost());
        // All together are too many: whoever was silent longest, of whatever address.
        assert!(crowd.enter(ONE, 9, true).is_some() && beside.is_lost() && !fifth.is_lost());
        let places = [&fourth, &fifth];
        places.iter().for_each(|place| place.admitting());
        assert!(crowd.enter(ONE, 3, false).is_none(), "nobody goes who waits for us");
    }

    /// If this fails, who reads the log of crowds does not learn whose connections they are.
    #[test]
    fn origins_are_worded() {
        assert_eq!([Origin::Machine, ONE, Origin::User(1000)].map(|origin| origin.to_string()), ["this machine", "10.0.0.1", "user 1000"]);
    }

    /// If this fails, one machine that opens connections and leaves them idle locks out all others where nobody has to prove who they are; or whoever
    /// has few connections loses them to who has many.
    #[test]
    fn whoever_has_most_gives_one_up() {
        let crowd = Crowd::new("connections have no volume");
        let come_in = |origin| {
            let place = crowd.enter(origin, 9, false).expect("there is room");
            place.comes_in();
            place
        };
        let [first, second, third] = [come_in(OTHER), come_in(OTHER), come_in(OTHER)];
        first.heard();
        assert_eq!(crowd.waiting().connections, 0);
        assert!(crowd.enter(OTHER, 9, true).is_none(), "it has most itself");
        let own = crowd.enter(ONE, 9, true).expect("the other has more");
        own.comes_in();
        assert_eq!([&first, &second, &third, &own].map(Place::is_lost), [false, true, false, false], "who was silent longest");
        assert!(crowd.enter(ONE, 9, true).is_none(), "no more than the other");
    }
}
