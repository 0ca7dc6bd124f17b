//! What a cache device says that it holds, for `zdb -l` (OpenZFS: `dump_l2arc_header`, `dump_l2arc_log_blocks`): its header, and the log blocks that it
//! leads to, each verified, as an import follows them.

use crate::label::line;
use l2arc::{Unread, unpack_log};
use ondisk::label::LABEL_START_BYTES;
use ondisk::{Dva, L2arcBlock, L2arcHeader, L2arcLogBlock, L2arcLogEntry, L2arcLogPtr, L2arcSweep};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

const RULE: &str = "------------------------------------";

/// Log blocks that were found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    count: u64,
    bytes: u64,
    /// Number of those of which the checksum is wrong.
    wrong: u64,
}

/// Shows the header of a cache device, and its log blocks: nothing of what is right with a `detail` of 0, their places from 2 on, what they list from 3
/// on. False when it should have more of them than it has.
pub fn dump(out: &mut String, file: &File, detail: u8) -> bool {
    let mut raw = [0; L2arcHeader::SIZE];
    let read = file.read_exact_at(&mut raw, LABEL_START_BYTES).ok();
    let Some(header) = read.and_then(|()| L2arcHeader::detect(&raw)) else {
        line(out, format_args!("L2ARC device header not found\n"));
        return true;
    };
    if detail > 0 {
        dump_header(out, &header);
    }
    let found = dump_logs(out, file, &header, detail);
    header.dh_lb_asize <= found.bytes && header.dh_lb_count <= found.count
}

fn dump_header(out: &mut String, header: &L2arcHeader) {
    line(out, format_args!("{RULE}\nL2ARC device header\n{RULE}"));
    let fields = [
        ("magic", header.dh_magic),
        ("version", header.dh_version),
        ("pool_guid", header.dh_spa_guid),
        ("flags", header.dh_flags),
        ("start_lbps[0]", header.dh_start_lbps[0].lbp_daddr),
        ("start_lbps[1]", header.dh_start_lbps[1].lbp_daddr),
        ("log_blk_ent", header.dh_log_entries),
        ("start", header.dh_start),
        ("end", header.dh_end),
        ("evict", header.dh_evict),
        ("lb_asize_refcount", header.dh_lb_asize),
        ("lb_count_refcount", header.dh_lb_count),
        ("trim_action_time", header.dh_trim_action_time),
        ("trim_state", header.dh_trim_state),
    ];
    for (name, value) in fields {
        line(out, format_args!("    {name}: {value}"));
    }
    line(out, format_args!(""));
}

fn dump_logs(out: &mut String, file: &File, header: &L2arcHeader, detail: u8) -> Found {
    let mut found = Found::default();
    if detail > 0 {
        line(out, format_args!("{RULE}\nL2ARC device log blocks\n{RULE}"));
    }
    if header.dh_start_lbps[0].is_empty() {
        if detail > 0 {
            line(out, format_args!("No log blocks to read\n"));
        }
        return found;
    }
    let sweep = L2arcSweep::of(header, header.dh_start);
    let [mut this, mut before] = header.dh_start_lbps.clone();
    let mut seen = BTreeSet::new();
    while sweep.holds(&this) && seen.insert(this.lbp_daddr) {
        let Some(block) = log_block(out, file, header, &this, (&mut found, detail)) else { break };
        if sweep.is_round(&this, &before) {
            break;
        }
        (this, before) = (before, block.previous);
    }
    if detail > 0 {
        line(out, format_args!("log_blk_count:\t {} with valid cksum\n\t\t {} with invalid cksum", found.count, found.wrong));
        line(out, format_args!("log_blk_asize:\t {}\n", found.bytes));
    }
    found
}

