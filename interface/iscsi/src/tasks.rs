//! SCSI tasks of a connection: data that come for them, budget of memory, data and status that go back (RFC 7143, sections 4.2.5 and 11.3 to 11.8).

use crate::full::{Action, Ended, Finished, Job, Numbers};
use crate::gate::Token;
use crate::negotiate::Parameters;
use crate::pdu::{Body, FINAL, NO_TAG, Outgoing, Pdu, opcode};
use crate::scsi::command::{self, Cdb, Outcome, Plan, Surroundings};
use crate::scsi::disk::{Disk, Nexus};
use crate::scsi::sense::{Fault, Sense, status};
use abd::Abd;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Data in bytes that one connection holds in memory before further commands wait.
const BUDGET_BYTES: u64 = 32 * 1024 * 1024;
const READS: u8 = 0x40;
const WRITES: u8 = 0x20;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const STATUS: u8 = 0x01;

/// A connection that cannot go on; the text says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

/// Data-Out PDUs that are expected, in order.
#[derive(Debug)]
struct Sequence {
    transfer_tag: u32,
    next_number: u32,
    /// Offset of the byte behind the last one of the sequence, at most.
    end: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Data come, or wait for being asked for.
    Receiving,
    /// Carried out.
    Running,
}

/// One SCSI command.
pub(crate) struct Task {
    lun: u64,
    serial: u64,
    nexus: Option<Arc<Nexus>>,
    cdb: Cdb,
    flags: u8,
    /// Bytes that the initiator expects to be transferred.
    expected: u64,
    plan: Option<Plan>,
    refused: Option<Outcome>,
    /// Bytes of written data that are kept.
    wanted: u64,
    received: u64,
    parts: Vec<Abd>,
    sequence: Option<Sequence>,
    requests: u32,
    stage: Stage,
    /// Bytes of the budget that it has.
    granted: Option<u64>,
    is_aborted: Arc<AtomicBool>,
    tokens: Vec<Token>,
}

/// Tasks of one connection by their tags.
#[derive(Default)]
pub(crate) struct Tasks {
    tasks: HashMap<u32, Task>,
    held: u64,
    waiting: VecDeque<u32>,
    next_serial: u64,
}

/// Parts of a connection that its tasks need for a moment.
pub(crate) struct Context<'a> {
    pub(crate) numbers: &'a mut Numbers,
    pub(crate) parameters: &'a Parameters,
    pub(crate) around: &'a Surroundings,
    pub(crate) actions: &'a mut VecDeque<Action>,
}

impl Context<'_> {
    fn send(&mut self, pdu: Outgoing) {
        self.actions.push_back(Action::Send(pdu));
    }
}

impl Tasks {
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Tags of the tasks, and bytes of written data that they keep.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn census(&self) -> (Vec<u32>, usize) {
        let kept = self.tasks.values().flat_map(|task| &task.parts).map(Abd::len).sum();
        (self.tasks.keys().copied().collect(), kept)
    }

    pub(crate) fn contains(&self, tag: u32) -> bool {
        self.tasks.contains_key(&tag)
    }

