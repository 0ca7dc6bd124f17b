//! Places of users at a door that is open to everybody: each user has a share of them, so that none shuts the others out, nor itself by being silent.
//!
//! A connection that has not said what it wants gives its place up for the next one: of the same user, once that has its share, or of anybody, once all
//! places are taken. One whose request is worked on keeps it; who finds no place then is told so. Root is not counted: whoever looks after the machine
//! always comes in.

use crowd::{Crowd, Origin};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of connections at a time, of all and of one user: a quarter.
const CONNECTIONS_MAX: usize = 64;
const CONNECTIONS_OF_A_USER_MAX: usize = CONNECTIONS_MAX / 4;
/// Number of connections besides, of all and of one user, that are on their way out: they gave their place up, or are told that they get none.
const LEAVING_MAX: usize = 64;
const LEAVING_OF_A_USER_MAX: usize = 8;
/// User that is not counted.
const ROOT: u32 = 0;

/// Reason why somebody has no place: the user's share is taken.
const OF_A_USER: &str = "too many connections of this user";
/// Reason why somebody has no place: all are taken.
const OF_ALL: &str = "too many connections of all users";
/// Reason why somebody has no place any more.
pub const LOST: &str = "too many connections of this user, or of all, are open";

/// Number of places that are taken, by user; and how many there are, of all and of one user.
pub struct Guests {
    taken: Mutex<BTreeMap<u32, usize>>,
    most: (usize, usize),
}

/// Place of a user among them.
pub struct Place(Arc<Guests>, u32);

impl Guests {
    /// Nobody yet, of so many of all and of one user.
    pub fn new(most: (usize, usize)) -> Arc<Guests> {
        Arc::new(Guests { taken: Mutex::default(), most })
    }

    /// Place for a user; None when there is none left.
    pub fn enter(self: &Arc<Self>, uid: u32) -> Option<Place> {
        let mut places = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = counts(&places, uid);
        if all >= self.most.0 || own >= self.most.1 {
            return None;
        }
        places.insert(uid, own + 1);
        Some(Place(self.clone(), uid))
    }
}

/// Number of places that are taken by all, and by a user.
fn counts(places: &BTreeMap<u32, usize>, uid: u32) -> (usize, usize) {
    (places.values().sum(), places.get(&uid).copied().unwrap_or(0))
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = places.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.1);
            }
        }
    }
}

/// Connections at the door.
pub struct Hall {
    crowd: Arc<Crowd>,
    guests: Arc<Guests>,
}

/// Standing of a connection.
pub enum Standing {
    /// Connection that is served.
    Served(Seat),
    /// Connection that is only told the reason why it is not.
    Refused(Place, &'static str),
}

/// Place of a connection that is served; root has none, and needs none. That in the crowd is given up for others, the other one when the connection has
/// ended.
pub struct Seat(Option<(crowd::Place, Place)>);

impl Hall {
    /// Nobody yet.
    pub fn new() -> Hall {
        let most = (CONNECTIONS_MAX + LEAVING_MAX, CONNECTIONS_OF_A_USER_MAX + LEAVING_OF_A_USER_MAX);
        Hall { crowd: Crowd::new("connections of users ask nothing"), guests: Guests::new(most) }
    }

    /// Standing of one more connection of a user; None when it can only be closed.
    pub fn enter(&self, uid: u32) -> Option<Standing> {
        if uid == ROOT {
            return Some(Standing::Served(Seat(None)));
        }
        let origin = Origin::User(uid);
        let Some(place) = self.guests.enter(uid) else {
            self.crowd.refuse(origin);
            return None;
        };
        let (all, own) = counts(&self.guests.taken.lock().unwrap_or_else(PoisonError::into_inner), uid);
        Some(match self.crowd.enter(origin, CONNECTIONS_OF_A_USER_MAX, all > CONNECTIONS_MAX) {
            Some(standing) => Standing::Served(Seat(Some((standing, place)))),
            None if own > CONNECTIONS_OF_A_USER_MAX => Standing::Refused(place, OF_A_USER),
            None => Standing::Refused(place, OF_ALL),
        })
    }
}

impl Seat {
    /// Notes that something was heard.
    pub fn heard(&self) {
        if let Some((standing, _)) = &self.0 {
            standing.heard();
        }
    }

