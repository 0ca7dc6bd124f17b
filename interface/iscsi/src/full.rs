//! The full feature phase of a connection: order of commands, pings, text, task management, logout (RFC 7143, section 11). No I/O.

use crate::gate::{Token, gate};
use crate::keys::{Keys, TEXT_BYTES_MAX};
use crate::login::{CONTINUE, PORTAL_GROUP, Request};
use crate::negotiate::Parameters;
use crate::pdu::{Body, FINAL, NO_TAG, Outgoing, Pdu, opcode, serial_distance};
use crate::scsi::command::{Outcome, Surroundings};
use crate::scsi::disk::{CLEARED, Nexus, UNIT_RESET, UNITS_CHANGED};
use crate::targets::{Mail, Session, Targets, lun_of, number_of};
use crate::tasks::{Broken, Context, Tasks};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

/// Number of commands of one session at the same time.
const CREDITS: u32 = 128;
/// Number of commands that are there beside the window's, as immediate ones, at most.
const IMMEDIATE_MAX: usize = 32;

/// Reasons of a Reject (section 11.17.1).
mod reason {
    pub(super) const SNACK: u8 = 0x03;
    pub(super) const PROTOCOL: u8 = 0x04;
    pub(super) const UNSUPPORTED: u8 = 0x05;
    pub(super) const IMMEDIATE: u8 = 0x06;
    pub(super) const IN_PROGRESS: u8 = 0x07;
}

/// Work that is to be driven until it is through; its result goes back to the connection.
pub struct Job {
    work: Pin<Box<dyn Future<Output = Finished> + Send>>,
    /// True for a task that reads blocks and changes nothing: it may be begun later than what comes behind it.
    pub(crate) is_read: bool,
    /// True when little is to be done behind what it waits for: it needs no task of its own.
    pub(crate) is_light: bool,
}

impl Job {
    pub(crate) fn new(work: impl Future<Output = Finished> + Send + 'static) -> Job {
        Job { work: Box::pin(work), is_read: false, is_light: false }
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl Future for Job {
    type Output = Finished;
    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Finished> {
        self.work.as_mut().poll(context)
    }
}

/// Result of a [`Job`].
#[derive(Debug)]
pub struct Finished(pub(crate) Ended);

/// Work that has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// A SCSI task, by its tag and its number in the connection.
    Task { tag: u32, serial: u64, outcome: Outcome },
    /// A task management function, or a logout, waited for what it ended: the answer without its numbers.
    Answer { pdu: Outgoing, is_last: bool },
}

/// Something that a connection wants to be done.
#[derive(Debug)]
pub enum Action {
    /// Send a PDU.
    Send(Outgoing),
    /// Drive a job; its result is given to [`Connection::finished`](crate::Connection::finished).
    Run(Job),
    /// Ask for a session; the answer is given back to the connection.
    Admit(Box<Request>),
    /// From here on, in both directions: digests of headers and data, and the longest data segment in bytes that comes in.
    Negotiated(Parameters),
    /// Close the connection when all that was to be sent before is sent; the text says why.
    Close(&'static str),
}

/// Numbers of commands, responses and transfers of a connection (section 4.2.2).
#[derive(Debug)]
pub(crate) struct Numbers {
    status: u32,
    expected: u32,
    maximum: u32,
    transfer: u32,
    tasks: usize,
}

/// Place of a command in the order of commands.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Next,
    /// Outside of the window: as if it had never come.
    Outside,
    /// One before it was lost.
    Gap,
}

impl Numbers {
    pub(crate) fn new(status: u32, first_command: u32) -> Numbers {
        Numbers { status, expected: first_command, maximum: first_command.wrapping_add(CREDITS - 1), transfer: 0, tasks: 0 }
    }

    fn order(&mut self, pdu: &Pdu) -> Order {
        if pdu.is_immediate() {
            return Order::Next;
        }
        let number = pdu.word(24);
        if serial_distance(number, self.expected) < 0 || serial_distance(number, self.maximum) > 0 {
            return Order::Outside;
        }
        if number != self.expected {
            return Order::Gap;
        }
        self.expected = self.expected.wrapping_add(1);
        Order::Next
    }

    /// Notes how many tasks there are; the window never shrinks.
    pub(crate) fn set_tasks(&mut self, tasks: usize) {
        self.tasks = tasks;
    }

    /// Tag for a transfer that this end asks for; never that of none.
    pub(crate) fn transfer_tag(&mut self) -> u32 {
        self.transfer = if self.transfer >= NO_TAG - 1 { 1 } else { self.transfer + 1 };
        self.transfer
    }

