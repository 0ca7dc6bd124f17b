//! The login phase (RFC 7143, sections 6 and 11.12): stages, text over several PDUs, who may come in, and status codes.

use crate::access::{Access, Grant};
use crate::bytes::put;
use crate::chap::{Challenges, Exchange, Step};
use crate::keys::{Keys, TEXT_BYTES_MAX};
use crate::negotiate::Parameters;
use crate::pdu::{Body, FINAL, Outgoing, Pdu, opcode};
use std::net::IpAddr;
use std::sync::Arc;

/// Tag of the one portal group that there is.
pub(crate) const PORTAL_GROUP: u16 = 1;
/// Bit of byte 1: more text follows.
pub(crate) const CONTINUE: u8 = 0x40;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Longest name of an initiator or a target, in bytes (RFC 7143, section 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

/// Status classes and details of login responses (section 11.13.5).
pub(crate) mod status {
    pub(crate) const INITIATOR_ERROR: u16 = 0x0200;
    pub(crate) const AUTHENTICATION: u16 = 0x0201;
    pub(crate) const NOT_FOUND: u16 = 0x0203;
    pub(crate) const VERSION: u16 = 0x0205;
    pub(crate) const MISSING_PARAMETER: u16 = 0x0207;
    pub(crate) const SESSION_TYPE: u16 = 0x0209;
    pub(crate) const NO_SESSION: u16 = 0x020A;
    pub(crate) const INVALID_REQUEST: u16 = 0x020B;
    pub(crate) const UNAVAILABLE: u16 = 0x0301;
    pub(crate) const OUT_OF_RESOURCES: u16 = 0x0302;
}

/// Presence of what an initiator with a right wants to log in to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There is such a target, or a list of targets.
    There,
    /// Targets are still coming; it may be among them.
    Coming,
    /// All targets are there, and this is none of them.
    Nowhere,
}

/// Answer to the question of an initiator, by its name, for a target, or for the list of its targets.
pub type Look = Box<dyn Fn(&str, Option<&str>) -> Presence + Send>;

/// Surroundings of a login.
pub struct Surroundings {
    /// Rights of initiators.
    pub access: Arc<dyn Access>,
    /// Presence of targets.
    pub look: Look,
    /// Fills a slice with bytes that nobody can foretell.
    pub random: fn(&mut [u8]),
    /// Address of the peer.
    pub peer: IpAddr,
    /// Challenges that wait for their answers, of all connections.
    pub challenges: Challenges,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// A session that is to begin: everything was agreed upon, the last response is not sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name of the initiator.
    pub initiator: String,
    /// Initiator's part of the session's identifier, 48 bits.
    pub isid: u64,
    /// Name of the target; None for a discovery session.
    pub target: Option<String>,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Access that it had when its login began: the session begins only if it still has just that.
    pub grant: Grant,
    /// Parameters that were negotiated.
    pub parameters: Parameters,
    /// Number of the first command.
    pub first_command: u32,
    /// Identifier of the connection.
    pub connection_id: u16,
}

