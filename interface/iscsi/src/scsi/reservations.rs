//! Reservations of a unit as a state and what changes it (SPC-4; RESERVE(6) of SPC-2). No I/O, no locks.

use crate::scsi::table::Class;
use crate::unit::{Kept, Registration};

/// Types of persistent reservations (SPC-4).
pub(crate) mod kind {
    pub(crate) const WRITE_EXCLUSIVE: u8 = 1;
    pub(crate) const EXCLUSIVE_ACCESS: u8 = 3;
    pub(crate) const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;
    pub(crate) const WRITE_EXCLUSIVE_ALL: u8 = 7;
    pub(crate) const EXCLUSIVE_ACCESS_ALL: u8 = 8;

    pub(crate) fn is_known(kind: u8) -> bool {
        matches!(kind, WRITE_EXCLUSIVE | EXCLUSIVE_ACCESS) || is_of_registrants(kind)
    }

    /// True when every registrant is a holder.
    pub(crate) fn is_of_all(kind: u8) -> bool {
        matches!(kind, WRITE_EXCLUSIVE_ALL | EXCLUSIVE_ACCESS_ALL)
    }

    /// True when registrants may do what the holder may; type 6 is exclusive access of registrants only.
    pub(crate) fn is_of_registrants(kind: u8) -> bool {
        (WRITE_EXCLUSIVE_REGISTRANTS..=EXCLUSIVE_ACCESS_ALL).contains(&kind)
    }

    pub(crate) fn lets_read(kind: u8) -> bool {
        matches!(kind, WRITE_EXCLUSIVE | WRITE_EXCLUSIVE_REGISTRANTS | WRITE_EXCLUSIVE_ALL)
    }
}

/// Unit attentions of reservations: additional sense codes and qualifiers.
pub(crate) const PREEMPTED: (u8, u8) = (0x2A, 0x03);
pub(crate) const RELEASED: (u8, u8) = (0x2A, 0x04);
pub(crate) const REGISTRATIONS_PREEMPTED: (u8, u8) = (0x2A, 0x05);

/// Refusal of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Conflict,
    InvalidRelease,
    InvalidParameter,
}

/// A unit attention for an initiator port.
pub(crate) type Told = (String, (u8, u8));

/// Consequences of a change for others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) told: Vec<Told>,
    /// Initiator ports that lost their registrations to somebody else.
    pub(crate) preempted: Vec<String>,
}

/// Reservations of one unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    pub(crate) kept: Kept,
    /// True when `kept` is to survive a loss of power.
    pub(crate) is_kept: bool,
    /// Holder of RESERVE(6).
    pub(crate) reserved: Option<String>,
}

impl Reservations {
    pub(crate) fn key(&self, who: &str) -> Option<u64> {
        self.kept.registrations.iter().find(|one| one.transport == who).map(|one| one.key)
    }

