//! Targets, their units, and who is connected: what connections share, and touch seldom.

use crate::access::Access;
use crate::chap::Challenges;
use crate::gate::{Token, gate};
use crate::login::{self, PORTAL_GROUP, Presence, Request};
use crate::scsi::disk::{Disk, NEXUS_LOSS, POWER_ON, TaskOwner};
use crowd::{Crowd, Waiting};
use exec::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::mpsc::UnboundedSender;

/// Number of units of a target, at most: numbers of 14 bits.
const UNITS_MAX: u16 = 1 << 14;

/// Words of others to the owner of a connection.
pub(crate) enum Mail {
    /// Abort the tasks of a unit.
    Abort(Arc<Disk>, Token),
    /// End the session: another one took its place, or the target is gone.
    End(Token),
}

/// One session in full feature phase.
pub struct Session {
    /// Number that no other session of this process has.
    pub(crate) id: u64,
    /// Name of the initiator.
    pub initiator: String,
    /// Initiator's part of the identifier, 48 bits.
    pub isid: u64,
    /// Transport identifier (`iqn…,i,0x…`).
    pub(crate) transport: Arc<str>,
    pub(crate) is_read_only: bool,
    /// First unit attention: whether the session is new or took another one's place.
    pub(crate) attention: (u8, u8),
    pub(crate) target: Option<Arc<Target>>,
    mail: UnboundedSender<Mail>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("initiator", &self.initiator).field("isid", &self.isid).finish_non_exhaustive()
    }
}

impl Session {
    /// Target session identifying handle, never 0.
    pub(crate) fn handle(&self) -> u16 {
        (self.id % 0xFFFF) as u16 + 1
    }

    /// Ends the session; `token` is dropped when it has ended.
    fn end(&self, token: Token) {
        // Nobody receives mail of a session that has ended.
        let _ = self.mail.send(Mail::End(token));
    }
}

impl TaskOwner for Session {
    fn abort(&self, disk: &Arc<Disk>, token: Token) {
        let _ = self.mail.send(Mail::Abort(disk.clone(), token));
    }
}

/// Result of an attempt to begin a session.
enum Beginning {
    Session(Arc<Session>),
    /// Another one has its place, and was asked to end.
    Occupied,
    /// The right to it has gone meanwhile.
    NoRight,
}

/// Numbers and disks of a target at one moment.
pub(crate) type Disks = Arc<BTreeMap<u16, Arc<Disk>>>;

/// A target: a name, and units under numbers.
pub struct Target {
    pub(crate) name: Arc<str>,
    disks: RwLock<Disks>,
    generation: AtomicU64,
    sessions: Mutex<Vec<Arc<Session>>>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Target {
    /// Name of the target.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shows `disk` under `number`; false when the number is taken, or no number of a unit (14 bits).
    pub fn attach(&self, number: u16, disk: Arc<Disk>) -> bool {
        let mut disks = self.disks.write();
        if number >= UNITS_MAX || disks.contains_key(&number) {
            return false;
        }
        let mut next = BTreeMap::clone(&disks);
        next.insert(number, disk);
        *disks = Arc::new(next);
        self.generation.fetch_add(1, Ordering::Release);
        true
    }

    /// Takes the unit `number` away. Commands that are under way end as the unit answers them.
    pub fn detach(&self, number: u16) -> Option<Arc<Disk>> {
        let mut disks = self.disks.write();
        let mut next = BTreeMap::clone(&disks);
        let disk = next.remove(&number)?;
        *disks = Arc::new(next);
        self.generation.fetch_add(1, Ordering::Release);
        Some(disk)
    }

    /// Counter of changes of the units.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn disks(&self) -> Disks {
        self.disks.read().clone()
    }

    /// Ends the sessions of an initiator; returns when none of them touches data any more.
    pub async fn end_sessions_of(&self, initiator: &str) {
        let (token, gate) = gate();
        self.sessions().iter().filter(|session| session.initiator == initiator).for_each(|session| session.end(token.clone()));
        drop(token);
        gate.opened().await;
    }

