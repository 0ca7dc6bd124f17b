//! PERSISTENT RESERVE IN and OUT, RESERVE(6) and RELEASE(6): from the bytes of a command to a change of [`Reservations`], kept before it is answered.

use crate::bytes::{be16, be32, be64, put};
use crate::gate::gate;
use crate::scsi::disk::{Disk, Nexus};
use crate::scsi::reservations::{Effects, Refused, Reservations, kind};
use crate::scsi::sense::{Fault, Sense};
use crate::unit::{Kept, UnitError, ask};

/// Length in bytes of the parameter list of PERSISTENT RESERVE OUT.
const LIST_BYTES: usize = 24;
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Fault {
        match refused {
            Refused::Conflict => Fault::Conflict,
            Refused::InvalidRelease => Sense::INVALID_RELEASE.into(),
            Refused::InvalidParameter => Sense::FIELD_IN_PARAMETERS.into(),
        }
    }
}

/// Carries out PERSISTENT RESERVE IN (SPC-4).
pub(crate) fn read(cdb: &[u8; 16], state: &Reservations) -> Vec<u8> {
    let kept = &state.kept;
    let mut bytes = kept.generation.to_be_bytes().to_vec();
    bytes.extend([0; 4]);
    match cdb[1] & 0x1F {
        0 => kept.registrations.iter().for_each(|one| bytes.extend(one.key.to_be_bytes())),
        1 => {
            if let Some((holder, held)) = &kept.reservation {
                let key = if kind::is_of_all(*held) { 0 } else { state.key(holder).unwrap_or_default() };
                bytes.extend(key.to_be_bytes());
                bytes.extend([0, 0, 0, 0, 0, *held, 0, 0]);
            }
        }
        2 => {
            // Kept through a loss of power if asked for (PTPL_C); RESERVE(6) is refused while anybody is registered; all six types.
            let bytes = vec![0, 8, 0x01, 0x80 | u8::from(state.is_kept), 0xEA, 0x01, 0, 0];
            return truncated(bytes, cdb);
        }
        _ => kept.registrations.iter().for_each(|one| bytes.extend(full_status(state, &one.transport, one.key))),
    }
    let length = bytes.len() as u32 - 8;
    put(&mut bytes, 4, &length.to_be_bytes());
    truncated(bytes, cdb)
}

fn truncated(mut bytes: Vec<u8>, cdb: &[u8; 16]) -> Vec<u8> {
    bytes.truncate(usize::from(be16(cdb, 7)));
    bytes
}

/// Descriptor of READ FULL STATUS.
fn full_status(state: &Reservations, transport: &str, key: u64) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    put(&mut bytes, 0, &key.to_be_bytes());
    if let Some((holder, held)) = &state.kept.reservation
        && (kind::is_of_all(*held) || holder == transport)
    {
        bytes[12] = 1;
        bytes[13] = *held;
    }
    // Relative port 1; the identifier of an iSCSI initiator port (format 1), with its zero, in a multiple of four bytes.
    bytes[19] = 1;
    let mut name = transport.as_bytes().to_vec();
    name.push(0);
    name.resize(name.len().next_multiple_of(4), 0);
    put(&mut bytes, 20, &(name.len() as u32 + 4).to_be_bytes());
    bytes.extend([0x45, 0]);
    bytes.extend((name.len() as u16).to_be_bytes());
    bytes.extend(name);
    bytes
}

/// Checks the command descriptor block of PERSISTENT RESERVE OUT, before its parameters are there.
pub(crate) fn check(cdb: &[u8; 16]) -> Result<(), Fault> {
    let (scope, held) = (cdb[2] >> 4, cdb[2] & 0xF);
    let has_type = matches!(cdb[1] & 0x1F, RESERVE | RELEASE | PREEMPT | PREEMPT_AND_ABORT);
    if has_type && (scope != 0 || !kind::is_known(held)) {
        return Err(Sense::FIELD_IN_CDB.into());
    }
    if be32(cdb, 5) as usize != LIST_BYTES {
        return Err(Sense::PARAMETER_LENGTH.into());
    }
    Ok(())
}

