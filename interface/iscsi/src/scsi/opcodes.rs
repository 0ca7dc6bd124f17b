//! REPORT SUPPORTED OPERATION CODES (SPC-4), out of the table of commands.

use crate::bytes::{be16, be32};
use crate::scsi::sense::{Fault, Sense};
use crate::scsi::table::{Entry, TABLE};

/// Timeouts of a command: none is recommended.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Carries out the command on a unit that is thin or not.
pub(crate) fn report(cdb: &[u8; 16], is_thin: bool) -> Result<Vec<u8>, Fault> {
    let has_timeouts = cdb[2] & 0x80 != 0;
    let (opcode, action) = (cdb[3], be16(cdb, 4));
    let known = || TABLE.iter().filter(|entry| is_thin || !entry.is_thin);
    let mut bytes = match cdb[2] & 7 {
        0 => all(known(), has_timeouts),
        option @ 1..=3 => {
            let has_action = known().find(|entry| entry.opcode() == opcode).map(|entry| entry.has_action);
            if (option == 1 && has_action == Some(true)) || (option == 2 && has_action == Some(false)) {
                return Err(Sense::FIELD_IN_CDB.into());
            }
            let is_it = |entry: &&Entry| {
                entry.opcode() == opcode
                    && if option == 1 || !entry.has_action { option != 3 || action == 0 } else { u16::from(entry.action()) == action }
            };
            one(known().find(is_it), has_timeouts)
        }
        _ => return Err(Sense::FIELD_IN_CDB.into()),
    };
    bytes.truncate(be32(cdb, 6) as usize);
    Ok(bytes)
}

fn all<'a>(entries: impl Iterator<Item = &'a Entry>, has_timeouts: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    for entry in entries {
        let flags = u8::from(entry.has_action) | if has_timeouts { 2 } else { 0 };
        bytes.extend([entry.opcode(), 0, 0, entry.action(), 0, flags, 0, entry.usage.len() as u8]);
        if has_timeouts {
            bytes.extend(TIMEOUTS);
        }
    }
    let length = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

fn one(entry: Option<&Entry>, has_timeouts: bool) -> Vec<u8> {
    let Some(entry) = entry else { return vec![0, 1, 0, 0] };
    let timeouts = if has_timeouts { 0x80 } else { 0 };
    let mut bytes = vec![0, timeouts | 3, 0, entry.usage.len() as u8];
    bytes.extend(entry.usage);
    if has_timeouts {
        bytes.extend(TIMEOUTS);
    }
    bytes
}
