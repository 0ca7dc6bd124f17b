//! Status and sense data: why a command failed (SPC-4).

use crate::unit::UnitError;

/// Status codes (SAM-5).
pub(crate) mod status {
    pub(crate) const GOOD: u8 = 0x00;
    pub(crate) const CHECK_CONDITION: u8 = 0x02;
    pub(crate) const RESERVATION_CONFLICT: u8 = 0x18;
}

/// Sense key, additional sense code and qualifier, and, for errors of the medium and miscompares, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sense {
    key: u8,
    code: u8,
    qualifier: u8,
    information: Option<u64>,
}

/// Failure of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// CHECK CONDITION with sense data.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
}

impl Sense {
    pub(crate) const NONE: Sense = Sense::new(0x0, 0x00, 0x00);
    pub(crate) const UNREADABLE: Sense = Sense::new(0x3, 0x11, 0x00);
    pub(crate) const UNWRITABLE: Sense = Sense::new(0x3, 0x0C, 0x00);
    pub(crate) const GONE: Sense = Sense::new(0x2, 0x04, 0x00);
    pub(crate) const PARAMETER_LENGTH: Sense = Sense::new(0x5, 0x1A, 0x00);
    pub(crate) const OPCODE: Sense = Sense::new(0x5, 0x20, 0x00);
    pub(crate) const OUT_OF_RANGE: Sense = Sense::new(0x5, 0x21, 0x00);
    pub(crate) const FIELD_IN_CDB: Sense = Sense::new(0x5, 0x24, 0x00);
    pub(crate) const NO_UNIT: Sense = Sense::new(0x5, 0x25, 0x00);
    pub(crate) const FIELD_IN_PARAMETERS: Sense = Sense::new(0x5, 0x26, 0x00);
    pub(crate) const INVALID_RELEASE: Sense = Sense::new(0x5, 0x26, 0x04);
    pub(crate) const SAVING: Sense = Sense::new(0x5, 0x39, 0x00);
    pub(crate) const NO_REGISTRATIONS: Sense = Sense::new(0x5, 0x55, 0x04);
    pub(crate) const PROTECTED: Sense = Sense::new(0x7, 0x27, 0x00);
    pub(crate) const SOFTWARE_PROTECTED: Sense = Sense::new(0x7, 0x27, 0x02);
    pub(crate) const NO_SPACE: Sense = Sense::new(0x7, 0x27, 0x07);
    pub(crate) const UNEXPECTED_DATA: Sense = Sense::new(0xB, 0x0C, 0x0C);
    pub(crate) const WRONG_AMOUNT: Sense = Sense::new(0xB, 0x0C, 0x0D);
    pub(crate) const LOST_DATA: Sense = Sense::new(0xB, 0x47, 0x05);
    pub(crate) const FAILED: Sense = Sense::new(0x4, 0x44, 0x00);
    pub(crate) const MISCOMPARE: Sense = Sense::new(0xE, 0x1D, 0x00);

    const fn new(key: u8, code: u8, qualifier: u8) -> Sense {
        Sense { key, code, qualifier, information: None }
    }

    /// A unit attention.
    pub(crate) const fn attention(code: u8, qualifier: u8) -> Sense {
        Sense::new(0x6, code, qualifier)
    }

    /// Sense data with a place or an offset.
    pub(crate) const fn at(mut self, information: u64) -> Sense {
        self.information = Some(information);
        self
    }

    /// Sense data in descriptor format, or in fixed format.
    pub(crate) fn encode(self, is_descriptor: bool) -> Vec<u8> {
        if is_descriptor {
            let mut bytes = vec![0x72, self.key, self.code, self.qualifier, 0, 0, 0, 0];
            if let Some(information) = self.information {
                bytes[7] = 12;
                bytes.extend([0x00, 0x0A, 0x80, 0x00]);
                bytes.extend(information.to_be_bytes());
            }
            return bytes;
        }
        let mut bytes = vec![0; 18];
        bytes[0] = 0x70;
        bytes[2] = self.key;
        bytes[7] = 10;
        bytes[12] = self.code;
        bytes[13] = self.qualifier;
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            bytes[0] |= 0x80;
            bytes[3..7].copy_from_slice(&information.to_be_bytes());
        }
        bytes
    }
}

impl From<Sense> for Fault {
    fn from(sense: Sense) -> Fault {
        Fault::Check(sense)
    }
}

impl Fault {
    /// Failure of a command on blocks of `block_bytes` for an error of the unit.
    pub(crate) fn of_unit(error: UnitError, block_bytes: u32) -> Fault {
        Fault::Check(match error {
            UnitError::Unreadable { at: Some(at) } => Sense::UNREADABLE.at(at / u64::from(block_bytes)),
            UnitError::Unreadable { at: None } => Sense::UNREADABLE,
            UnitError::Unwritable => Sense::UNWRITABLE,
            UnitError::NoSpace => Sense::NO_SPACE,
            UnitError::OutOfRange => Sense::OUT_OF_RANGE,
            UnitError::ReadOnly => Sense::PROTECTED,
            UnitError::Gone => Sense::GONE,
        })
    }
}