/// Carries out PERSISTENT RESERVE OUT (SPC-4): what is to be kept is stored before anybody sees the change.
pub(crate) async fn write(nexus: &Nexus, cdb: &[u8; 16], list: &[u8]) -> Result<(), Fault> {
    if list.len() < LIST_BYTES {
        return Err(Sense::PARAMETER_LENGTH.into());
    }
    let action = cdb[1] & 0x1F;
    let flags = list[20];
    // Neither other initiator ports (SPEC_I_PT) nor other target ports (ALL_TG_PT) can be registered by one command.
    let registers = matches!(action, REGISTER | REGISTER_AND_IGNORE);
    if flags & 0x0C != 0 || (flags & 1 != 0 && !registers) {
        return Err(Sense::FIELD_IN_PARAMETERS.into());
    }
    let disk = &nexus.disk;
    let changing = disk.changing.lock().await;
    let before = disk.reservations();
    let mut after = before.clone();
    let effects = change(&mut after, &nexus.transport, cdb, list)?;
    if registers {
        after.is_kept = flags & 1 != 0;
    }
    save(disk, &before, &after).await.map_err(|_| Fault::Check(Sense::NO_REGISTRATIONS))?;
    // RESERVE(6) may have changed meanwhile: it is not kept, and none of what is.
    disk.change(|state| {
        state.kept = after.kept;
        state.is_kept = after.is_kept;
    });
    disk.tell(&effects.told);
    // Among the tasks that are waited for may be one that waits to change reservations, too.
    drop(changing);
    if action == PREEMPT_AND_ABORT {
        let (token, gate) = gate();
        disk.abort_preempted(nexus, &effects, &token);
        drop(token);
        gate.opened().await;
    }
    Ok(())
}

/// Stores what is to be kept, where that has changed.
async fn save(disk: &Disk, before: &Reservations, after: &Reservations) -> Result<(), UnitError> {
    let has_changed = (after.is_kept && after.kept != before.kept) || after.is_kept != before.is_kept;
    if !has_changed {
        return Ok(());
    }
    let kept = after.is_kept.then(|| after.kept.clone());
    ask(|done| disk.store.save(kept, done)).await
}

impl Disk {
    /// Takes registrations and reservations from an initiator that has no right to them any more, through whatever port it has them. True when it
    /// had any.
    ///
    /// # Errors
    /// Those of storing that; nobody here is held up by them nevertheless.
    pub async fn strip(&self, initiator: &str) -> Result<bool, UnitError> {
        let _changing = self.changing.lock().await;
        let before = self.reservations();
        let told = self.change(|state| state.strip(initiator));
        self.tell(&told);
        let after = self.reservations();
        save(self, &before, &after).await.map(|()| after.kept != before.kept)
    }

    /// Follows what is kept, where somebody else than an initiator changed that: `load` tells what it is by now, and is asked while nobody here
    /// changes it. True when it was another one; reservations that are not kept stay where nothing is, and all do while that cannot be read.
    pub async fn follow(&self, load: impl FnOnce() -> Result<Option<Kept>, UnitError>) -> bool {
        let _changing = self.changing.lock().await;
        let known = self.reservations();
        let Ok(kept) = load() else { return false };
        if kept == known.is_kept.then_some(known.kept) {
            return false;
        }
        let told = self.change(|state| state.replace(kept));
        self.tell(&told);
        true
    }
}

fn change(state: &mut Reservations, who: &str, cdb: &[u8; 16], list: &[u8]) -> Result<Effects, Refused> {
    let (key, second, held) = (be64(list, 0), be64(list, 8), cdb[2] & 0xF);
    match cdb[1] & 0x1F {
        REGISTER => state.register(who, key, second, false),
        RESERVE => state.reserve(who, key, held),
        RELEASE => state.release(who, key, held),
        CLEAR => state.clear(who, key),
        PREEMPT | PREEMPT_AND_ABORT => state.preempt(who, key, second, held),
        _ => state.register(who, key, second, true),
    }
}

/// Carries out RESERVE(6).
pub(crate) fn reserve_whole(nexus: &Nexus) -> Result<(), Fault> {
    Ok(nexus.disk.change(|state| state.reserve_whole(&nexus.transport))?)
}

/// Carries out RELEASE(6): no error when somebody else holds it.
pub(crate) fn release_whole(nexus: &Nexus) -> Result<(), Fault> {
    nexus.disk.change(|state| {
        if !state.kept.registrations.is_empty() {
            return Err(Fault::Conflict);
        }
        state.release_whole(&nexus.transport);
        Ok(())
    })
}
