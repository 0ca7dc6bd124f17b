//! `zdb -dd` of one object: its line, and from `-dddd` on its flags, contents and blocks (OpenZFS: `dump_object` in `zdb.c`).

use crate::dump::Dump;
use crate::tree::Tree;
use crate::viewer;
use crate::znode::Names;
use dmu::Objset;
use ondisk::{BlockPtr, Checksum, Compression, DNODE_SLOT_BYTES, DNODE_SLOTS_PER_BLOCK, DnodePhys, ObjectId, ObjectType, dnode_flags};
use std::sync::Arc;
use zpl::Zfs;

/// Object set that is being shown, and what is known of it by then.
pub struct Shown {
    /// Object set itself.
    pub objset: Arc<Objset>,
    /// True when it is encrypted, and its key is not there: some bonuses and contents cannot be read.
    pub is_locked: bool,
    /// File system of it, once a node was shown; None inside when it has none that can be read.
    pub files: Option<Option<Arc<Zfs>>>,
    /// True when the next object needs the titles of the columns before it.
    titles: bool,
    /// Names of files.
    pub names: Names,
    /// Number of files that no directory names.
    pub leaked: u64,
}

/// Text of a block pointer in one line, short or with everything that it says (OpenZFS: `snprintf_blkptr_compact`).
pub fn pointer(dump: &Dump<'_>, bp: &BlockPtr) -> String {
    if dump.whole_pointers { bp.to_string() } else { compact(bp, dump.datasets > 5) }
}

fn compact(bp: &BlockPtr, has_copies: bool) -> String {
    let (lsize, birth) = (bp.lsize(), bp.birth());
    if bp.is_embedded() {
        return format!("EMBEDDED et={} {lsize:x}L/{:x}P B={birth}", bp.embedded_kind().0, bp.psize());
    }
    let place = |n: usize| bp.dva(n);
    let copies = if has_copies { bp.dvas().count() } else { 1 };
    let dvas: String = (0..copies).map(place).map(|dva| format!("{}:{:x}:{:x} ", dva.vdev, dva.offset, dva.asize)).collect();
    if bp.is_hole() {
        return format!("{dvas}{lsize:x}L B={birth}");
    }
    let [a, b, c, d] = bp.checksum();
    let sizes = format!("{lsize:x}L/{:x}P F={} B={birth}/{}", bp.psize(), bp.fill(), bp.physical_birth());
    format!("{dvas}{sizes} cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}")
}

fn checksum_name(kind: Checksum) -> String {
    kind.name().map_or_else(|| "UNKNOWN".to_string(), str::to_string)
}
fn compression_name(kind: Compression) -> String {
    if kind == Compression::OFF { "uncompressed".to_string() } else { kind.name().unwrap_or("UNKNOWN").to_string() }
}

impl Shown {
    /// Begins to show objects of `objset`.
    pub fn new(objset: Arc<Objset>, is_locked: bool) -> Shown {
        Shown { objset, is_locked, files: None, titles: true, names: Names::default(), leaked: 0 }
    }

    /// Text of an object's line after its type: its own checksum and compression.
    fn own_settings(&self, phys: &DnodePhys, verbosity: u32) -> String {
        let mut text = String::new();
        if phys.checksum != Checksum::INHERIT || verbosity >= 6 {
            text += &format!(" (K={})", checksum_name(phys.checksum));
        }
        if phys.compression != Compression::INHERIT {
            text += &format!(" (Z={})", compression_name(phys.compression));
        } else if verbosity >= 6 {
            text += &format!(" (Z=inherit={})", compression_name(self.objset.props().compression));
        }
        text
    }

    /// Shows an object.
    pub fn object(&mut self, dump: &mut Dump<'_>, object: ObjectId, phys: &DnodePhys) {
        if self.titles {
            let [lvl, iblk, dblk, dsize, dnsize, lsize, full] = ["lvl", "iblk", "dblk", "dsize", "dnsize", "lsize", "%full"];
            let tail = format!("{dsize:>5}  {dnsize:>6}  {lsize:>5}  {full:>6}  type");
            dump.line(format_args!("\n{:>10}  {lvl:>3}  {iblk:>5}  {dblk:>5}  {tail}", "Object"));
            self.titles = false;
        }
        self.line(dump, object, phys);
        let verbosity = dump.datasets;
        if phys.bonus_type != ObjectType::NONE && verbosity > 3 {
            let bonus = dump.number(phys.bonus.len() as u64);
            let blank = format!("{:10}  {:3}  {:5}  {:5}  {:5}  {:5}", "", "", "", "", "", "");
            dump.line(format_args!("{blank}  {bonus:>5}  {:>6}  {}", "bonus", phys.bonus_type.listing_name()));
        }
        if verbosity >= 4 {
            self.details(dump, object, phys);
            self.titles = true;
        }
        if verbosity >= 5 {
            let tree = Tree { io: self.objset.io().as_ref(), objset: self.objset.id(), object, phys };
            dump_blocks(dump, &tree);
            dump_segments(dump, &tree);
        }
    }

