//! The table of commands: operation code, service action, which bits a command descriptor block may have set, and what a reservation forbids.

use crate::bytes::be8;

/// Commands that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    TestUnitReady,
    RequestSense,
    Inquiry,
    ReportLuns,
    ReportOpcodes,
    ModeSense,
    ModeSelect,
    Reserve,
    Release,
    PersistentIn,
    PersistentOut,
    StartStop,
    SendDiagnostic,
    ReadCapacity10,
    ReadCapacity16,
    LbaStatus,
    Read,
    Write,
    WriteVerify,
    Verify,
    OrWrite,
    CompareWrite,
    WriteSame,
    Unmap,
    Synchronize,
    Prefetch,
}

/// Classes of commands as far as reservations of others are concerned (SPC-4; SBC-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Allowed always.
    Identify,
    /// Allowed but for RESERVE(6).
    Harmless,
    /// Reads the medium.
    Read,
    /// Changes the medium.
    Write,
    /// Anything else: forbidden to who is not registered.
    Other,
}

/// One command.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    /// True for the low five bits of byte 1 being a service action.
    pub(crate) has_action: bool,
    /// True for commands of thin units only.
    pub(crate) is_thin: bool,
    /// Bits that may be set, byte by byte; the operation code and the service action as they are (SPC-4).
    pub(crate) usage: &'static [u8],
}

impl Entry {
    /// Operation code.
    pub(crate) fn opcode(&self) -> u8 {
        self.usage[0]
    }

    /// Service action, or 0.
    pub(crate) fn action(&self) -> u8 {
        if self.has_action { self.usage[1] & 0x1F } else { 0 }
    }

    /// True for commands that decide what others may do with the unit (reservations, modes): they need the right to write, as writes do.
    pub(crate) fn rules(&self) -> bool {
        matches!(self.kind, Kind::Reserve | Kind::PersistentOut | Kind::ModeSelect)
    }

    /// True when `cdb` sets no bit that it may not.
    pub(crate) fn accepts(&self, cdb: &[u8; 16]) -> bool {
        self.usage.iter().zip(cdb).all(|(allowed, byte)| byte & !allowed == 0)
    }

    /// First logical block and number of blocks, of commands that have them where READ has them.
    pub(crate) fn span(&self, cdb: &[u8; 16]) -> (u64, u64) {
        use crate::bytes::{be16, be32, be64, field};
        match self.usage.len() {
            6 => (field(cdb, 1, 3) & 0x1F_FFFF, if cdb[4] == 0 { 256 } else { u64::from(be8(cdb, 4)) }),
            10 => (u64::from(be32(cdb, 2)), u64::from(be16(cdb, 7))),
            12 => (u64::from(be32(cdb, 2)), u64::from(be32(cdb, 6))),
            _ => (be64(cdb, 2), u64::from(be32(cdb, 10))),
        }
    }
}

const fn plain(kind: Kind, class: Class, usage: &'static [u8]) -> Entry {
    Entry { kind, class, has_action: false, is_thin: false, usage }
}

const fn action(kind: Kind, class: Class, usage: &'static [u8]) -> Entry {
    Entry { kind, class, has_action: true, is_thin: false, usage }
}

const F: u8 = 0xFF;
/// Group number.
const G: u8 = 0x1F;