    /// Takes a SCSI Command. `nexus` is that of its unit, if there is one.
    pub(crate) fn command(&mut self, pdu: Pdu, nexus: Option<Arc<Nexus>>, context: &mut Context<'_>) -> Result<(), Broken> {
        let tag = pdu.task_tag();
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&pdu.header[32..48]);
        let flags = pdu.flags();
        let expected = u64::from(pdu.word(20));
        let out = if flags & WRITES != 0 { expected } else { 0 };
        let looked_at = match &nexus {
            Some(nexus) => command::plan(nexus, &cdb, out),
            None => Err(command::run_without_unit(&cdb, &context.around.luns)),
        };
        let (plan, refused) = match looked_at {
            Ok(plan) => (Some(plan), None),
            Err(outcome) => (None, Some(outcome)),
        };
        let wanted = plan.map_or(0, |plan| plan.out_bytes.min(out));
        self.next_serial += 1;
        let mut task = Task {
            lun: pdu.lun(),
            serial: self.next_serial,
            nexus,
            cdb,
            flags,
            expected,
            plan,
            refused,
            wanted,
            received: 0,
            parts: Vec::new(),
            sequence: None,
            requests: 0,
            stage: Stage::Receiving,
            granted: None,
            is_aborted: Arc::default(),
            tokens: Vec::new(),
        };
        let immediate = pdu.data.len() as u64;
        let first_burst = u64::from(context.parameters.first_burst);
        if immediate > 0 && (!context.parameters.immediate_data || immediate > first_burst || immediate > out) {
            task.refuse(Sense::UNEXPECTED_DATA);
        } else {
            task.take(pdu.data);
        }
        if flags & FINAL == 0 {
            if context.parameters.initial_r2t || flags & WRITES == 0 {
                return Err(Broken("it announces unsolicited data, which were not agreed upon"));
            }
            task.sequence = Some(Sequence { transfer_tag: NO_TAG, next_number: 0, end: first_burst.min(out) });
        }
        self.tasks.insert(tag, task);
        self.advance(tag, context);
        Ok(())
    }

    /// Takes a Data-Out PDU. One for a task that is gone is dropped: it was under way when the task ended.
    pub(crate) fn data_out(&mut self, pdu: Pdu, context: &mut Context<'_>) {
        let tag = pdu.task_tag();
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        let Some(sequence) = &mut task.sequence else { return task.refuse(Sense::UNEXPECTED_DATA) };
        let (number, offset, length) = (pdu.word(36), u64::from(pdu.word(40)), pdu.data.len() as u64);
        let is_of_sequence = pdu.word(20) == sequence.transfer_tag;
        let is_next = number == sequence.next_number;
        let end = sequence.end;
        sequence.next_number = sequence.next_number.wrapping_add(1);
        if !is_of_sequence {
            task.refuse(Sense::UNEXPECTED_DATA);
        } else if !is_next {
            task.refuse(Sense::LOST_DATA);
        } else if offset != task.received || offset + length > end {
            task.refuse(Sense::WRONG_AMOUNT);
        } else {
            let is_solicited = sequence.transfer_tag != NO_TAG;
            task.take(pdu.data);
            if pdu.header[1] & FINAL != 0 && is_solicited && task.received != end {
                task.refuse(Sense::WRONG_AMOUNT);
            }
        }
        if pdu.header[1] & FINAL != 0 {
            task.sequence = None;
            self.advance(tag, context);
        }
    }

    /// Goes on with a task: asks for more data, runs it, or answers it.
    fn advance(&mut self, tag: u32, context: &mut Context<'_>) {
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        if task.sequence.is_some() || task.stage == Stage::Running {
            return;
        }
        if let Some(outcome) = task.refused.take() {
            return self.end(tag, outcome, context);
        }
        let Some(plan) = task.plan else { return };
        let needed = task.wanted + plan.in_bytes;
        if task.granted.is_none() {
            // Data that are here already take no more memory by waiting.
            let is_free = task.received >= task.wanted && plan.in_bytes == 0;
            if !is_free && self.held > 0 && self.held + needed > BUDGET_BYTES {
                self.waiting.push_back(tag);
                return;
            }
            task.granted = Some(needed);
            self.held += needed;
        }
        if task.received < task.wanted {
            let request = task.request(tag, context);
            return context.send(request);
        }
        task.stage = Stage::Running;
        let Some(nexus) = task.nexus.clone() else { return };
        let data = if task.parts.len() == 1 { task.parts.remove(0) } else { Abd::gang(&std::mem::take(&mut task.parts)) };
        let (serial, cdb, is_aborted) = (task.serial, task.cdb, task.is_aborted.clone());
        let work = command::run(plan, nexus, cdb, data, context.around.clone(), is_aborted);
        let mut job = Job::new(async move { Finished(Ended::Task { tag, serial, outcome: work.await }) });
        (job.is_read, job.is_light) = (plan.in_bytes > 0, plan.is_transfer());
        context.actions.push_back(Action::Run(job));
    }

    /// Takes the outcome of a task that ran.
    pub(crate) fn finished(&mut self, tag: u32, serial: u64, outcome: Outcome, context: &mut Context<'_>) {
        if self.tasks.get(&tag).is_some_and(|task| task.serial == serial) {
            self.end(tag, outcome, context);
        }
    }

    /// Notes that `bytes` of data were sent and are not held any more.
    pub(crate) fn sent(&mut self, bytes: u64, context: &mut Context<'_>) {
        self.held = self.held.saturating_sub(bytes);
        self.pump(context);
    }

    fn pump(&mut self, context: &mut Context<'_>) {
        let waiting = self.waiting.len();
        for _ in 0..waiting {
            let Some(tag) = self.waiting.pop_front() else { return };
            let before = self.waiting.len();
            self.advance(tag, context);
            if self.waiting.len() > before {
                // It waits again: it keeps its place at the head.
                self.waiting.rotate_right(1);
                return;
            }
        }
    }

    /// Removes a task and answers it, unless it was aborted.
    fn end(&mut self, tag: u32, outcome: Outcome, context: &mut Context<'_>) {
        let Some(task) = self.tasks.remove(&tag) else { return };
        self.held = self.held.saturating_sub(task.granted.unwrap_or_default());
        if !task.is_aborted.load(Ordering::Relaxed) {
            context.numbers.set_tasks(self.tasks.len());
            self.held += task.answer(tag, outcome, context);
        }
        self.pump(context);
    }

    /// Aborts the tasks that `is_hit` names by tag and unit: those that run keep `token` until they have ended, the others are gone at once.
    pub(crate) fn abort(
        &mut self,
        token: &Token,
        context: &mut Context<'_>,
        is_hit: impl Fn(u32, u64, Option<&Arc<Disk>>) -> bool,
    ) -> usize {
        let hit = |(tag, task): (&u32, &Task)| is_hit(*tag, task.lun, task.nexus.as_ref().map(|nexus| &nexus.disk)).then_some(*tag);
        let tags: Vec<u32> = self.tasks.iter().filter_map(hit).collect();
        for tag in &tags {
            let Some(task) = self.tasks.get_mut(tag) else { continue };
            task.is_aborted.store(true, Ordering::Relaxed);
            if task.stage == Stage::Running {
                task.tokens.push(token.clone());
            } else if let Some(task) = self.tasks.remove(tag) {
                self.held = self.held.saturating_sub(task.granted.unwrap_or_default());
                self.waiting.retain(|waiting| waiting != tag);
            }
        }
        self.pump(context);
        tags.len()
    }
}