    /// True when nothing is reserved or registered: nobody's commands conflict.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.registrations.is_empty() && self.reserved.is_none()
    }

    fn is_holder(&self, who: &str) -> bool {
        match &self.kept.reservation {
            Some((_, kind)) if kind::is_of_all(*kind) => self.key(who).is_some(),
            Some((holder, _)) => holder == who,
            None => false,
        }
    }

    /// True when a command of `class` may not be carried out for `who`.
    pub(crate) fn forbids(&self, who: &str, class: Class) -> bool {
        if class == Class::Identify {
            return false;
        }
        if self.reserved.as_ref().is_some_and(|holder| holder != who) {
            return true;
        }
        let Some((_, kind)) = self.kept.reservation else { return false };
        if self.is_holder(who) || (kind::is_of_registrants(kind) && self.key(who).is_some()) {
            return false;
        }
        match class {
            Class::Identify | Class::Harmless => false,
            Class::Read => !kind::lets_read(kind),
            Class::Write => true,
            Class::Other => self.key(who).is_none(),
        }
    }

    fn changed(&mut self) {
        self.kept.generation = self.kept.generation.wrapping_add(1);
    }

    fn others(&self, who: &str) -> impl Iterator<Item = &Registration> {
        self.kept.registrations.iter().filter(move |one| one.transport != who)
    }

    fn tell_others(&self, who: &str, what: (u8, u8), effects: &mut Effects) {
        effects.told.extend(self.others(who).map(|one| (one.transport.clone(), what)));
    }

    /// Checks that `who` is registered with `key`.
    fn check(&self, who: &str, key: u64) -> Result<(), Refused> {
        if self.key(who) == Some(key) { Ok(()) } else { Err(Refused::Conflict) }
    }

    /// REGISTER, and with `ignores` REGISTER AND IGNORE EXISTING KEY.
    pub(crate) fn register(&mut self, who: &str, key: u64, new: u64, ignores: bool) -> Result<Effects, Refused> {
        let own = self.key(who);
        let mut effects = Effects::default();
        if !ignores && own.unwrap_or_default() != key {
            return Err(Refused::Conflict);
        }
        match (own, new) {
            (None, 0) => return Ok(effects),
            (None, _) => self.kept.registrations.push(Registration { transport: who.into(), key: new }),
            (Some(_), 0) => self.unregister(who, &mut effects),
            (Some(_), _) => {
                for one in self.kept.registrations.iter_mut().filter(|one| one.transport == who) {
                    one.key = new;
                }
            }
        }
        self.changed();
        Ok(effects)
    }

    fn unregister(&mut self, who: &str, effects: &mut Effects) {
        self.kept.registrations.retain(|one| one.transport != who);
        let Some((holder, kind)) = self.kept.reservation.clone() else { return };
        if kind::is_of_all(kind) {
            match self.kept.registrations.first() {
                Some(first) => self.kept.reservation = Some((first.transport.clone(), kind)),
                None => self.kept.reservation = None,
            }
        } else if holder == who {
            self.kept.reservation = None;
            if kind::is_of_registrants(kind) {
                self.tell_others(who, RELEASED, effects);
            }
        }
    }

    /// RESERVE.
    pub(crate) fn reserve(&mut self, who: &str, key: u64, kind: u8) -> Result<Effects, Refused> {
        self.check(who, key)?;
        match &self.kept.reservation {
            Some((_, held)) if self.is_holder(who) && *held == kind => {}
            Some(_) => return Err(Refused::Conflict),
            None => self.kept.reservation = Some((who.into(), kind)),
        }
        Ok(Effects::default())
    }

    /// RELEASE.
    pub(crate) fn release(&mut self, who: &str, key: u64, kind: u8) -> Result<Effects, Refused> {
        self.check(who, key)?;
        let mut effects = Effects::default();
        let Some((_, held)) = self.kept.reservation else { return Ok(effects) };
        if !self.is_holder(who) {
            return Ok(effects);
        }
        if held != kind {
            return Err(Refused::InvalidRelease);
        }
        self.kept.reservation = None;
        if kind::is_of_registrants(held) {
            self.tell_others(who, RELEASED, &mut effects);
        }
        Ok(effects)
    }

    /// CLEAR.
    pub(crate) fn clear(&mut self, who: &str, key: u64) -> Result<Effects, Refused> {
        self.check(who, key)?;
        let mut effects = Effects::default();
        self.tell_others(who, PREEMPTED, &mut effects);
        self.kept.registrations.clear();
        self.kept.reservation = None;
        self.changed();
        Ok(effects)
    }

    /// PREEMPT, and the first half of PREEMPT AND ABORT.
    pub(crate) fn preempt(&mut self, who: &str, key: u64, victim: u64, kind: u8) -> Result<Effects, Refused> {
        self.check(who, key)?;
        let held = self.kept.reservation.clone();
        let of_all = held.as_ref().is_some_and(|(_, kind)| kind::is_of_all(*kind));
        if victim == 0 && !of_all {
            return Err(Refused::InvalidParameter);
        }
        let takes = match &held {
            Some(_) if of_all => victim == 0,
            Some((holder, _)) => self.key(holder) == Some(victim),
            None => false,
        };
        let is_hit = |one: &Registration| one.transport != who && (one.key == victim || (of_all && victim == 0));
        let preempted: Vec<String> = self.kept.registrations.iter().filter(|one| is_hit(one)).map(|one| one.transport.clone()).collect();
        let told = preempted.iter().map(|one| (one.clone(), REGISTRATIONS_PREEMPTED)).collect();
        let mut effects = Effects { told, preempted };
        let hits_itself = !takes && key == victim;
        if effects.preempted.is_empty() && !takes && !hits_itself {
            return Err(Refused::Conflict);
        }
        self.kept.registrations.retain(|one| !is_hit(one));
        if hits_itself {
            self.unregister(who, &mut effects);
        }
        if takes {
            self.kept.reservation = Some((who.into(), kind));
            if held.is_some_and(|(_, before)| before != kind && kind::is_of_registrants(before)) {
                self.tell_others(who, RELEASED, &mut effects);
            }
        } else if of_all {
            let first = self.kept.registrations.first().map(|one| one.transport.clone());
            self.kept.reservation = self.kept.reservation.take().and_then(|(_, kind)| Some((first?, kind)));
        }
        self.changed();
        Ok(effects)
    }

    /// Takes everything from an initiator, through whatever port it has it; gives what others are told.
    pub(crate) fn strip(&mut self, initiator: &str) -> Vec<Told> {
        let is_own = |transport: &str| transport.rsplit_once(",i,").is_some_and(|(name, _)| name == initiator);
        let ports: Vec<String> =
            self.kept.registrations.iter().filter(|one| is_own(&one.transport)).map(|one| one.transport.clone()).collect();
        let mut effects = Effects::default();
        for port in &ports {
            self.unregister(port, &mut effects);
            self.changed();
        }
        if self.reserved.as_deref().is_some_and(is_own) {
            self.reserved = None;
        }
        effects.told
    }

    /// Takes over what is kept in place of what was; gives what those who lost something are told.
    pub(crate) fn replace(&mut self, kept: Option<Kept>) -> Vec<Told> {
        self.is_kept = kept.is_some();
        let before = std::mem::replace(&mut self.kept, kept.unwrap_or_default());
        let lost = before.registrations.into_iter().filter(|one| self.key(&one.transport).is_none());
        lost.map(|one| (one.transport, PREEMPTED)).collect()
    }

    /// RESERVE(6).
    pub(crate) fn reserve_whole(&mut self, who: &str) -> Result<(), Refused> {
        if !self.kept.registrations.is_empty() || self.reserved.as_ref().is_some_and(|holder| holder != who) {
            return Err(Refused::Conflict);
        }
        self.reserved = Some(who.into());
        Ok(())
    }

    /// RELEASE(6), and what the end of a session does.
    pub(crate) fn release_whole(&mut self, who: &str) {
        if self.reserved.as_deref() == Some(who) {
            self.reserved = None;
        }
    }
}