    /// Fills in the numbers of a PDU. `has_status` when it carries the number of the next response, `advances` when it is one.
    pub(crate) fn stamp(&mut self, pdu: Outgoing, has_status: bool, advances: bool) -> Outgoing {
        let free = CREDITS.saturating_sub(self.tasks as u32);
        let maximum = self.expected.wrapping_add(free).wrapping_sub(1);
        if serial_distance(maximum, self.maximum) > 0 {
            self.maximum = maximum;
        }
        let pdu = if has_status { pdu.word(24, self.status) } else { pdu };
        if advances {
            self.status = self.status.wrapping_add(1);
        }
        pdu.word(28, self.expected).word(32, self.maximum)
    }
}

/// A connection in full feature phase.
pub(crate) struct Full {
    targets: Arc<Targets>,
    session: Arc<Session>,
    peer: IpAddr,
    local: SocketAddr,
    connection_id: u16,
    parameters: Parameters,
    numbers: Numbers,
    tasks: Tasks,
    around: Surroundings,
    nexuses: BTreeMap<u16, Arc<Nexus>>,
    generation: u64,
    text_in: Vec<u8>,
    text_out: Option<(u32, Vec<u8>)>,
    /// Dropped when the session has ended.
    ending: Vec<Token>,
    is_leaving: bool,
}

impl Full {
    pub(crate) fn new(
        targets: Arc<Targets>,
        session: Arc<Session>,
        addresses: (IpAddr, SocketAddr),
        request: &Request,
        status: u32,
    ) -> Full {
        let around = Surroundings {
            target: session.target.as_ref().map_or_else(|| "".into(), |target| target.name.clone()),
            portal_group: PORTAL_GROUP,
            luns: Arc::default(),
        };
        Full {
            targets,
            session,
            peer: addresses.0,
            local: addresses.1,
            connection_id: request.connection_id,
            parameters: request.parameters.clone(),
            numbers: Numbers::new(status, request.first_command),
            tasks: Tasks::default(),
            around,
            nexuses: BTreeMap::new(),
            generation: 0,
            text_in: Vec::new(),
            text_out: None,
            ending: Vec::new(),
            is_leaving: false,
        }
    }