    /// Notes that a whole request was heard, and keeps the place from now on; false when it is another one's already.
    pub fn has_asked(&self) -> bool {
        let Some((standing, _)) = &self.0 else { return true };
        standing.admitting();
        !standing.is_lost()
    }

    /// Waits until the place is another one's.
    pub async fn lost(&self) {
        match &self.0 {
            Some((standing, _)) => standing.leave().notified().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u32 = 1000;

    fn served(hall: &Hall, uid: u32) -> Seat {
        match hall.enter(uid) {
            Some(Standing::Served(seat)) => seat,
            Some(Standing::Refused(_, why)) => panic!("{why}"),
            None => panic!("closed"),
        }
    }

    fn refused(hall: &Hall, uid: u32) -> &'static str {
        match hall.enter(uid) {
            Some(Standing::Served(_)) => "served",
            Some(Standing::Refused(_, why)) => why,
            None => "closed",
        }
    }

    fn is_lost(seat: &Seat) -> bool {
        seat.0.as_ref().is_some_and(|(standing, _)| standing.is_lost())
    }

    /// If this fails, one user keeps all others from having anything done.
    #[test]
    fn one_user_cannot_take_every_place() {
        let guests = Guests::new((CONNECTIONS_MAX, CONNECTIONS_OF_A_USER_MAX));
        let mut places: Vec<Place> = (0..CONNECTIONS_OF_A_USER_MAX).filter_map(|_| guests.enter(ANN)).collect();
        assert_eq!(places.len(), CONNECTIONS_OF_A_USER_MAX);
        assert!(guests.enter(ANN).is_none());
        places.extend((ANN + 1..2000).filter_map(|uid| guests.enter(uid)));
        assert_eq!(places.len(), CONNECTIONS_MAX);
        places.clear();
        assert!(guests.enter(ANN).is_some());
        assert!(guests.taken.lock().expect("no panic").is_empty(), "who left is forgotten");
    }

    /// If this fails, users who open connections and say nothing shut out others, or themselves.
    #[test]
    fn silence_keeps_nobody_out() {
        let hall = Hall::new();
        let silent: Vec<Seat> = (0..CONNECTIONS_OF_A_USER_MAX).map(|_| served(&hall, ANN)).collect();
        let own = served(&hall, ANN);
        assert!(is_lost(&silent[0]) && !is_lost(&silent[1]), "who was silent longest makes room");
        assert!(!silent[0].has_asked(), "too late");
        assert!(own.has_asked());
        // Several of them take all places.
        let others: Vec<Seat> =
            (1..4).flat_map(|user| (0..CONNECTIONS_OF_A_USER_MAX).map(move |_| ANN + user)).map(|uid| served(&hall, uid)).collect();
        let last = served(&hall, ANN + 9);
        assert!(last.has_asked() && !is_lost(&own));
        assert!(is_lost(&silent[1]) || others.iter().any(is_lost), "one of theirs makes room");
        assert!(served(&hall, ROOT).has_asked(), "root is not counted");
    }

    /// If this fails, who has too many requests under way is cut off without a word, or cuts off those that are worked on.
    #[test]
    fn whose_share_is_at_work_is_told_so() {
        let hall = Hall::new();
        let at_work = |uid| {
            let seat = served(&hall, uid);
            assert!(seat.has_asked());
            seat
        };
        let own: Vec<Seat> = (0..CONNECTIONS_OF_A_USER_MAX).map(|_| at_work(ANN)).collect();
        assert_eq!(refused(&hall, ANN), OF_A_USER);
        let told: Vec<Option<Standing>> = (0..LEAVING_OF_A_USER_MAX).map(|_| hall.enter(ANN)).collect();
        assert_eq!(refused(&hall, ANN), "closed", "those that are told are bounded too");
        drop(told);
        let others: Vec<Seat> = (1..4).flat_map(|user| (0..CONNECTIONS_OF_A_USER_MAX).map(move |_| ANN + user)).map(at_work).collect();
        assert_eq!(refused(&hall, ANN + 9), OF_ALL);
        assert!(served(&hall, ROOT).has_asked());
        assert!(!own.iter().chain(&others).any(is_lost), "what is worked on goes on");
        drop(own);
        assert!(at_work(ANN + 9).has_asked());
    }
}