impl Kept {
    /// Takes the registrations and the reservation from an initiator, through whatever port it has them. True when it had any.
    pub fn strip(&mut self, initiator: &str) -> bool {
        let before = self.registrations.len();
        let mut state = Reservations { kept: std::mem::take(self), ..Reservations::default() };
        // Nobody is connected who could be told.
        state.strip(initiator);
        *self = state.kept;
        self.registrations.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registered() -> Reservations {
        let mut state = Reservations::default();
        for (who, key) in [("a", 1), ("b", 2), ("c", 2)] {
            state.register(who, 0, key, false).expect("nobody is registered yet");
        }
        state
    }

    /// If this fails, a node of a cluster writes where another one has the right to, or cannot where it has.
    #[test]
    fn each_type_lets_in_whom_it_should() {
        // Type; may write: holder, registrant, stranger; may read: the same.
        for (kind, write, read) in [
            (1, [true, false, false], [true, true, true]),
            (3, [true, false, false], [true, false, false]),
            (5, [true, true, false], [true, true, true]),
            (6, [true, true, false], [true, true, false]),
            (7, [true, true, false], [true, true, true]),
            (8, [true, true, false], [true, true, false]),
        ] {
            let mut state = registered();
            state.reserve("a", 1, kind).expect("nobody holds it");
            for (who, index) in [("a", 0), ("b", 1), ("x", 2)] {
                assert_eq!(!state.forbids(who, Class::Write), write[index], "type {kind}, {who} writes");
                assert_eq!(!state.forbids(who, Class::Read), read[index], "type {kind}, {who} reads");
                assert!(!state.forbids(who, Class::Harmless) && !state.forbids(who, Class::Identify));
            }
        }
    }

    /// The attention of a release goes to the other registrants: who released learns nothing that it does not know.
    #[test]
    fn a_holder_that_unregisters_releases_and_only_the_others_are_told() {
        for (kind, told) in [(1, 0), (3, 0), (5, 2), (6, 2)] {
            let mut state = registered();
            state.reserve("a", 1, kind).expect("nobody holds it");
            let effects = state.register("a", 1, 0, false).expect("the key is right");
            assert_eq!(effects.told.len(), told, "type {kind}");
            assert!(effects.told.iter().all(|(who, what)| who != "a" && *what == RELEASED) && state.kept.reservation.is_none());
        }
        let mut state = registered();
        state.reserve("a", 1, kind::WRITE_EXCLUSIVE_ALL).expect("nobody holds it");
        state.register("a", 1, 0, false).expect("the key is right");
        assert!(state.kept.reservation.is_some(), "the others hold it, too");
    }

    /// If this fails, who was locked out by an initiator that has no right any more stays locked out, or others lose what is theirs.
    #[test]
    fn what_an_initiator_has_goes_with_it_and_that_of_others_stays() {
        for (kind, told) in [(1, 0), (5, 1), (7, 0)] {
            let mut state = Reservations::default();
            for (who, key) in [("iqn.a,i,0x1", 1), ("iqn.a,i,0x2", 2), ("iqn.ab,i,0x1", 3)] {
                state.register(who, 0, key, false).expect("nobody is registered yet");
            }
            state.reserve("iqn.a,i,0x2", 2, kind).expect("nobody holds it");
            let mut kept = state.kept.clone();
            let to_other = state.strip("iqn.a").iter().filter(|(who, what)| who == "iqn.ab,i,0x1" && *what == RELEASED).count();
            assert_eq!(to_other, told, "type {kind}");
            assert_eq!((state.kept.registrations.len(), state.key("iqn.ab,i,0x1")), (1, Some(3)));
            assert!(!state.forbids("iqn.ab,i,0x1", Class::Write));
            assert!(kept.strip("iqn.a") && !kept.strip("iqn.a"), "once");
            assert_eq!(kept, state.kept);
        }
        let mut state = Reservations::default();
        state.reserve_whole("iqn.a,i,0x1").expect("nobody holds it");
        state.strip("iqn.b");
        assert!(state.forbids("x", Class::Read));
        state.strip("iqn.a");
        assert!(!state.forbids("x", Class::Read));
    }

    #[test]
    fn preempting_takes_the_reservation_and_the_registrations() {
        let mut state = registered();
        state.reserve("b", 2, kind::WRITE_EXCLUSIVE).expect("nobody holds it");
        let effects = state.preempt("a", 1, 2, kind::EXCLUSIVE_ACCESS).expect("the key is right");
        assert_eq!(effects.preempted, ["b", "c"]);
        assert_eq!(state.kept.reservation, Some(("a".into(), kind::EXCLUSIVE_ACCESS)));
        assert_eq!((state.key("b"), state.key("a")), (None, Some(1)));
        assert_eq!(state.preempt("a", 1, 9, 1), Err(Refused::Conflict));
        assert_eq!(state.preempt("a", 1, 0, 1), Err(Refused::InvalidParameter));
        assert_eq!(state.preempt("x", 1, 1, 1), Err(Refused::Conflict));
    }

    #[test]
    fn keys_that_are_wrong_conflict_and_change_nothing() {
        let mut state = registered();
        let before = state.clone();
        for refused in [
            state.register("a", 7, 8, false),
            state.reserve("a", 7, 1),
            state.release("a", 7, 1),
            state.clear("a", 7),
            state.preempt("a", 7, 2, 1),
            state.reserve("x", 0, 1),
        ] {
            assert_eq!(refused, Err(Refused::Conflict));
        }
        assert_eq!(state, before);
        assert_eq!(state.reserve_whole("a"), Err(Refused::Conflict), "the old way is closed while anybody is registered");
    }
}