    fn context<'a>(
        numbers: &'a mut Numbers,
        parameters: &'a Parameters,
        around: &'a Surroundings,
        actions: &'a mut VecDeque<Action>,
    ) -> Context<'a> {
        Context { numbers, parameters, around, actions }
    }

    /// The last response of the login, with the window of commands.
    pub(crate) fn window(&self, answer: Outgoing) -> Outgoing {
        answer.word(28, self.numbers.expected).word(32, self.numbers.maximum)
    }

    /// Sends a PDU that advances the number of responses.
    pub(crate) fn respond(&mut self, pdu: Outgoing, actions: &mut VecDeque<Action>) {
        self.numbers.set_tasks(self.tasks.len());
        actions.push_back(Action::Send(self.numbers.stamp(pdu, true, true)));
    }

    fn reject(&mut self, pdu: &Pdu, reason: u8, actions: &mut VecDeque<Action>) {
        let answer = Outgoing::new(opcode::REJECT, FINAL, NO_TAG).byte(2, reason).with(Body::Bytes(pdu.header.to_vec()));
        self.respond(answer, actions);
    }

    /// Takes a PDU of the initiator.
    pub(crate) fn receive(&mut self, pdu: Pdu, actions: &mut VecDeque<Action>) -> Result<(), Broken> {
        match pdu.opcode() {
            opcode::DATA_OUT => {
                self.tasks.data_out(pdu, &mut Self::context(&mut self.numbers, &self.parameters, &self.around, actions));
                return Ok(());
            }
            opcode::SNACK => {
                self.reject(&pdu, reason::SNACK, actions);
                return Ok(());
            }
            opcode::NOP_OUT | opcode::SCSI_COMMAND | opcode::TASK_MANAGEMENT | opcode::TEXT | opcode::LOGOUT => {}
            opcode::LOGIN => {
                self.reject(&pdu, reason::PROTOCOL, actions);
                return Err(Broken("it logs in twice"));
            }
            _ => {
                self.reject(&pdu, reason::UNSUPPORTED, actions);
                return Ok(());
            }
        }
        // The answer to a ping of ours has a number that does not count.
        if pdu.opcode() == opcode::NOP_OUT && pdu.task_tag() == NO_TAG {
            return Ok(());
        }
        match self.numbers.order(&pdu) {
            Order::Next => self.ordered(pdu, actions),
            Order::Outside => Ok(()),
            Order::Gap => Err(Broken("a command was lost")),
        }
    }

    fn ordered(&mut self, pdu: Pdu, actions: &mut VecDeque<Action>) -> Result<(), Broken> {
        if self.is_leaving {
            return Ok(());
        }
        match pdu.opcode() {
            opcode::NOP_OUT => self.echo(&pdu, actions),
            opcode::TEXT => return self.text(&pdu, actions),
            opcode::LOGOUT => self.logout(&pdu, actions),
            _ if self.session.target.is_none() => self.reject(&pdu, reason::PROTOCOL, actions),
            opcode::TASK_MANAGEMENT => self.manage(&pdu, actions),
            _ => return self.command(pdu, actions),
        }
        Ok(())
    }

    fn echo(&mut self, pdu: &Pdu, actions: &mut VecDeque<Action>) {
        let length = pdu.data.len().min(self.parameters.send_bytes_max as usize);
        let answer = Outgoing::new(opcode::NOP_IN, FINAL, pdu.task_tag())
            .lun(pdu.lun())
            .word(20, NO_TAG)
            .with(Body::Bytes(pdu.data.slice(0..length).to_vec()));
        self.respond(answer, actions);
    }

    /// True while no command is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.len() == 0
    }

    /// Sends a ping.
    pub(crate) fn ping(&mut self, actions: &mut VecDeque<Action>) {
        let tag = self.numbers.transfer_tag();
        let pdu = Outgoing::new(opcode::NOP_IN, FINAL, NO_TAG).word(20, tag);
        self.numbers.set_tasks(self.tasks.len());
        actions.push_back(Action::Send(self.numbers.stamp(pdu, true, false)));
    }

    /// Asks the initiator to log out within `seconds`.
    pub(crate) fn ask_logout(&mut self, seconds: u16, actions: &mut VecDeque<Action>) {
        let pdu = Outgoing::new(opcode::ASYNC, FINAL, NO_TAG).word(36, 0x0100_0000).word(40, u32::from(seconds));
        self.respond(pdu, actions);
    }

    fn command(&mut self, pdu: Pdu, actions: &mut VecDeque<Action>) -> Result<(), Broken> {
        if self.tasks.contains(pdu.task_tag()) {
            self.reject(&pdu, reason::IN_PROGRESS, actions);
            return Ok(());
        }
        if pdu.is_immediate() && self.tasks.len() >= CREDITS as usize + IMMEDIATE_MAX {
            self.reject(&pdu, reason::IMMEDIATE, actions);
            return Ok(());
        }
        self.refresh();
        let nexus = number_of(pdu.lun()).and_then(|number| self.nexuses.get(&number)).cloned();
        self.numbers.set_tasks(self.tasks.len() + 1);
        self.tasks.command(pdu, nexus, &mut Self::context(&mut self.numbers, &self.parameters, &self.around, actions))
    }

    /// Learns which units there are, when that has changed.
    fn refresh(&mut self) {
        let Some(target) = &self.session.target else { return };
        let generation = target.generation();
        if generation == self.generation {
            return;
        }
        let disks = target.disks();
        let is_first = self.generation == 0;
        self.generation = generation;
        let is_same = |number: &u16, nexus: &Arc<Nexus>| disks.get(number).is_some_and(|disk| Arc::ptr_eq(disk, &nexus.disk));
        for (_, nexus) in self.nexuses.extract_if(.., |number, nexus| !is_same(number, nexus)) {
            nexus.disk.disconnect(&nexus);
        }
        for (number, disk) in disks.iter() {
            let session = &self.session;
            let connect = || disk.connect(session.id, session.transport.clone(), session.is_read_only, session.clone(), session.attention);
            let nexus = self.nexuses.entry(*number).or_insert_with(connect);
            if !is_first {
                nexus.tell(UNITS_CHANGED);
            }
        }
        self.around.luns = disks.keys().map(|number| lun_of(*number)).collect();
    }

    fn text(&mut self, pdu: &Pdu, actions: &mut VecDeque<Action>) -> Result<(), Broken> {
        if let Some((tag, rest)) = self.text_out.take_if(|(tag, _)| *tag == pdu.word(20)) {
            return self.say(pdu, tag, rest, actions);
        }
        if self.text_in.len() + pdu.data.len() > TEXT_BYTES_MAX {
            return Err(Broken("its text is too long"));
        }
        self.text_in.extend(pdu.data.to_vec());
        if pdu.flags() & CONTINUE != 0 {
            let tag = self.numbers.transfer_tag();
            self.respond(Outgoing::new(opcode::TEXT_RESPONSE, 0, pdu.task_tag()).word(20, tag), actions);
            return Ok(());
        }
        let Ok(said) = Keys::parse(&std::mem::take(&mut self.text_in)) else {
            self.reject(pdu, reason::PROTOCOL, actions);
            return Ok(());
        };
        let mut answers = Keys::default();
        for (name, value) in said.iter() {
            if name == "SendTargets" {
                self.list(value, &mut answers);
            } else if let Some(answer) = self.parameters.renegotiate(name, value) {
                answers.push(name, answer);
            }
        }
        let tag = self.numbers.transfer_tag();
        self.say(pdu, tag, answers.encode(), actions)
    }

    /// Sends text, as much as the initiator takes in one PDU; it asks for the rest.
    fn say(&mut self, pdu: &Pdu, tag: u32, text: Vec<u8>, actions: &mut VecDeque<Action>) -> Result<(), Broken> {
        let limit = self.parameters.send_bytes_max as usize;
        let (flags, tag, text) = if text.len() > limit {
            self.text_out = Some((tag, text[limit..].to_vec()));
            (CONTINUE, tag, text[..limit].to_vec())
        } else {
            (FINAL, NO_TAG, text)
        };
        let answer = Outgoing::new(opcode::TEXT_RESPONSE, flags, pdu.task_tag()).lun(pdu.lun()).word(20, tag).with(Body::Bytes(text));
        self.respond(answer, actions);
        Ok(())
    }

    /// Carries out SendTargets (appendix C): all of them in a discovery session, else only the session's own.
    fn list(&self, value: &str, answers: &mut Keys) {
        let own = self.session.target.as_ref().map(|target| &*target.name);
        let visible = self.targets.visible(&self.session.initiator, self.peer, self.local);
        let is_asked = |name: &str| match own {
            Some(own) => name == own && (value.is_empty() || value == own),
            None => value == "All" || value == name,
        };
        let is_known =
            value == "All" && own.is_none() || value.is_empty() && own.is_some() || visible.iter().any(|(name, _)| is_asked(name));
        if !is_known {
            return answers.push("SendTargets", "Reject");
        }
        for (name, address) in visible.into_iter().filter(|(name, _)| is_asked(name)) {
            answers.push("TargetName", name);
            answers.push("TargetAddress", address);
        }
    }

    fn logout(&mut self, pdu: &Pdu, actions: &mut VecDeque<Action>) {
        let is_own = pdu.half(20) == self.connection_id;
        let code = match pdu.flags() & 0x7F {
            0 => 0,
            1 if is_own => 0,
            1 => 1,
            _ => 2,
        };
        let answer = Outgoing::new(opcode::LOGOUT_RESPONSE, FINAL, pdu.task_tag()).byte(2, code).word(40, 2 << 16);
        if code != 0 {
            return self.respond(answer, actions);
        }
        self.is_leaving = true;
        self.after_abort(answer, true, actions, |_, _| true);
    }

    /// Aborts tasks of this connection (by tag and LUN), and sends `pdu` when none of them touches data any more.
    fn after_abort(&mut self, pdu: Outgoing, is_last: bool, actions: &mut VecDeque<Action>, is_hit: impl Fn(u32, u64) -> bool) -> usize {
        let (token, gate) = gate();
        let context = &mut Self::context(&mut self.numbers, &self.parameters, &self.around, actions);
        let count = self.tasks.abort(&token, context, |tag, lun, _| is_hit(tag, lun));
        drop(token);
        self.answer_after(pdu, is_last, gate, actions);
        count
    }

    fn answer_after(&self, pdu: Outgoing, is_last: bool, gate: crate::gate::Gate, actions: &mut VecDeque<Action>) {
        actions.push_back(Action::Run(Job::new(async move {
            gate.opened().await;
            Finished(Ended::Answer { pdu, is_last })
        })));
    }

    /// Carries out a task management function (section 11.5).
    fn manage(&mut self, pdu: &Pdu, actions: &mut VecDeque<Action>) {
        self.refresh();
        let (lun, referenced, tag) = (pdu.lun(), pdu.word(20), pdu.task_tag());
        let answer = move |code: u8| Outgoing::new(opcode::TASK_MANAGEMENT_RESPONSE, FINAL, tag).byte(2, code);
        let nexus = number_of(lun).and_then(|number| self.nexuses.get(&number)).cloned();
        match (pdu.flags() & 0x7F, nexus) {
            (1, _) if !self.tasks.contains(referenced) => self.respond(answer(1), actions),
            (1, _) => {
                self.after_abort(answer(0), false, actions, |tag, _| tag == referenced);
            }
            (2 | 4 | 5, None) => self.respond(answer(2), actions),
            // They end what others do.
            (4..=6, _) if self.session.is_read_only => self.respond(answer(6), actions),
            (2, Some(_)) => {
                self.after_abort(answer(0), false, actions, |_, other| number_of(other) == number_of(lun));
            }
            (4, Some(nexus)) => self.reset(answer(0), &[nexus], CLEARED, actions),
            (5, Some(nexus)) => self.reset(answer(0), &[nexus], UNIT_RESET, actions),
            (6, _) => {
                let all: Vec<Arc<Nexus>> = self.nexuses.values().cloned().collect();
                self.reset(answer(0), &all, UNIT_RESET, actions);
            }
            (8, _) => self.respond(answer(4), actions),
            (3 | 7, _) => self.respond(answer(5), actions),
            _ => self.respond(answer(255), actions),
        }
    }

    /// Aborts the tasks of everybody on some units, and answers when all of them have ended.
    fn reset(&mut self, answer: Outgoing, units: &[Arc<Nexus>], attention: (u8, u8), actions: &mut VecDeque<Action>) {
        let (token, gate) = gate();
        for nexus in units {
            if attention == UNIT_RESET {
                nexus.disk.change(|state| state.reserved = None);
                // Who asked for the reset is told, too: libiscsi's tests expect it.
                nexus.disk.tell_all(None, attention);
                nexus.disk.abort_others(self.session.id, None, &token);
            } else {
                nexus.disk.abort_others(self.session.id, Some(attention), &token);
            }
            let context = &mut Self::context(&mut self.numbers, &self.parameters, &self.around, actions);
            self.tasks.abort(&token, context, |_, _, disk| disk.is_some_and(|disk| Arc::ptr_eq(disk, &nexus.disk)));
        }
        drop(token);
        self.answer_after(answer, false, gate, actions);
    }

    /// Takes the result of a job.
    pub(crate) fn finished(&mut self, finished: Finished, actions: &mut VecDeque<Action>) {
        match finished.0 {
            Ended::Task { tag, serial, outcome } => {
                let context = &mut Self::context(&mut self.numbers, &self.parameters, &self.around, actions);
                self.tasks.finished(tag, serial, outcome, context);
            }
            Ended::Answer { pdu, is_last } => {
                self.respond(pdu, actions);
                if is_last {
                    actions.push_back(Action::Close("it logged out"));
                }
            }
        }
    }

    /// Notes that `bytes` of data were sent.
    pub(crate) fn sent(&mut self, bytes: u64, actions: &mut VecDeque<Action>) {
        self.tasks.sent(bytes, &mut Self::context(&mut self.numbers, &self.parameters, &self.around, actions));
    }

    /// Takes words of others.
    pub(crate) fn mail(&mut self, mail: Mail, actions: &mut VecDeque<Action>) {
        match mail {
            Mail::Abort(disk, token) => {
                let context = &mut Self::context(&mut self.numbers, &self.parameters, &self.around, actions);
                self.tasks.abort(&token, context, |_, _, other| other.is_some_and(|other| Arc::ptr_eq(other, &disk)));
            }
            Mail::End(token) => {
                self.ending.push(token);
                self.is_leaving = true;
                actions.push_back(Action::Close("its session has ended"));
            }
        }
    }

    /// Tags of the tasks, and bytes of data and text that are kept for them.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn census(&self) -> (Vec<u32>, usize) {
        let (tags, kept) = self.tasks.census();
        (tags, kept + self.text_in.len())
    }

    /// Ends the session: what waits is dropped, what runs is told to stop. True when nothing runs any more.
    pub(crate) fn abandon(&mut self) -> bool {
        self.is_leaving = true;
        let (token, _) = gate();
        let mut nowhere = VecDeque::new();
        let context = &mut Self::context(&mut self.numbers, &self.parameters, &self.around, &mut nowhere);
        self.tasks.abort(&token, context, |_, _, _| true);
        self.tasks.len() == 0
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        for nexus in self.nexuses.values() {
            nexus.disk.disconnect(nexus);
        }
        Targets::forget(&self.session);
    }
}