/// Result of a PDU of the login phase.
#[derive(Debug)]
pub enum LoginStep {
    /// A response; the login goes on.
    Answer(Outgoing),
    /// A last response, after which the connection is closed.
    Refuse(Outgoing, &'static str),
    /// The response to send when the session exists: its handle (TSIH) is missing.
    Admit(Outgoing, Box<Request>),
}

/// Names that the initiator gave, and how far it is believed.
#[derive(Debug)]
struct Claim {
    initiator: String,
    target: Option<String>,
    grant: Grant,
    exchange: Option<Exchange>,
    is_proved: bool,
    is_announced: bool,
}

/// The login phase of one connection.
#[derive(Debug)]
pub struct Login {
    around: Surroundings,
    text: Vec<u8>,
    claim: Option<Claim>,
    parameters: Parameters,
    is_declared: bool,
    stage: u8,
    status_number: u32,
    isid: Option<u64>,
}

type Refusal = (u16, &'static str);

impl Login {
    /// The login of a connection whose first response has the number `status_number`.
    pub fn new(around: Surroundings, status_number: u32) -> Login {
        Login {
            around,
            text: Vec::new(),
            claim: None,
            parameters: Parameters::default(),
            is_declared: false,
            stage: SECURITY,
            status_number,
            isid: None,
        }
    }

    /// Number of the next response.
    pub fn status_number(&self) -> u32 {
        self.status_number
    }

    /// Takes a PDU of the initiator.
    pub fn receive(&mut self, pdu: &Pdu) -> LoginStep {
        match self.take(pdu) {
            Ok(step) => step,
            Err((code, why)) => LoginStep::Refuse(self.response(pdu, 0, &[], code), why),
        }
    }

    fn take(&mut self, pdu: &Pdu) -> Result<LoginStep, Refusal> {
        self.check(pdu)?;
        if self.text.len() + pdu.data.len() > TEXT_BYTES_MAX {
            return Err((status::OUT_OF_RESOURCES, "its text is too long"));
        }
        self.text.extend(pdu.data.to_vec());
        if pdu.flags() & CONTINUE != 0 {
            if pdu.is_final() {
                return Err((status::INITIATOR_ERROR, "it goes on to another stage in the middle of a text"));
            }
            return Ok(LoginStep::Answer(self.response(pdu, self.stage << 2, &[], 0)));
        }
        let said = Keys::parse(&std::mem::take(&mut self.text)).map_err(|_| (status::INITIATOR_ERROR, "its text is not made of keys"))?;
        let mut answers = Keys::default();
        self.identify(&said, &mut answers)?;
        if self.stage == SECURITY {
            self.authenticate(&said, &mut answers)?;
        }
        self.parameters.negotiate(&said, &mut answers);
        if self.stage == OPERATIONAL && !self.is_declared {
            Parameters::declare(&mut answers);
            self.is_declared = true;
        }
        self.advance(pdu, &answers)
    }

    /// Refuses a request whose header cannot be right.
    fn check(&mut self, pdu: &Pdu) -> Result<(), Refusal> {
        if pdu.opcode() != opcode::LOGIN {
            return Err((status::INVALID_REQUEST, "it sent something else than a login request"));
        }
        if pdu.byte(3) > 0 {
            return Err((status::VERSION, "it speaks no version of ours"));
        }
        if pdu.half(14) != 0 {
            return Err((status::NO_SESSION, "it wants to add a connection to a session, and each has one"));
        }
        let isid = pdu.lun() >> 16;
        let stage = pdu.flags() >> 2 & 3;
        match self.isid {
            Some(before) if before != isid => return Err((status::INITIATOR_ERROR, "its identifier changes")),
            Some(_) if stage != self.stage => return Err((status::INITIATOR_ERROR, "it is in another stage")),
            Some(_) => {}
            None if stage > OPERATIONAL => return Err((status::INITIATOR_ERROR, "it begins in a stage that there is not")),
            None => {
                self.isid = Some(isid);
                self.stage = stage;
            }
        }
        Ok(())
    }

    /// Learns from the first text who comes and where to, and looks up what it may.
    fn identify(&mut self, said: &Keys, answers: &mut Keys) -> Result<(), Refusal> {
        if self.claim.is_some() {
            if ["InitiatorName", "TargetName", "SessionType"].iter().any(|name| said.get(name).is_some()) {
                return Err((status::INITIATOR_ERROR, "it says twice who it is"));
            }
            return Ok(());
        }
        let missing = (status::MISSING_PARAMETER, "it does not say who it is or where it wants to go");
        let is_name = |name: &&str| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        let initiator = said.get("InitiatorName").filter(is_name).ok_or(missing)?;
        let target = match said.get("SessionType") {
            None | Some("Normal") => Some(said.get("TargetName").filter(is_name).ok_or(missing)?),
            Some("Discovery") => None,
            Some(_) => return Err((status::SESSION_TYPE, "it wants a kind of session that there is not")),
        };
        let (peer, access) = (self.around.peer, &self.around.access);
        let grant = match target {
            Some(name) => access.target(initiator, peer, name),
            None => access.discovery(initiator, peer),
        };
        let nothing = (status::NOT_FOUND, "there is no such target, or it may not use it");
        // Who may not use a target does not learn that it exists, or that it is coming.
        let grant = grant.ok_or(nothing)?;
        match (self.around.look)(initiator, target) {
            Presence::There => {}
            // It tries again, where it would give up on a target that is not found.
            Presence::Coming => return Err((status::UNAVAILABLE, "targets are still coming")),
            Presence::Nowhere => return Err(nothing),
        }
        if target.is_some() {
            answers.push("TargetPortalGroupTag", PORTAL_GROUP.to_string());
        }
        let is_proved = grant.chap.is_none();
        let (initiator, target) = (initiator.to_string(), target.map(String::from));
        self.claim = Some(Claim { initiator, target, grant, exchange: None, is_proved, is_announced: false });
        Ok(())
    }

    /// The security stage: chooses the method, and goes on with CHAP.
    fn authenticate(&mut self, said: &Keys, answers: &mut Keys) -> Result<(), Refusal> {
        let Some(claim) = &mut self.claim else { return Err((status::INITIATOR_ERROR, "it does not say who it is")) };
        if let Some(methods) = said.get("AuthMethod") {
            if claim.is_announced {
                return Err((status::INITIATOR_ERROR, "it chooses a method twice"));
            }
            claim.is_announced = true;
            let wanted = if claim.grant.chap.is_some() { "CHAP" } else { "None" };
            if !methods.split(',').any(|method| method == wanted) {
                return Err((status::AUTHENTICATION, "it offers no method that it needs"));
            }
            claim.exchange = claim.grant.chap.clone().map(Exchange::new);
            answers.push("AuthMethod", wanted);
        }
        if let Some(exchange) = &mut claim.exchange {
            let step = exchange.step(said, answers, self.around.random, &self.around.challenges);
            claim.is_proved |= step.map_err(|failed| (status::AUTHENTICATION, failed.0))? == Step::Proved;
        }
        Ok(())
    }

    /// Answers, and goes to the next stage when both want to.
    fn advance(&mut self, pdu: &Pdu, answers: &Keys) -> Result<LoginStep, Refusal> {
        let Some(claim) = &self.claim else { return Err((status::INITIATOR_ERROR, "it does not say who it is")) };
        let next = pdu.flags() & 3;
        let wants = pdu.is_final();
        if self.stage == OPERATIONAL && !claim.is_proved {
            return Err((status::AUTHENTICATION, "it skips what it has to prove"));
        }
        if wants && (next <= self.stage || next == 2) {
            return Err((status::INITIATOR_ERROR, "it wants to a stage that does not follow"));
        }
        if wants && !claim.is_proved && claim.exchange.is_none() {
            return Err((status::AUTHENTICATION, "it has to prove who it is"));
        }
        let goes = wants && claim.is_proved;
        let flags = self.stage << 2 | if goes { FINAL | next } else { 0 };
        let request = (goes && next == FULL_FEATURE).then(|| Request {
            initiator: claim.initiator.clone(),
            isid: self.isid.unwrap_or_default(),
            target: claim.target.clone(),
            peer: self.around.peer,
            grant: claim.grant.clone(),
            parameters: self.parameters.clone(),
            first_command: pdu.word(24),
            connection_id: pdu.half(20),
        });
        let response = self.response(pdu, flags, &answers.encode(), 0);
        if let Some(request) = request {
            return Ok(LoginStep::Admit(response, Box::new(request)));
        }
        if goes {
            self.stage = next;
        }
        Ok(LoginStep::Answer(response))
    }

    fn response(&mut self, pdu: &Pdu, flags: u8, text: &[u8], code: u16) -> Outgoing {
        let next_command = pdu.word(24);
        let mut response = Outgoing::new(opcode::LOGIN_RESPONSE, flags, pdu.task_tag())
            .word(24, self.status_number)
            .word(28, next_command)
            .word(32, next_command)
            .with(Body::Bytes(text.to_vec()));
        put(&mut response.header, 8, &pdu.header[8..16]);
        put(&mut response.header, 36, &code.to_be_bytes());
        self.status_number = self.status_number.wrapping_add(1);
        response
    }
}