    fn line(&self, dump: &mut Dump<'_>, object: ObjectId, phys: &DnodePhys) {
        let block = phys.data_block_bytes() as u64;
        let length = phys.max_block.0.saturating_add(1).saturating_mul(block);
        let sectors = if phys.flags & dnode_flags::USED_BYTES != 0 { (phys.used.saturating_add(256)) >> 9 } else { phys.used };
        let fill = phys.block_ptrs.iter().take(phys.block_ptr_count.into()).map(BlockPtr::fill).fold(0, u64::wrapping_add);
        let per_block = if object.0 == 0 { DNODE_SLOTS_PER_BLOCK as f64 } else { 1.0 };
        let full = 100.0 * fill as f64 * block as f64 / per_block / length as f64;
        let (iblk, dblk) = (dump.number(1 << phys.indirect_shift), dump.number(block));
        let (dsize, lsize) = (dump.number(sectors.wrapping_shl(9)), dump.number(length));
        let dnsize = dump.number((phys.slots() * DNODE_SLOT_BYTES) as u64);
        let kind = format!("{}{}", phys.object_type.listing_name(), self.own_settings(phys, dump.datasets));
        let sizes = format!("{iblk:>5}  {dblk:>5}  {dsize:>5}  {dnsize:>6}  {lsize:>5}  {full:6.2}");
        dump.line(format_args!("{:>10}  {:3}  {sizes}  {kind}", object.0 as i64, phys.levels));
    }

    fn details(&mut self, dump: &mut Dump<'_>, object: ObjectId, phys: &DnodePhys) {
        let names = [
            (dnode_flags::USED_BYTES, "USED_BYTES "),
            (dnode_flags::USERUSED_ACCOUNTED, "USERUSED_ACCOUNTED "),
            (dnode_flags::USEROBJUSED_ACCOUNTED, "USEROBJUSED_ACCOUNTED "),
            (dnode_flags::SPILL_BLKPTR, "SPILL_BLKPTR"),
        ];
        let spill = if phys.spill.is_some() { dnode_flags::SPILL_BLKPTR } else { 0 };
        let set = names.iter().filter(|(flag, _)| (phys.flags | spill) & flag != 0).map(|(_, name)| *name);
        dump.line(format_args!("\tdnode flags: {}", set.collect::<String>()));
        dump.line(format_args!("\tdnode maxblkid: {}", phys.max_block));
        if self.is_locked && phys.bonus_type.is_encrypted() {
            dump.line(format_args!("\t\t(bonus encrypted)"));
        } else {
            viewer::bonus(dump, self, object, phys);
        }
        if self.is_locked && phys.object_type.is_encrypted() {
            dump.line(format_args!("\t\t(object encrypted)"));
        } else {
            viewer::contents(dump, self, object, phys);
        }
    }
}

/// Shows the pointers of an object's tree (OpenZFS: `dump_indirect`).
fn dump_blocks(dump: &mut Dump<'_>, tree: &Tree<'_>) {
    if let Some(spill) = &tree.phys.spill {
        let text = pointer(dump, spill);
        dump.line(format_args!("\nSpill block: {text}"));
    }
    dump.line(format_args!("Indirect blocks:"));
    let levels = tree.phys.levels;
    let walked = tree.walk(&mut |level, block, bp| {
        // The level's name stands in a column of its own.
        let before = " ".repeat(usize::from(levels.saturating_sub(1 + level)));
        let after = " ".repeat(usize::from(level) + 1);
        let offset = tree.offset(level, block);
        let text = pointer(dump, bp);
        let header = if dump.zstd_headers { zstd_header(tree, (level, block), bp) } else { String::new() };
        dump.line(format_args!("{offset:16x} {before}L{level:x}{after}{text}{header}"));
        true
    });
    if let Err(error) = walked {
        dump.damage(format_args!("object {}: {error}", tree.object));
    }
    dump.line(format_args!(""));
}

/// Text of what stands in front of a block of zstd; empty for other blocks, and for ciphertext (OpenZFS: `snprintf_zstd_header`).
fn zstd_header(tree: &Tree<'_>, (level, block): (u8, u64), bp: &BlockPtr) -> String {
    if bp.compression() != Compression::ZSTD || bp.is_hole() || bp.is_encrypted() {
        return String::new();
    }
    let stored = tree.stored(level, block, bp).unwrap_or_default();
    let place = if bp.is_embedded() { "EMBEDDED" } else { "NORMAL" };
    kernels::compress::zstd_header_of(&stored).map_or_else(String::new, |header| {
        format!(" ZSTD:size={}:version={}:level={}:{place}", header.frame_bytes, header.version, header.level)
    })
}

/// Runs of data, each grown as long as it goes on.
#[derive(Default)]
struct Segments {
    found: Vec<(u64, u64)>,
}

impl Segments {
    fn add(&mut self, start: u64, end: u64) {
        match self.found.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.found.push((start, end)),
        }
    }
}

/// Shows the parts of an object that have data: of object sets' dnodes, the slots in use.
fn dump_segments(dump: &mut Dump<'_>, tree: &Tree<'_>) {
    let block_bytes = tree.phys.data_block_bytes() as u64;
    let mut segments = Segments::default();
    // Errors were told with the blocks.
    let _ = tree.walk(&mut |level, block, bp| {
        if level > 0 || bp.is_hole() {
            return true;
        }
        let start = block.wrapping_mul(block_bytes);
        if tree.phys.object_type != ObjectType::DNODE {
            segments.add(start, start.wrapping_add(block_bytes));
            return true;
        }
        let data = tree.read(level, block, bp).unwrap_or_default();
        let mut index = 0;
        while index * DNODE_SLOT_BYTES < data.len() {
            let decoded = DnodePhys::decode(&data[index * DNODE_SLOT_BYTES..]);
            let Ok(Some(phys)) = decoded else {
                index += 1;
                continue;
            };
            let at = start.wrapping_add((index * DNODE_SLOT_BYTES) as u64);
            segments.add(at, at.wrapping_add((phys.slots() * DNODE_SLOT_BYTES) as u64));
            index += phys.slots();
        }
        true
    });
    for (start, end) in segments.found {
        let size = dump.number(end.wrapping_sub(start));
        dump.line(format_args!("\t\tsegment [{start:016x}, {end:016x}) size {size:>5}"));
    }
}