    /// Sessions at this moment.
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().clone()
    }
}

/// All that connections of a server share.
pub struct Targets {
    targets: RwLock<BTreeMap<String, Arc<Target>>>,
    access: Arc<dyn Access>,
    challenges: Challenges,
    next_session: AtomicU64,
    is_coming: AtomicBool,
    crowd: Arc<Crowd>,
}

impl std::fmt::Debug for Targets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Targets").field("names", &self.targets.read().keys()).finish_non_exhaustive()
    }
}

/// Fills `bytes` from the kernel's generator.
fn random(bytes: &mut [u8]) {
    let mut done = 0;
    while done < bytes.len() {
        // The generator can be interrupted, and nothing else happens to it once the machine has started.
        done += rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
}

impl Targets {
    /// No targets yet; `access` says who may use those that come.
    pub fn new(access: Arc<dyn Access>) -> Arc<Targets> {
        Arc::new(Targets {
            targets: RwLock::default(),
            access,
            challenges: Challenges::default(),
            next_session: AtomicU64::new(1),
            is_coming: AtomicBool::new(false),
            crowd: Crowd::new("iSCSI connections do not log in"),
        })
    }

    /// Adds a target; None when the name is taken or is none (223 bytes of `iqn.`, `eui.` or `naa.` names, RFC 7143 section 4.2.7).
    pub fn add(&self, name: &str) -> Option<Arc<Target>> {
        let is_name = ["iqn.", "eui.", "naa."].iter().any(|prefix| name.starts_with(prefix)) && name.len() <= 223;
        let mut targets = self.targets.write();
        if !is_name || targets.contains_key(name) {
            return None;
        }
        let target =
            Arc::new(Target { name: name.into(), disks: RwLock::default(), generation: AtomicU64::new(1), sessions: Mutex::default() });
        targets.insert(name.into(), target.clone());
        Some(target)
    }

    /// Removes a target and ends its sessions; returns when none of them touches data any more.
    pub async fn remove(&self, name: &str) -> Option<Arc<Target>> {
        let target = self.targets.write().remove(name)?;
        let (token, gate) = gate();
        target.sessions().iter().for_each(|session| session.end(token.clone()));
        drop(token);
        gate.opened().await;
        Some(target)
    }

    /// The target of this name.
    pub fn get(&self, name: &str) -> Option<Arc<Target>> {
        self.targets.read().get(name).cloned()
    }

    /// Surroundings of the login of a connection from `peer`.
    pub(crate) fn around_login(self: &Arc<Targets>, peer: IpAddr) -> login::Surroundings {
        let targets = self.clone();
        login::Surroundings {
            access: self.access.clone(),
            look: Box::new(move |initiator: &str, target: Option<&str>| targets.presence(initiator, peer, target)),
            random,
            peer,
            challenges: self.challenges.clone(),
        }
    }

    /// Connections that have not logged in.
    pub fn waiting(&self) -> Waiting {
        self.crowd.waiting()
    }

    pub(crate) fn crowd(&self) -> &Arc<Crowd> {
        &self.crowd
    }

    /// Says whether targets are still coming: until they are there, who wants to log in is told to try again later. None are, where nobody says
    /// anything.
    pub fn set_coming(&self, is_coming: bool) {
        self.is_coming.store(is_coming, Ordering::Release);
    }

    /// Presence of a target, or of a list of targets: a part of them is better than none.
    fn presence(&self, initiator: &str, peer: IpAddr, target: Option<&str>) -> Presence {
        // Before the targets: the last one is there when this becomes false.
        let is_coming = self.is_coming.load(Ordering::Acquire);
        let targets = self.targets.read();
        let is_there = match target {
            Some(name) => targets.contains_key(name),
            None => !is_coming || targets.keys().any(|name| self.access.target(initiator, peer, name).is_some()),
        };
        match (is_there, is_coming) {
            (true, _) => Presence::There,
            (false, true) => Presence::Coming,
            (false, false) => Presence::Nowhere,
        }
    }

    /// Names that `initiator` may see, each with the address that it came to.
    pub(crate) fn visible(&self, initiator: &str, peer: IpAddr, local: SocketAddr) -> Vec<(String, String)> {
        let names: Vec<String> = self.targets.read().keys().cloned().collect();
        let allowed = names.into_iter().filter(|name| self.access.target(initiator, peer, name).is_some());
        allowed.map(|name| (name, format!("{local},{PORTAL_GROUP}"))).collect()
    }

    /// Begins a session: ends the one whose place it takes first, and waits until that touches no data any more (RFC 7143, section 6.3.5).
    /// None when the target has gone meanwhile, or the right to it.
    pub(crate) async fn admit(&self, request: &Request, mail: UnboundedSender<Mail>) -> Option<Arc<Session>> {
        let target = match &request.target {
            Some(name) => Some(self.get(name)?),
            None => None,
        };
        let mut attention = POWER_ON;
        loop {
            let (token, gate) = gate();
            match self.begin(request, target.clone(), &mail, &mut attention, &token) {
                Beginning::Session(session) => return Some(session),
                Beginning::NoRight => return None,
                Beginning::Occupied => {}
            }
            drop(token);
            gate.opened().await;
        }
    }

    /// True while the initiator has the access that its login began with.
    fn is_granted(&self, request: &Request) -> bool {
        let now = match &request.target {
            Some(name) => self.access.target(&request.initiator, request.peer, name),
            None => self.access.discovery(&request.initiator, request.peer),
        };
        now.as_ref() == Some(&request.grant)
    }

    /// Begins a session if its place is free; else asks who has it to end.
    fn begin(
        &self,
        request: &Request,
        target: Option<Arc<Target>>,
        mail: &UnboundedSender<Mail>,
        attention: &mut (u8, u8),
        token: &Token,
    ) -> Beginning {
        let mut sessions = target.as_ref().map(|target| target.sessions.lock());
        // Under the lock: whoever takes a right away ends the sessions afterwards, this one among them, or it is noticed here.
        if !self.is_granted(request) {
            return Beginning::NoRight;
        }
        let same = |session: &&Arc<Session>| session.isid == request.isid && session.initiator == request.initiator;
        if let Some(old) = sessions.as_ref().and_then(|sessions| sessions.iter().find(same)) {
            *attention = NEXUS_LOSS;
            old.end(token.clone());
            return Beginning::Occupied;
        }
        let session = Arc::new(Session {
            id: self.next_session.fetch_add(1, Ordering::Relaxed),
            initiator: request.initiator.clone(),
            isid: request.isid,
            transport: format!("{},i,0x{:012x}", request.initiator, request.isid).into(),
            is_read_only: request.grant.is_read_only,
            attention: *attention,
            target: target.clone(),
            mail: mail.clone(),
        });
        if let Some(sessions) = &mut sessions {
            sessions.push(session.clone());
        }
        Beginning::Session(session)
    }

    /// Forgets a session that has ended.
    pub(crate) fn forget(session: &Arc<Session>) {
        if let Some(target) = &session.target {
            target.sessions.lock().retain(|one| !Arc::ptr_eq(one, session));
        }
    }
}

/// Number of a unit out of the eight bytes of a PDU: peripheral or flat addressing (SAM-5), nothing behind it.
pub(crate) fn number_of(lun: u64) -> Option<u16> {
    let (first, rest) = ((lun >> 48) as u16, lun << 16);
    match first >> 14 {
        0 if first >> 8 == 0 && rest == 0 => Some(first),
        1 if rest == 0 => Some(first & 0x3FFF),
        _ => None,
    }
}

/// The eight bytes of a number.
pub(crate) fn lun_of(number: u16) -> u64 {
    u64::from(if number < 256 { number } else { 0x4000 | number }) << 48
}
