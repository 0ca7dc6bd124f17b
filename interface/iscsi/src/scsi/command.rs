//! Carrying out a command: what can be refused is refused before data come, the rest runs when they are there.

use crate::bytes::{be8, be32};
use crate::pdu::Body;
use crate::scsi::block::{self, Span, Work};
use crate::scsi::disk::{MODE_CHANGED, Nexus};
use crate::scsi::inquiry::{self, Place};
use crate::scsi::sense::{Fault, Sense, status};
use crate::scsi::table::{Class, Entry, Found, Kind, find};
use crate::scsi::{capacity, opcodes, reserve};
use abd::Abd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Descriptor block of a command.
pub(crate) type Cdb = [u8; 16];

/// Result of a command.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) status: u8,
    pub(crate) sense: Vec<u8>,
    pub(crate) body: Body,
}

impl Outcome {
    pub(crate) fn good(body: Body) -> Outcome {
        Outcome { status: status::GOOD, sense: Vec::new(), body }
    }

    /// The outcome of a failure; sense data come in descriptor format, or in fixed format.
    pub(crate) fn failed(fault: Fault, is_descriptor: bool) -> Outcome {
        match fault {
            Fault::Check(sense) => Outcome { status: status::CHECK_CONDITION, sense: sense.encode(is_descriptor), body: Body::default() },
            Fault::Conflict => Outcome { status: status::RESERVATION_CONFLICT, sense: Vec::new(), body: Body::default() },
        }
    }
}

/// Names that commands need of where the unit stands, and the list of units beside it.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) target: Arc<str>,
    pub(crate) portal_group: u16,
    /// Numbers of the units that the session sees, as in REPORT LUNS.
    pub(crate) luns: Arc<[u64]>,
}

/// A command that was looked at and may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    entry: &'static Entry,
    /// Bytes that the initiator is to send.
    pub(crate) out_bytes: u64,
    /// Bytes of the answer, as far as they have to be budgeted for.
    pub(crate) in_bytes: u64,
    span: Option<Span>,
}

impl Plan {
    /// True for plain reads and writes: behind what the unit does there is next to nothing to do.
    pub(crate) fn is_transfer(&self) -> bool {
        matches!(self.entry.kind, Kind::Read | Kind::Write)
    }
}

/// Looks at a command before its data are there. `sent_bytes` is what the initiator means to send.
pub(crate) fn plan(nexus: &Nexus, cdb: &Cdb, sent_bytes: u64) -> Result<Plan, Outcome> {
    looked_at(nexus, cdb, sent_bytes).map_err(|fault| failed(nexus, fault))
}

fn failed(nexus: &Nexus, fault: Fault) -> Outcome {
    Outcome::failed(fault, nexus.disk.modes.is_descriptor.load(Ordering::Relaxed))
}

fn looked_at(nexus: &Nexus, cdb: &Cdb, sent_bytes: u64) -> Result<Plan, Fault> {
    let disk = &nexus.disk;
    let geometry = disk.geometry();
    let found = find(cdb, geometry.is_thin);
    let keeps_attention =
        matches!(&found, Found::Command(entry) if matches!(entry.kind, Kind::Inquiry | Kind::ReportLuns | Kind::RequestSense));
    if !keeps_attention && let Some(sense) = nexus.attention() {
        return Err(sense.into());
    }
    let entry = match found {
        Found::Command(entry) => entry,
        Found::NoAction => return Err(Sense::FIELD_IN_CDB.into()),
        Found::Nothing => return Err(Sense::OPCODE.into()),
    };
    if disk.is_forbidden(nexus, entry.class) {
        return Err(Fault::Conflict);
    }
    if !entry.accepts(cdb) {
        return Err(Sense::FIELD_IN_CDB.into());
    }
    let writes = entry.class == Class::Write && entry.kind != Kind::Synchronize;
    if writes && disk.modes.is_protected.load(Ordering::Relaxed) {
        return Err(Sense::SOFTWARE_PROTECTED.into());
    }
    if writes && (nexus.is_read_only || geometry.is_read_only) {
        return Err(Sense::PROTECTED.into());
    }
    if nexus.is_read_only && entry.rules() {
        return Err(Sense::PROTECTED.into());
    }
    let mut plan = Plan { entry, out_bytes: block::list_bytes(entry, cdb), in_bytes: 0, span: None };
    match entry.kind {
        Kind::Read
        | Kind::Write
        | Kind::WriteVerify
        | Kind::Verify
        | Kind::OrWrite
        | Kind::CompareWrite
        | Kind::WriteSame
        | Kind::Synchronize
        | Kind::Prefetch => {
            let span = block::check(entry, cdb, &geometry, sent_bytes)?;
            plan.out_bytes = span.out_bytes;
            plan.in_bytes = if entry.kind == Kind::Read { span.blocks * u64::from(geometry.block_bytes) } else { 0 };
            plan.span = Some(span);
        }
        Kind::PersistentOut => reserve::check(cdb)?,
        _ => {}
    }
    Ok(plan)
}

/// Carries out a planned command with the data that came for it.
pub(crate) async fn run(plan: Plan, nexus: Arc<Nexus>, cdb: Cdb, data: Abd, around: Surroundings, is_aborted: Arc<AtomicBool>) -> Outcome {
    let work = Work { nexus: &nexus, entry: plan.entry, cdb: &cdb, geometry: nexus.disk.geometry(), is_aborted: &is_aborted };
    let result = match plan.span {
        Some(span) => on_blocks(&work, span, data).await,
        None => on_unit(&work, data, &around).await.map(Body::Bytes),
    };
    match result {
        Ok(body) => Outcome::good(body),
        Err(fault) => failed(&nexus, fault),
    }
}

