//! MODE SENSE and MODE SELECT: the caching page, the control page, and informational exceptions (SPC-4; SBC-3).

use crate::bytes::{be8, be16};
use crate::scsi::sense::{Fault, Sense};
use crate::unit::Geometry;
use std::sync::atomic::{AtomicBool, Ordering};

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0A;
const EXCEPTIONS: u8 = 0x1C;
const ALL: u8 = 0x3F;

/// Bits of the pages that may be changed: write cache (WCE); descriptor format of sense data, software write protect.
const WCE: u8 = 0x04;
const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;

/// Modes of a unit; they begin anew with the process.
#[derive(Debug)]
pub(crate) struct Modes {
    /// Writes may be answered before they are durable.
    pub(crate) has_write_cache: AtomicBool,
    /// Sense data come in descriptor format.
    pub(crate) is_descriptor: AtomicBool,
    /// True when nothing may be written.
    pub(crate) is_protected: AtomicBool,
}

impl Default for Modes {
    fn default() -> Modes {
        Modes { has_write_cache: AtomicBool::new(true), is_descriptor: AtomicBool::new(false), is_protected: AtomicBool::new(false) }
    }
}

/// Values of a page that are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Current,
    Changeable,
    Default,
}

impl Modes {
    fn page(&self, code: u8, which: Which) -> Option<Vec<u8>> {
        let bit = |flag: &AtomicBool, default: bool, bit: u8| {
            let is_set = match which {
                Which::Current => flag.load(Ordering::Relaxed),
                Which::Changeable => true,
                Which::Default => default,
            };
            if is_set { bit } else { 0 }
        };
        let fixed = |value: u8| if which == Which::Changeable { 0 } else { value };
        let mut page = match code {
            CACHING => vec![0; 20],
            CONTROL | EXCEPTIONS => vec![0; 12],
            _ => return None,
        };
        page[0] = code;
        page[1] = page.len() as u8 - 2;
        match code {
            CACHING => page[2] = bit(&self.has_write_cache, true, WCE),
            CONTROL => {
                page[2] = bit(&self.is_descriptor, false, D_SENSE);
                // Commands may be reordered without restriction.
                page[3] = fixed(0x10);
                page[4] = bit(&self.is_protected, false, SWP);
                page[8..10].fill(fixed(0xFF));
            }
            _ => {}
        }
        Some(page)
    }

    fn pages(&self, code: u8, which: Which) -> Option<Vec<u8>> {
        if code == ALL {
            return Some([CACHING, CONTROL, EXCEPTIONS].iter().filter_map(|code| self.page(*code, which)).flatten().collect());
        }
        self.page(code, which)
    }

    /// Carries out MODE SENSE(6) or (10).
    pub(crate) fn sense(&self, cdb: &[u8; 16], geometry: &Geometry, is_protected: bool) -> Result<Vec<u8>, Fault> {
        let which = match cdb[2] >> 6 {
            0 => Which::Current,
            1 => Which::Changeable,
            2 => Which::Default,
            _ => return Err(Sense::SAVING.into()),
        };
        let (code, subpage) = (cdb[2] & 0x3F, cdb[3]);
        // No page has subpages; all of them are none but the page itself.
        if subpage != 0 && !(subpage == 0xFF && code == ALL) {
            return Err(Sense::FIELD_IN_CDB.into());
        }
        let pages = self.pages(code, which).ok_or(Sense::FIELD_IN_CDB)?;
        let is_short = cdb[0] == 0x1A;
        let is_long_address = !is_short && cdb[1] & 0x10 != 0;
        let descriptor = if cdb[1] & 0x08 != 0 { Vec::new() } else { block_descriptor(geometry, is_long_address) };
        // FUA and DPO are known.
        let flags = 0x10 | if is_protected { 0x80 } else { 0 };
        let mut bytes = if is_short {
            vec![0, 0, flags, descriptor.len() as u8]
        } else {
            vec![0, 0, 0, flags, u8::from(is_long_address && !descriptor.is_empty()), 0, 0, descriptor.len() as u8]
        };
        bytes.extend(descriptor);
        bytes.extend(pages);
        let length = bytes.len();
        let (limit, width) = if is_short { (usize::from(cdb[4]), 1) } else { (usize::from(be16(cdb, 7)), 2) };
        bytes[..width].copy_from_slice(&(length - width).to_be_bytes()[8 - width..]);
        bytes.truncate(limit);
        Ok(bytes)
    }

    /// Carries out MODE SELECT(6) or (10) with a parameter list. True when something has changed.
    pub(crate) fn select(&self, cdb: &[u8; 16], list: &[u8]) -> Result<bool, Fault> {
        // Pages are in the standard's format, and none is saved.
        if cdb[1] & 0x10 == 0 || cdb[1] & 0x01 != 0 {
            return Err(Sense::FIELD_IN_CDB.into());
        }
        if list.is_empty() {
            return Ok(false);
        }
        let is_short = cdb[0] == 0x15;
        let header = if is_short { 4 } else { 8 };
        let descriptor = if is_short { usize::from(be8(list, 3)) } else { usize::from(be16(list, 6)) };
        let mut rest = list.get(header + descriptor..).ok_or(Sense::PARAMETER_LENGTH)?;
        if ![0, 8, 16].contains(&descriptor) {
            return Err(Sense::FIELD_IN_PARAMETERS.into());
        }
        let mut wanted = Vec::new();
        while !rest.is_empty() {
            let length = 2 + usize::from(be8(rest, 1));
            let page = rest.get(..length).ok_or(Sense::PARAMETER_LENGTH)?;
            self.check(page)?;
            wanted.push(page);
            rest = &rest[length..];
        }
        let mut is_changed = false;
        let mut set = |flag: &AtomicBool, value: bool| is_changed |= flag.swap(value, Ordering::Relaxed) != value;
        for page in wanted {
            match page[0] & 0x3F {
                CACHING => set(&self.has_write_cache, page[2] & WCE != 0),
                CONTROL => {
                    set(&self.is_descriptor, page[2] & D_SENSE != 0);
                    set(&self.is_protected, page[4] & SWP != 0);
                }
                _ => {}
            }
        }
        Ok(is_changed)
    }

    /// Checks that a page of a parameter list changes only what may be changed.
    fn check(&self, page: &[u8]) -> Result<(), Fault> {
        let code = page[0] & 0x7F;
        let (Some(current), Some(changeable)) = (self.page(code, Which::Current), self.page(code, Which::Changeable)) else {
            return Err(Sense::FIELD_IN_PARAMETERS.into());
        };
        let is_allowed = |index: usize| (page[index] ^ current[index]) & !changeable[index] == 0;
        if page.len() != current.len() || !(2..page.len()).all(is_allowed) {
            return Err(Sense::FIELD_IN_PARAMETERS.into());
        }
        Ok(())
    }
}

fn block_descriptor(geometry: &Geometry, is_long: bool) -> Vec<u8> {
    if is_long {
        return [&geometry.blocks.to_be_bytes()[..], &[0; 4], &geometry.block_bytes.to_be_bytes()].concat();
    }
    let blocks = u32::try_from(geometry.blocks).unwrap_or(u32::MAX);
    [&blocks.to_be_bytes()[..], &[0], &geometry.block_bytes.to_be_bytes()[1..]].concat()
}