/// Reads and shows a log block; None, and a word on why, for what is none.
fn log_block(
    out: &mut String,
    file: &File,
    header: &L2arcHeader,
    pointer: &L2arcLogPtr,
    (found, detail): (&mut Found, u8),
) -> Option<L2arcLogBlock> {
    let mut stored = vec![0; pointer.asize() as usize];
    let read = file.read_exact_at(&mut stored, pointer.lbp_daddr).map_err(|_| None);
    let unpacked = read.and_then(|()| unpack_log(pointer, &stored, header.dh_log_entries as usize).map_err(Some));
    let block = match unpacked {
        Ok(block) => block,
        Err(why) => {
            found.wrong += u64::from(why == Some(Unread::Checksum));
            dump_unread(out, pointer, why, detail);
            return None;
        }
    };
    (found.count, found.bytes) = (found.count + 1, found.bytes + pointer.asize());
    if detail > 1 {
        line(out, format_args!("lb[{:4}]\tmagic: {}", found.count, L2arcLogBlock::MAGIC));
        dump_pointer(out, pointer);
    }
    if detail > 2 {
        block.entries.iter().enumerate().for_each(|(at, entry)| dump_entry(out, (found.count, at + 1), entry));
        line(out, format_args!(""));
    }
    Some(block)
}

/// Says why a log block is none; None when it could not be read.
fn dump_unread(out: &mut String, pointer: &L2arcLogPtr, why: Option<Unread>, detail: u8) {
    match why {
        Some(Unread::Packing) => line(out, format_args!("L2ARC block decompression failed")),
        _ if detail == 0 => {}
        None => line(out, format_args!("Error while reading next log block\n")),
        Some(Unread::Magic) => line(out, format_args!("Invalid log block magic\n")),
        Some(Unread::Checksum) => {
            line(out, format_args!("Invalid cksum"));
            dump_pointer(out, pointer);
        }
    }
}

fn dump_pointer(out: &mut String, pointer: &L2arcLogPtr) {
    let fields = [
        ("daddr", pointer.lbp_daddr),
        ("payload_asize", pointer.lbp_payload_asize),
        ("payload_start", pointer.lbp_payload_start),
        ("lsize", pointer.lsize()),
        ("asize", pointer.asize()),
        ("compralgo", u64::from(pointer.compression().0)),
        ("cksumalgo", u64::from(pointer.checksum_kind().0)),
    ];
    for (name, value) in fields {
        line(out, format_args!("|\t\t{name}: {value}"));
    }
    line(out, format_args!("|\n"));
}

fn dump_entry(out: &mut String, (log, number): (u64, usize), entry: &L2arcLogEntry) {
    let (dva, block) = (Dva::from_words(entry.le_dva), L2arcBlock::from_word(entry.le_prop));
    line(out, format_args!("lb[{log:4}]\tle[{number:4}]\tDVA asize: {}, vdev: {}, offset: {}", dva.asize, dva.vdev.0, dva.offset));
    let fields = [
        ("birth", entry.le_birth),
        ("lsize", block.logical_bytes),
        ("psize", block.physical_bytes),
        ("compr", u64::from(block.compression.0)),
        ("complevel", entry.le_complevel),
        ("type", u64::from(block.is_metadata)),
        ("protected", u64::from(block.is_protected)),
        ("prefetch", u64::from(block.is_prefetched)),
        ("address", entry.le_daddr),
        ("ARC state", u64::from(block.list)),
    ];
    for (name, value) in fields {
        line(out, format_args!("|\t\t\t\t{name}: {value}"));
    }
    line(out, format_args!("|"));
}

#[cfg(test)]
mod tests {
    //! Whoever finds no word of his log blocks, or a wrong number of them, blames the import.

    use super::*;
    use kernels::checksum::fletcher4;
    use ondisk::{ByteOrder, Compression};

    const DADDR: [u64; 2] = [6 << 20, 7 << 20];