impl Task {
    /// Refuses the task with sense data, unless it is refused already; what it got is dropped.
    fn refuse(&mut self, sense: Sense) {
        let is_descriptor = self.nexus.as_ref().is_some_and(|nexus| nexus.disk.modes.is_descriptor.load(Ordering::Relaxed));
        self.refused.get_or_insert_with(|| Outcome::failed(Fault::Check(sense), is_descriptor));
        self.parts.clear();
    }

    /// Takes data that come next; what nobody wants is dropped.
    fn take(&mut self, data: Abd) {
        let length = data.len() as u64;
        let room = self.wanted.saturating_sub(self.received).min(length);
        if room > 0 && self.refused.is_none() {
            self.parts.push(if room == length { data } else { data.slice(0..room as usize) });
        }
        self.received += length;
    }

    /// Ready To Transfer for the next burst.
    fn request(&mut self, tag: u32, context: &mut Context<'_>) -> Outgoing {
        let length = (self.wanted - self.received).min(u64::from(context.parameters.max_burst));
        let transfer_tag = context.numbers.transfer_tag();
        self.sequence = Some(Sequence { transfer_tag, next_number: 0, end: self.received + length });
        let pdu = Outgoing::new(opcode::R2T, FINAL, tag)
            .lun(self.lun)
            .word(20, transfer_tag)
            .word(36, self.requests)
            .word(40, self.received as u32)
            .word(44, length as u32);
        self.requests += 1;
        context.numbers.stamp(pdu, true, false)
    }

    /// Flags and count of the residual: what was expected against what there is (RFC 7143, section 11.4.5).
    fn residual(&self, outcome: &Outcome) -> (u8, u32) {
        let there_is = match &self.plan {
            _ if !outcome.body.is_empty() => outcome.body.len() as u64,
            Some(plan) if self.flags & WRITES != 0 || self.expected == 0 => plan.out_bytes,
            _ => 0,
        };
        let expected = if self.flags & (READS | WRITES) != 0 { self.expected } else { 0 };
        let count = there_is.abs_diff(expected) as u32;
        match there_is.cmp(&expected) {
            std::cmp::Ordering::Greater => (OVERFLOW, count),
            std::cmp::Ordering::Less => (UNDERFLOW, count),
            std::cmp::Ordering::Equal => (0, 0),
        }
    }

    /// Sends data and status; returns the bytes of data that are held until they are sent.
    fn answer(&self, tag: u32, outcome: Outcome, context: &mut Context<'_>) -> u64 {
        let (residual_flags, residual) = self.residual(&outcome);
        let length = if self.flags & READS != 0 { outcome.body.len().min(self.expected as usize) } else { 0 };
        let is_collapsed = length > 0 && outcome.status == status::GOOD;
        let (piece, burst) = (context.parameters.send_bytes_max as usize, context.parameters.max_burst as usize);
        let (mut at, mut number) = (0, 0);
        while at < length {
            let burst_end = (at / burst + 1) * burst;
            let end = (at + piece).min(burst_end).min(length);
            let is_last = end == length;
            let mut flags = if is_last || end == burst_end { FINAL } else { 0 };
            let carries_status = is_last && is_collapsed;
            if carries_status {
                flags |= STATUS | residual_flags;
            }
            let mut pdu = Outgoing::new(opcode::DATA_IN, flags, tag).lun(self.lun).word(20, NO_TAG).word(36, number).word(40, at as u32);
            if carries_status {
                pdu = pdu.byte(3, outcome.status).word(44, residual);
            }
            let pdu = context.numbers.stamp(pdu, carries_status, carries_status);
            context.send(pdu.with(outcome.body.slice(at, end)));
            at = end;
            number += 1;
        }
        if !is_collapsed {
            let mut pdu = Outgoing::new(opcode::SCSI_RESPONSE, FINAL | residual_flags, tag)
                .byte(3, outcome.status)
                .word(36, number + self.requests)
                .word(44, residual);
            if !outcome.sense.is_empty() {
                let data = [&(outcome.sense.len() as u16).to_be_bytes()[..], &outcome.sense].concat();
                pdu = pdu.with(Body::Bytes(data));
            }
            let pdu = context.numbers.stamp(pdu, true, true);
            context.send(pdu);
        }
        length as u64
    }
}