/// Commands in the order of their operation codes.
pub(crate) const TABLE: &[Entry] = &[
    plain(Kind::TestUnitReady, Class::Harmless, &[0x00, 0, 0, 0, 0, 0]),
    plain(Kind::RequestSense, Class::Identify, &[0x03, 0x01, 0, 0, F, 0]),
    plain(Kind::Read, Class::Read, &[0x08, 0x1F, F, F, F, 0]),
    plain(Kind::Write, Class::Write, &[0x0A, 0x1F, F, F, F, 0]),
    plain(Kind::Inquiry, Class::Identify, &[0x12, 0x01, F, F, F, 0]),
    plain(Kind::ModeSelect, Class::Other, &[0x15, 0x11, 0, 0, F, 0]),
    plain(Kind::Reserve, Class::Other, &[0x16, 0, 0, 0, 0, 0]),
    plain(Kind::Release, Class::Identify, &[0x17, 0, 0, 0, 0, 0]),
    plain(Kind::ModeSense, Class::Other, &[0x1A, 0x08, F, F, F, 0]),
    plain(Kind::StartStop, Class::Other, &[0x1B, 0x01, 0, 0x0F, 0xF7, 0]),
    plain(Kind::SendDiagnostic, Class::Other, &[0x1D, 0x04, 0, 0, 0, 0]),
    plain(Kind::ReadCapacity10, Class::Harmless, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    plain(Kind::Read, Class::Read, &[0x28, 0x1E, F, F, F, F, G, F, F, 0]),
    plain(Kind::Write, Class::Write, &[0x2A, 0x1A, F, F, F, F, G, F, F, 0]),
    plain(Kind::WriteVerify, Class::Write, &[0x2E, 0x16, F, F, F, F, G, F, F, 0]),
    plain(Kind::Verify, Class::Read, &[0x2F, 0x16, F, F, F, F, G, F, F, 0]),
    plain(Kind::Prefetch, Class::Read, &[0x34, 0x02, F, F, F, F, G, F, F, 0]),
    plain(Kind::Synchronize, Class::Write, &[0x35, 0x06, F, F, F, F, G, F, F, 0]),
    plain(Kind::WriteSame, Class::Write, &[0x41, 0x08, F, F, F, F, G, F, F, 0]),
    Entry { kind: Kind::Unmap, class: Class::Write, has_action: false, is_thin: true, usage: &[0x42, 0, 0, 0, 0, 0, G, F, F, 0] },
    plain(Kind::ModeSelect, Class::Other, &[0x55, 0x11, 0, 0, 0, 0, 0, F, F, 0]),
    plain(Kind::ModeSense, Class::Other, &[0x5A, 0x18, F, F, 0, 0, 0, F, F, 0]),
    action(Kind::PersistentIn, Class::Harmless, &[0x5E, 0x00, 0, 0, 0, 0, 0, F, F, 0]),
    action(Kind::PersistentIn, Class::Harmless, &[0x5E, 0x01, 0, 0, 0, 0, 0, F, F, 0]),
    action(Kind::PersistentIn, Class::Harmless, &[0x5E, 0x02, 0, 0, 0, 0, 0, F, F, 0]),
    action(Kind::PersistentIn, Class::Harmless, &[0x5E, 0x03, 0, 0, 0, 0, 0, F, F, 0]),
    action(Kind::PersistentOut, Class::Harmless, &[0x5F, 0x00, F, 0, 0, F, F, F, F, 0]),
    action(Kind::PersistentOut, Class::Harmless, &[0x5F, 0x01, F, 0, 0, F, F, F, F, 0]),
    action(Kind::PersistentOut, Class::Harmless, &[0x5F, 0x02, F, 0, 0, F, F, F, F, 0]),
    action(Kind::PersistentOut, Class::Harmless, &[0x5F, 0x03, F, 0, 0, F, F, F, F, 0]),
    action(Kind::PersistentOut, Class::Harmless, &[0x5F, 0x04, F, 0, 0, F, F, F, F, 0]),
    action(Kind::PersistentOut, Class::Harmless, &[0x5F, 0x05, F, 0, 0, F, F, F, F, 0]),
    action(Kind::PersistentOut, Class::Harmless, &[0x5F, 0x06, F, 0, 0, F, F, F, F, 0]),
    plain(Kind::Read, Class::Read, &[0x88, 0x1E, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::CompareWrite, Class::Write, &[0x89, 0x1A, F, F, F, F, F, F, F, F, 0, 0, 0, F, G, 0]),
    plain(Kind::Write, Class::Write, &[0x8A, 0x1A, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::OrWrite, Class::Write, &[0x8B, 0x1A, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::WriteVerify, Class::Write, &[0x8E, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::Verify, Class::Read, &[0x8F, 0x16, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::Prefetch, Class::Read, &[0x90, 0x02, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::Synchronize, Class::Write, &[0x91, 0x06, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::WriteSame, Class::Write, &[0x93, 0x09, F, F, F, F, F, F, F, F, F, F, F, F, G, 0]),
    action(Kind::ReadCapacity16, Class::Harmless, &[0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, F, F, F, F, 0, 0]),
    action(Kind::LbaStatus, Class::Read, &[0x9E, 0x12, F, F, F, F, F, F, F, F, F, F, F, F, 0, 0]),
    plain(Kind::ReportLuns, Class::Identify, &[0xA0, 0, F, 0, 0, 0, F, F, F, F, 0, 0]),
    action(Kind::ReportOpcodes, Class::Harmless, &[0xA3, 0x0C, 0x87, F, F, F, F, F, F, F, 0, 0]),
    plain(Kind::Read, Class::Read, &[0xA8, 0x1E, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::Write, Class::Write, &[0xAA, 0x1A, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::WriteVerify, Class::Write, &[0xAE, 0x16, F, F, F, F, F, F, F, F, G, 0]),
    plain(Kind::Verify, Class::Read, &[0xAF, 0x16, F, F, F, F, F, F, F, F, G, 0]),
];

/// Result of looking a command up.
#[derive(Debug)]
pub(crate) enum Found {
    Command(&'static Entry),
    /// The operation code is known, its service action is not.
    NoAction,
    Nothing,
}

/// The entry of a command, on a unit that is thin or not.
pub(crate) fn find(cdb: &[u8; 16], is_thin: bool) -> Found {
    let mut found = Found::Nothing;
    for entry in TABLE.iter().filter(|entry| entry.opcode() == cdb[0] && (is_thin || !entry.is_thin)) {
        if !entry.has_action || entry.action() == cdb[1] & 0x1F {
            return Found::Command(entry);
        }
        found = Found::NoAction;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bitmap of the wrong length makes a valid command fail, or an invalid one pass.
    #[test]
    fn bitmaps_are_as_long_as_their_commands() {
        for entry in TABLE {
            let expected = match entry.opcode() >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                _ => 12,
            };
            assert_eq!(entry.usage.len(), expected, "{:02x}", entry.opcode());
        }
        assert!(TABLE.windows(2).all(|pair| pair[0].usage[..2] < pair[1].usage[..2]), "the table is in order");
    }
}