    /// A device with two log blocks of two entries each, of which the newer one is changed.
    fn device(name: &str, change: impl Fn(&mut [u8])) -> File {
        let mut image = vec![0; 9 << 20];
        let mut header =
            L2arcHeader { dh_magic: L2arcHeader::MAGIC, dh_version: 1, dh_log_entries: 2, dh_lb_count: 2, ..L2arcHeader::default() };
        (header.dh_start, header.dh_end, header.dh_evict) = (5 << 20, 8 << 20, 5 << 20);
        (header.dh_flags, header.dh_lb_asize) = (L2arcHeader::EVICT_FIRST, 2 << 16);
        for daddr in DADDR {
            let told = L2arcBlock::from_word(255 | 8 << 16 | 15 << 32 | 1 << 48 | 3 << 57);
            let entry = |n: u64| L2arcLogEntry {
                le_dva: [9, n],
                le_birth: 7,
                le_prop: told.to_word(),
                le_daddr: daddr - 4096 * n,
                ..Default::default()
            };
            let previous = header.dh_start_lbps[1].clone();
            let bytes = L2arcLogBlock { previous, entries: vec![entry(2), entry(1)] }.encode();
            let pointer = L2arcLogPtr::new(
                (daddr, bytes.len() as u64),
                Compression::OFF,
                (daddr - 8192, 8192),
                fletcher4(&[bytes.as_slice()], ByteOrder::Little),
            );
            image[daddr as usize..][..bytes.len()].copy_from_slice(&bytes);
            header.dh_start_lbps = [pointer, header.dh_start_lbps[0].clone()];
        }
        image[LABEL_START_BYTES as usize..][..L2arcHeader::SIZE].copy_from_slice(&header.encode());
        change(&mut image);
        let path = std::env::temp_dir().join(format!("zirconia-zdb-cache-{}-{name}", std::process::id()));
        std::fs::write(&path, &image).expect("a temporary file");
        let file = File::open(&path).expect("opens");
        std::fs::remove_file(&path).expect("was made");
        file
    }

    fn shown(file: &File, detail: u8) -> (String, bool) {
        let mut out = String::new();
        let is_right = dump(&mut out, file, detail);
        (out, is_right)
    }

    #[test]
    fn log_blocks_are_counted_and_shown_as_openzfs_shows_them() {
        let file = device("right", |_| {});
        let (text, is_right) = shown(&file, 1);
        assert!(
            is_right && text.contains("    trim_state: 0\n\n------------------------------------\nL2ARC device log blocks\n"),
            "{text}"
        );
        assert!(text.ends_with("log_blk_count:\t 2 with valid cksum\n\t\t 0 with invalid cksum\nlog_blk_asize:\t 131072\n\n"), "{text}");
        let (text, _) = shown(&file, 2);
        let place = "lb[   1]\tmagic: 5498692020116080708\n|\t\tdaddr: 7340032\n|\t\tpayload_asize: 8192\n|\t\tpayload_start: 7331840\n";
        assert!(text.contains(place) && text.contains("|\t\tcompralgo: 2\n|\t\tcksumalgo: 7\n|\n\n") && !text.contains("birth"), "{text}");
        let (text, _) = shown(&file, 3);
        let entry =
            "lb[   2]\tle[   1]\tDVA asize: 4608, vdev: 0, offset: 1024\n|\t\t\t\tbirth: 7\n|\t\t\t\tlsize: 131072\n|\t\t\t\tpsize: 4608\n";
        assert!(text.contains(entry) && text.contains("|\t\t\t\taddress: 6283264\n|\t\t\t\tARC state: 3\n|\nlb["), "{text}");
        assert_eq!(shown(&file, 0), (String::new(), true));
    }

    #[test]
    fn what_is_missing_is_told_and_counts() {
        let (text, is_right) = shown(&device("wrong", |image| image[DADDR[0] as usize + 5000] ^= 1), 1);
        assert!(!is_right && text.contains("Invalid cksum\n|\t\tdaddr: 6291456\n"), "{text}");
        assert!(text.contains("log_blk_count:\t 1 with valid cksum\n\t\t 1 with invalid cksum\n"), "{text}");
        let (text, is_right) = shown(&device("none", |image| image[LABEL_START_BYTES as usize] ^= 1), 0);
        assert_eq!((text.as_str(), is_right), ("L2ARC device header not found\n\n", true));
        let (_, is_right) = shown(&device("quiet", |image| image[DADDR[1] as usize + 5000] ^= 1), 0);
        assert!(!is_right);
    }
}
