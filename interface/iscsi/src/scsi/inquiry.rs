//! INQUIRY and its pages of vital product data (SPC-4; SBC-3).

use crate::bytes::{be16, put};
use crate::scsi::sense::{Fault, Sense};
use crate::unit::{Geometry, Identity};

/// Longest transfer of one command, in bytes.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Blocks of one COMPARE AND WRITE, at most.
pub(crate) const COMPARE_BLOCKS_MAX: u64 = 255;
/// Blocks of one UNMAP, at most.
pub(crate) const UNMAP_BLOCKS_MAX: u64 = 1 << 20;
/// Descriptors of one UNMAP, at most.
pub(crate) const UNMAP_DESCRIPTORS_MAX: u64 = 256;
/// Blocks that one WRITE SAME fills, at most.
pub(crate) const SAME_BLOCKS_MAX: u64 = 0xFFFF;

/// Pages of vital product data, in order.
const PAGES: [u8; 6] = [0x00, 0x80, 0x83, 0xB0, 0xB1, 0xB2];

/// Place of a unit: names for the designators.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) target: &'a str,
    pub(crate) portal_group: u16,
}

/// Carries out INQUIRY on a unit.
pub(crate) fn inquiry(cdb: &[u8; 16], identity: &Identity, geometry: &Geometry, place: &Place<'_>) -> Result<Vec<u8>, Fault> {
    let mut bytes = match (cdb[1] & 1, cdb[2]) {
        (0, 0) => standard(identity),
        (0, _) => return Err(Sense::FIELD_IN_CDB.into()),
        (_, page) => {
            let body = vital(page, identity, geometry, place).ok_or(Sense::FIELD_IN_CDB)?;
            let mut bytes = vec![0, page, 0, 0];
            bytes[2..4].copy_from_slice(&(body.len() as u16).to_be_bytes());
            bytes.extend(body);
            bytes
        }
    };
    bytes.truncate(usize::from(be16(cdb, 3)));
    Ok(bytes)
}

/// Carries out INQUIRY where there is no unit: the answer says so (peripheral qualifier 3).
pub(crate) fn inquiry_of_none(cdb: &[u8; 16]) -> Result<Vec<u8>, Fault> {
    if cdb[1] & 1 != 0 || cdb[2] != 0 {
        return Err(Sense::NO_UNIT.into());
    }
    let mut bytes = vec![0; 36];
    put(&mut bytes, 0, &[0x7F, 0, 6, 0x02, 31]);
    bytes[8..].fill(b' ');
    bytes.truncate(usize::from(be16(cdb, 3)));
    Ok(bytes)
}

/// Text in a field of `width` characters: printable ASCII, filled up with spaces.
fn text(value: &str, width: usize) -> Vec<u8> {
    let printable = value.bytes().map(|byte| if (0x20..0x7F).contains(&byte) { byte } else { b'?' });
    printable.chain(std::iter::repeat(b' ')).take(width).collect()
}

fn standard(identity: &Identity) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    // A disk of SPC-4; response format 2, hierarchical LUN addressing; several ports; commands are queued.
    put(&mut bytes, 0, &[0, 0, 6, 0x12, 91, 0, 0x10, 0x02]);
    put(&mut bytes, 8, &text(&identity.vendor, 8));
    put(&mut bytes, 16, &text(&identity.product, 16));
    put(&mut bytes, 32, &text(&identity.revision, 4));
    for (index, version) in [0x00A0u16, 0x0960, 0x0460, 0x04C0].iter().enumerate() {
        // SAM-5, iSCSI, SPC-4, SBC-3.
        put(&mut bytes, 58 + 2 * index, &version.to_be_bytes());
    }
    bytes
}

fn vital(page: u8, identity: &Identity, geometry: &Geometry, place: &Place<'_>) -> Option<Vec<u8>> {
    Some(match page {
        0x00 => PAGES.to_vec(),
        0x80 => identity.serial.clone().into_bytes(),
        0x83 => designators(identity, place),
        0xB0 => limits(geometry),
        // No medium that turns.
        0xB1 => [&[0, 1][..], &[0; 58]].concat(),
        0xB2 => provisioning(geometry),
        _ => return None,
    })
}

fn designator(code_set: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    // Designators of ports (association 1) name their protocol, which is iSCSI.
    let protocol = if kind & 0x30 == 0 { 0 } else { 0x50 };
    let flag = if kind & 0x30 == 0 { 0 } else { 0x80 };
    [&[protocol | code_set, flag | kind, 0, value.len() as u8], value].concat()
}

fn designators(identity: &Identity, place: &Place<'_>) -> Vec<u8> {
    let mut naa = identity.naa;
    naa[0] = 0x60 | naa[0] & 0x0F;
    let vendor = [text(&identity.vendor, 8), identity.serial.clone().into_bytes()].concat();
    let group = place.portal_group.to_be_bytes();
    let mut name = format!("{},t,0x{:04x}", place.target, place.portal_group).into_bytes();
    // Names end with a zero and are filled up to a multiple of four.
    name.push(0);
    name.resize(name.len().next_multiple_of(4).min(252), 0);
    [
        designator(1, 0x03, &naa),
        designator(2, 0x01, &vendor[..vendor.len().min(252)]),
        designator(1, 0x14, &[0, 0, 0, 1]),
        designator(1, 0x15, &[0, 0, group[0], group[1]]),
        designator(3, 0x18, &name),
    ]
    .concat()
}

/// Number of blocks of a length in bytes.
fn blocks(bytes: u64, geometry: &Geometry) -> u64 {
    bytes / u64::from(geometry.block_bytes.max(1))
}

fn limits(geometry: &Geometry) -> Vec<u8> {
    let mut body = vec![0; 60];
    let granularity = 1u32 << geometry.physical_exponent.min(15);
    let transfer = blocks(TRANSFER_BYTES_MAX, geometry) as u32;
    body[1] = COMPARE_BLOCKS_MAX as u8;
    put(&mut body, 2, &(granularity.min(u32::from(u16::MAX)) as u16).to_be_bytes());
    put(&mut body, 4, &transfer.to_be_bytes());
    put(&mut body, 8, &(blocks(1024 * 1024, geometry) as u32).to_be_bytes());
    put(&mut body, 12, &transfer.to_be_bytes());
    if geometry.is_thin {
        put(&mut body, 16, &(UNMAP_BLOCKS_MAX as u32).to_be_bytes());
        put(&mut body, 20, &(UNMAP_DESCRIPTORS_MAX as u32).to_be_bytes());
        put(&mut body, 24, &granularity.to_be_bytes());
        // The alignment is valid, and 0.
        put(&mut body, 28, &0x8000_0000u32.to_be_bytes());
    }
    put(&mut body, 32, &SAME_BLOCKS_MAX.to_be_bytes());
    body
}

fn provisioning(geometry: &Geometry) -> Vec<u8> {
    if !geometry.is_thin {
        return vec![0, 0, 0, 0];
    }
    // UNMAP and WRITE SAME(16) and (10) unmap, and what is unmapped reads as zeros; space is taken as it is written.
    vec![0, 0x80 | 0x40 | 0x20 | 0x04, 2, 0]
}