async fn on_blocks(work: &Work<'_>, span: Span, data: Abd) -> Result<Body, Fault> {
    match work.entry.kind {
        Kind::Read => return Ok(Body::Pages(work.read(span).await?)),
        Kind::Write | Kind::WriteVerify => work.write(span, data).await?,
        Kind::Verify => work.verify(span, data).await?,
        Kind::OrWrite => work.or_write(span, data).await?,
        Kind::CompareWrite => work.compare_and_write(span, data).await?,
        Kind::WriteSame => work.write_same(span, data).await?,
        Kind::Prefetch => work.prefetch(span),
        _ => work.synchronize().await?,
    }
    Ok(Body::default())
}

async fn on_unit(work: &Work<'_>, data: Abd, around: &Surroundings) -> Result<Vec<u8>, Fault> {
    let (nexus, cdb, geometry) = (work.nexus, work.cdb, &work.geometry);
    let disk = &nexus.disk;
    match work.entry.kind {
        Kind::Inquiry => {
            let place = Place { target: &around.target, portal_group: around.portal_group };
            inquiry::inquiry(cdb, &disk.unit.identity(), geometry, &place)
        }
        Kind::ReportLuns => report_luns(cdb, &around.luns),
        Kind::RequestSense => Ok(request_sense(cdb, nexus.attention().unwrap_or(Sense::NONE))),
        Kind::ReportOpcodes => opcodes::report(cdb, geometry.is_thin),
        Kind::ReadCapacity10 => Ok(capacity::short(geometry)),
        Kind::ReadCapacity16 => Ok(capacity::long(cdb, geometry)),
        Kind::LbaStatus => capacity::status(cdb, &*disk.unit, geometry).await,
        Kind::ModeSense => {
            let is_protected = nexus.is_read_only || geometry.is_read_only || disk.modes.is_protected.load(Ordering::Relaxed);
            disk.modes.sense(cdb, geometry, is_protected)
        }
        Kind::ModeSelect => {
            if disk.modes.select(cdb, &listed(work, &data)?)? {
                disk.tell_all(Some(nexus), MODE_CHANGED);
            }
            Ok(Vec::new())
        }
        Kind::PersistentIn => Ok(reserve::read(cdb, &disk.reservations())),
        Kind::PersistentOut => reserve::write(nexus, cdb, &listed(work, &data)?).await.map(|()| Vec::new()),
        Kind::Reserve => reserve::reserve_whole(nexus).map(|()| Vec::new()),
        Kind::Release => reserve::release_whole(nexus).map(|()| Vec::new()),
        Kind::StartStop => start_stop(work).await,
        Kind::Unmap => work.unmap(&listed(work, &data)?).await.map(|()| Vec::new()),
        Kind::SendDiagnostic | Kind::TestUnitReady => Ok(Vec::new()),
        _ => Err(Sense::FAILED.into()),
    }
}

/// The parameter list, as long as the command says.
fn listed(work: &Work<'_>, data: &Abd) -> Result<Vec<u8>, Fault> {
    let length = block::list_bytes(work.entry, work.cdb) as usize;
    if data.len() < length {
        return Err(Sense::PARAMETER_LENGTH.into());
    }
    Ok(data.slice(0..length).to_vec())
}

/// Carries out START STOP UNIT: nothing starts or stops; what is to stop is durable before.
async fn start_stop(work: &Work<'_>) -> Result<Vec<u8>, Fault> {
    let flags = be8(work.cdb, 4);
    // No power conditions, and no medium to load or eject.
    if flags & 0xF2 != 0 || work.cdb[3] != 0 {
        return Err(Sense::FIELD_IN_CDB.into());
    }
    if flags & 1 == 0 {
        work.synchronize().await?;
    }
    Ok(Vec::new())
}

fn request_sense(cdb: &Cdb, sense: Sense) -> Vec<u8> {
    let mut bytes = sense.encode(cdb[1] & 1 != 0);
    bytes.truncate(usize::from(cdb[4]));
    bytes
}

fn report_luns(cdb: &Cdb, luns: &[u64]) -> Result<Vec<u8>, Fault> {
    let limit = be32(cdb, 6) as usize;
    let shown: &[u64] = match cdb[2] {
        0 | 2 => luns,
        // Well known units: there are none.
        1 => &[],
        _ => return Err(Sense::FIELD_IN_CDB.into()),
    };
    if limit < 16 {
        return Err(Sense::FIELD_IN_CDB.into());
    }
    let mut bytes = ((shown.len() * 8) as u32).to_be_bytes().to_vec();
    bytes.extend([0; 4]);
    shown.iter().for_each(|lun| bytes.extend(lun.to_be_bytes()));
    bytes.truncate(limit);
    Ok(bytes)
}

/// Carries out a command to a number that no unit has.
pub(crate) fn run_without_unit(cdb: &Cdb, luns: &[u64]) -> Outcome {
    let result = match find(cdb, false) {
        Found::Command(entry) if !entry.accepts(cdb) => Err(Sense::FIELD_IN_CDB.into()),
        Found::Command(entry) => match entry.kind {
            Kind::Inquiry => inquiry::inquiry_of_none(cdb),
            Kind::ReportLuns => report_luns(cdb, luns),
            Kind::RequestSense => Ok(request_sense(cdb, Sense::NO_UNIT)),
            _ => Err(Sense::NO_UNIT.into()),
        },
        _ => Err(Sense::NO_UNIT.into()),
    };
    match result {
        Ok(bytes) => Outcome::good(Body::Bytes(bytes)),
        Err(fault) => Outcome::failed(fault, false),
    }
}
