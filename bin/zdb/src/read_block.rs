//! `-R`: what lies at a place, as a block that is shown in one of several forms (OpenZFS: `zdb_read_block`).
//!
//! Nobody vouches for such a block: no block pointer says how long it is, how it was compressed, or what its checksum is.

use crate::block_spec::BlockSpec;
use crate::dump::Dump;
use crate::guess;
use crate::place::Place;
use abd::Abd;
use ondisk::{BlockPtr, Checksum, Compression, SECTOR_BYTES, VdevExtent, VdevId};
use pool::Pool;
use vdev::{TopKind, VdevTree};

/// Variable that keeps ZLE from being tried.
const NO_ZLE: &str = "ZDB_NO_ZLE";
const NO_POINTER: &str = "invalid block pointer at this DVA";
/// Number of block pointers in a gang header (OpenZFS: `SPA_GBH_NBLKPTRS`).
const GANG_POINTERS: usize = 3;

/// Shows a block by its words.
///
/// # Errors
/// What to tell the user.
pub fn show(dump: &mut Dump<'_>, pool: &Pool, words: &str) -> Result<(), String> {
    let spec = BlockSpec::parse(words)?;
    for letter in &spec.ignored {
        dump.line(format_args!("***Ignoring flag: {letter}"));
    }
    let tree = pool.tree();
    let place = Place::find(&tree, &spec.vdev).ok_or_else(|| format!("***Invalid vdev: {}", spec.vdev))?;
    cli::errln!("{}", place.found(&tree));
    let stored = place.read(pool, spec.offset, spec.psize).map_err(|error| format!("Read of {words} failed, error: {error}"))?;
    let block = contents(&spec, &tree, &stored, words)?;
    let flags = spec.flags;
    if flags.pointer {
        let bp = pointer_of(&spec, &block).ok_or_else(|| NO_POINTER.to_string())?;
        dump.line(format_args!("{bp}"));
    } else if flags.raw {
        raw(dump, &block, flags.swapped);
    } else if flags.indirect {
        pointers(dump, &block, spec.lsize / BlockPtr::BYTES, flags.swapped);
    } else if flags.gang {
        pointers(dump, &block, GANG_POINTERS, flags.swapped);
    } else {
        digits(dump, words, &block, flags.swapped);
    }
    if flags.checksums && !flags.raw && !flags.gang {
        checksums(dump, pool, &stored);
    }
    Ok(())
}

/// Bytes that are shown: as they are stored, or unpacked where that is asked for, or where they have no block pointer and are to have one.
fn contents(spec: &BlockSpec, tree: &VdevTree, stored: &[u8], words: &str) -> Result<Vec<u8>, String> {
    if spec.flags.unpacked {
        return unpacked(spec, stored).ok_or_else(|| format!("Decompress of {words} failed"));
    }
    let mut plain = stored.to_vec();
    plain.resize(spec.lsize, 0);
    let has_pointer = |block: &[u8]| pointer_of(spec, block).is_some_and(|bp| bp.validate(|vdev| extent(tree, vdev)).is_ok());
    if !(spec.flags.pointer || spec.flags.indirect) || has_pointer(&plain) {
        return Ok(plain);
    }
    unpacked(spec, stored).filter(|block| has_pointer(block)).ok_or_else(|| NO_POINTER.to_string())
}

fn unpacked(spec: &BlockSpec, stored: &[u8]) -> Option<Vec<u8>> {
    let with_zle = std::env::var_os(NO_ZLE).is_none();
    let mut trying = |size: usize, kind: Compression| {
        if spec.flags.verbose {
            cli::errln!("Trying {:05x} -> {size:05x} ({kind})", stored.len());
        }
    };
    let found = guess::unpack(stored, spec.lsize, with_zle, &mut trying)?;
    if found.kind == Compression::ZLE {
        cli::errln!("ZLE decompression was selected, which fits nearly everything. If that looks wrong, set {NO_ZLE}=true.");
    }
    Some(found.bytes)
}

fn pointer_of(spec: &BlockSpec, block: &[u8]) -> Option<BlockPtr> {
    Some(BlockPtr::decode(block.get(spec.pointer_at..)?.first_chunk()?, !spec.flags.swapped))
}

fn extent(tree: &VdevTree, vdev: VdevId) -> VdevExtent {
    match tree.tops.get(vdev.0 as usize) {
        Some(top) if top.is_concrete() || top.is_removed() => {
            VdevExtent::Known { asize: top.asize, gang_header_asize: top.asize_for_psize(SECTOR_BYTES as u64) }
        }
        Some(top) if top.kind == TopKind::Missing => VdevExtent::Unknown,
        _ => VdevExtent::Absent,
    }
}

fn pointers(dump: &mut Dump<'_>, block: &[u8], count: usize, is_swapped: bool) {
    for raw in block.as_chunks::<{ BlockPtr::BYTES }>().0.iter().take(count) {
        dump.line(format_args!("{}", BlockPtr::decode(raw, !is_swapped)));
    }
}

fn raw(dump: &mut Dump<'_>, block: &[u8], is_swapped: bool) {
    if !is_swapped {
        return dump.bytes(block);
    }
    let mut swapped = block.to_vec();
    swapped.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
    dump.bytes(&swapped);
}

/// Shows words in hexadecimal digits, and as letters (OpenZFS: `zdb_dump_block`).
fn digits(dump: &mut Dump<'_>, title: &str, block: &[u8], is_swapped: bool) {
    let head = if is_swapped { " 7 6 5 4 3 2 1 0   f e d c b a 9 8" } else { " 0 1 2 3 4 5 6 7   8 9 a b c d e f" };
    dump.line(format_args!("\n{title}\n{:6}   {head}  0123456789abcdef", ""));
    let number = |word: &[u8; 8]| if is_swapped { u64::from_le_bytes(*word) } else { u64::from_be_bytes(*word) };
    for (row, bytes) in block.as_chunks::<16>().0.iter().enumerate() {
        let letters: String = bytes.iter().map(|&byte| if (b' '..=b'~').contains(&byte) { char::from(byte) } else { '.' }).collect();
        let words = bytes.as_chunks::<8>().0;
        dump.line(format_args!("{:06x}:  {:016x}  {:016x}  {letters}", row * 16, number(&words[0]), number(&words[1])));
    }
}

/// Shows every checksum that a pointer to the block could have.
fn checksums(dump: &mut Dump<'_>, pool: &Pool, stored: &[u8]) {
    const KINDS: [Checksum; 7] = [
        Checksum::FLETCHER_2,
        Checksum::FLETCHER_4,
        Checksum::SHA256,
        Checksum::SHA512,
        Checksum::SKEIN,
        Checksum::EDONR,
        Checksum::BLAKE3,
    ];
    let (data, view) = (Abd::from_slice(stored), pool.zio().view());
    dump.line(format_args!(""));
    for kind in KINDS {
        let name = kind.name().unwrap_or_default();
        match zio::salted_sum_of(view.facts.salt.as_deref(), kind, &data) {
            Ok([a, b, c, d]) => dump.line(format_args!("{name:>12}\tcksum={a:016x}:{b:016x}:{c:016x}:{d:016x}")),
            // The pool has no salt for it.
            Err(error) => dump.line(format_args!("{name:>12}\t{error}")),
        }
    }
}
