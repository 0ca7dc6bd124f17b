//! The contents of objects by their type: name tables, packed lists, records of datasets (OpenZFS: `object_viewer` in `zdb.c`).

use crate::dump::Dump;
use crate::object::{Shown, pointer};
use crate::znode;
use dmu::Objset;
use nvlist::NvList;
use ondisk::sa::{DirectoryEntry, SaRegistration};
use ondisk::{BlockPtr, BpobjPhys, DnodePhys, DslDatasetPhys, DslDirPhys, ObjectId, ObjectType, SpaHistoryPhys};
use std::sync::Arc;
use zap::{Attribute, Stats, Value, Zap};

/// Bytes of the longest packed list that is read.
const PACKED_BYTES_MAX: u64 = 64 << 20;

/// Shows a bonus.
pub fn bonus(dump: &mut Dump<'_>, shown: &mut Shown, object: ObjectId, phys: &DnodePhys) {
    let short = |dump: &mut Dump<'_>| dump.damage(format_args!("object {object}: the bonus is too short"));
    match phys.bonus_type {
        ObjectType::SA | ObjectType::ZNODE => znode::dump(dump, shown, object),
        ObjectType::DSL_DIR => match DslDirPhys::decode(&phys.bonus) {
            Ok(dir) => dsl_dir(dump, &dir),
            Err(_) => short(dump),
        },
        ObjectType::DSL_DATASET => match DslDatasetPhys::decode(&phys.bonus) {
            Ok(dataset) => dsl_dataset(dump, &dataset),
            Err(_) => short(dump),
        },
        ObjectType::BPOBJ_HDR => match BpobjPhys::decode_bonus(&phys.bonus) {
            Ok(list) => bpobj(dump, shown, object, &list, phys.bonus.len()),
            Err(_) => short(dump),
        },
        ObjectType::PACKED_NVLIST_SIZE | ObjectType::FUID_SIZE => packed_list(dump, &shown.objset, object, &phys.bonus),
        ObjectType::SPA_HISTORY_OFFSETS => match SpaHistoryPhys::decode(&phys.bonus) {
            Ok(history) => {
                dump.line(format_args!("\t\tpool_create_len = {}", history.sh_pool_create_len));
                dump.line(format_args!("\t\tphys_max_off = {}", history.sh_phys_max_off));
                dump.line(format_args!("\t\tbof = {}", history.sh_bof));
                dump.line(format_args!("\t\teof = {}", history.sh_eof));
                dump.line(format_args!("\t\trecords_lost = {}", history.sh_records_lost));
            }
            Err(_) => short(dump),
        },
        kind if kind.0 & 0x80 != 0 && is_unknown(kind) => dump.line(format_args!("\tUNKNOWN OBJECT TYPE")),
        _ => {}
    }
}

/// True for types whose contents nobody shows (OpenZFS: `ZDB_OT_TYPE`): of those by class, all but words and name tables.
fn is_unknown(kind: ObjectType) -> bool {
    const SHOWN: [ObjectType; 4] =
        [ObjectType::OTN_UINT64_DATA, ObjectType::OTN_UINT64_METADATA, ObjectType::OTN_ZAP_DATA, ObjectType::OTN_ZAP_METADATA];
    if kind.0 & 0x80 != 0 { !SHOWN.contains(&kind) } else { kind.name().is_none() }
}

/// Shows an object's contents.
pub fn contents(dump: &mut Dump<'_>, shown: &mut Shown, object: ObjectId, phys: &DnodePhys) {
    let kind = phys.object_type;
    let objset = shown.objset.clone();
    match kind {
        ObjectType::DIRECTORY_CONTENTS => zap(dump, &objset, object, &directory_entry),
        ObjectType::SA_ATTR_REGISTRATION => zap(dump, &objset, object, &registration),
        ObjectType::SA_ATTR_LAYOUTS => zap(dump, &objset, object, &layout),
        ObjectType::DDT_ZAP => zap_stats(dump, &objset, object),
        ObjectType::UINT64_OTHER | ObjectType::OBJECT_ARRAY | ObjectType::OTN_UINT64_DATA | ObjectType::OTN_UINT64_METADATA => {
            words(dump, &objset, object, phys);
        }
        ObjectType::BPOBJ_SUBOBJ => sub_lists(dump, &objset, object, phys),
        ObjectType::OTN_ZAP_DATA | ObjectType::OTN_ZAP_METADATA => zap(dump, &objset, object, &entry),
        kind if is_name_table(kind) => zap(dump, &objset, object, &entry),
        kind if is_unknown(kind) => dump.line(format_args!("\tUNKNOWN OBJECT TYPE")),
        _ => {}
    }
}

fn is_name_table(kind: ObjectType) -> bool {
    const TABLES: [ObjectType; 21] = [
        ObjectType::OBJECT_DIRECTORY,
        ObjectType::DSL_DIR_CHILD_MAP,
        ObjectType::DSL_DS_SNAP_MAP,
        ObjectType::DSL_PROPS,
        ObjectType::MASTER_NODE,
        ObjectType::UNLINKED_SET,
        ObjectType::ZVOL_PROP,
        ObjectType::ZAP_OTHER,
        ObjectType::ERROR_LOG,
        ObjectType::POOL_PROPS,
        ObjectType::DSL_PERMS,
        ObjectType::NEXT_CLONES,
        ObjectType::SCAN_QUEUE,
        ObjectType::USERGROUP_USED,
        ObjectType::USERGROUP_QUOTA,
        ObjectType::USERREFS,
        ObjectType::DDT_STATS,
        ObjectType::SA_MASTER_NODE,
        ObjectType::SCAN_XLATE,
        ObjectType::DEADLIST,
        ObjectType::DSL_CLONES,
    ];
    TABLES.contains(&kind)
}

/// Shows a name table: its shape, then a line for each entry.
fn zap(dump: &mut Dump<'_>, objset: &Arc<Objset>, object: ObjectId, show: &dyn Fn(&mut Dump<'_>, &Zap, &Attribute)) {
    zap_stats(dump, objset, object);
    dump.line(format_args!(""));
    let listed = Zap::hold(objset, object).and_then(|zap| {
        zap.for_each(|attribute| {
            show(dump, &zap, attribute);
            Ok(())
        })
    });
    if let Err(error) = listed {
        dump.damage(format_args!("object {object}: {error}"));
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn entry(dump: &mut Dump<'_>, zap: &Zap, attribute: &Attribute) {
    const IN_HEX: [&[u8]; 5] =
        [b"DSL_CRYPTO_MASTER_KEY_1", b"DSL_CRYPTO_HMAC_KEY_1", b"DSL_CRYPTO_IV", b"DSL_CRYPTO_MAC", b"org.illumos:checksum_salt"];
    let by_words = !attribute.words.is_empty();
    let value = if by_words { zap.lookup_words(&attribute.words) } else { zap.lookup(&attribute.name) };
    let name = if by_words { format!("0x{:010}x", attribute.words[0]) } else { text(&attribute.name) };
    let shown = match value {
        Err(error) => return dump.damage(format_args!("{name}: {error}")),
        Ok(Value::U8(bytes)) if !by_words && IN_HEX.contains(&attribute.name.as_slice()) => {
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        }
        Ok(Value::U8(bytes)) if !by_words => text(bytes.split(|&byte| byte == 0).next().unwrap_or_default()),
        Ok(Value::U8(list)) => list.iter().map(|number| format!("{number} ")).collect(),
        Ok(Value::U16(list)) => list.iter().map(|number| format!("{number} ")).collect(),
        Ok(Value::U32(list)) => list.iter().map(|number| format!("{number} ")).collect(),
        Ok(Value::U64(list)) => list.iter().map(|&number| format!("{} ", number as i64)).collect::<String>(),
    };
    dump.line(format_args!("\t\t{name} = {shown}"));
}

fn directory_entry(dump: &mut Dump<'_>, _: &Zap, attribute: &Attribute) {
    const TYPES: [&str; 16] = [
        "not specified",
        "FIFO",
        "Character Device",
        "3 (invalid)",
        "Directory",
        "5 (invalid)",
        "Block Device",
        "7 (invalid)",
        "Regular File",
        "9 (invalid)",
        "Symbolic Link",
        "11 (invalid)",
        "Socket",
        "Door",
        "Event Port",
        "15 (invalid)",
    ];
    let target = DirectoryEntry::from_word(attribute.first_integer);
    let kind = TYPES[usize::from(target.file_type) % TYPES.len()];
    dump.line(format_args!("\t\t{} = {} (type: {kind})", text(&attribute.name), target.object));
}

fn registration(dump: &mut Dump<'_>, _: &Zap, attribute: &Attribute) {
    let name = text(&attribute.name);
    if attribute.integers == 0 {
        return dump.line(format_args!("\t\t{name} = "));
    }
    let word = attribute.first_integer;
    let registered = SaRegistration::from_word(word);
    let (length, swap, number) = (registered.bytes, registered.byteswap, registered.attr);
    dump.line(format_args!("\t\t{name} =  {word:x} : [{length}:{swap}:{number}]"));
}

fn layout(dump: &mut Dump<'_>, zap: &Zap, attribute: &Attribute) {
    let name = text(&attribute.name);
    match zap.lookup(&attribute.name) {
        Ok(Value::U16(list)) if !list.is_empty() => {
            let numbers: String = list.iter().map(|number| format!(" {number} ")).collect();
            dump.line(format_args!("\t\t{name} = [{numbers}]"));
        }
        Ok(_) => dump.line(format_args!("\t\t{name} = [")),
        Err(error) => dump.damage(format_args!("{name}: {error}")),
    }
}

fn histogram(dump: &mut Dump<'_>, title: &str, counts: &[u64]) {
    const STARS: u64 = 40;
    dump.line(format_args!("\t\t{title}"));
    let used = |&index: &usize| counts[index] != 0;
    // An empty histogram shows nothing.
    let first = (0..counts.len()).find(used).unwrap_or(counts.len() - 1).min(counts.len() - 1);
    let last = (0..counts.len()).rev().find(used).unwrap_or(0);
    let most = counts.iter().copied().max().unwrap_or(0).max(STARS);
    for (index, &count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let missing = u128::from(most - count) * u128::from(STARS) / u128::from(most);
        let stars = "*".repeat((STARS as usize).saturating_sub(missing as usize));
        dump.line(format_args!("\t\t\t{index:3}: {count:6} {stars}"));
    }
}

/// Shows the shape of a name table (OpenZFS: `dump_zap_stats`).
fn zap_stats(dump: &mut Dump<'_>, objset: &Arc<Objset>, object: ObjectId) {
    let stats = match Zap::hold(objset, object).and_then(|zap| zap.stats()) {
        Ok(stats) => stats,
        Err(error) => return dump.damage(format_args!("object {object}: {error}")),
    };
    if stats.leaves == 0 && stats.table_shift == 0 {
        return dump.line(format_args!("\tmicrozap: {} bytes, {} entries", stats.block_bytes, stats.entries));
    }
    dump.line(format_args!("\tFat ZAP stats:\n\t\tPointer table:"));
    dump.line(format_args!("\t\t\t{} elements", 1u64.checked_shl(stats.table_shift).unwrap_or(0)));
    dump.line(format_args!("\t\t\tzt_blk: {}", stats.table_block));
    dump.line(format_args!("\t\t\tzt_numblks: {}", stats.table_blocks));
    dump.line(format_args!("\t\t\tzt_shift: {}", stats.table_shift));
    dump.line(format_args!("\t\t\tzt_blks_copied: {}", stats.table_copied));
    dump.line(format_args!("\t\t\tzt_nextblk: {}", stats.table_next));
    dump.line(format_args!("\t\tZAP entries: {}", stats.entries));
    dump.line(format_args!("\t\tLeaf blocks: {}", stats.leaves));
    dump.line(format_args!("\t\tTotal blocks: {}", stats.blocks));
    dump.line(format_args!("\t\tzap_block_type: 0x{:x}", Stats::BLOCK_TYPE));
    dump.line(format_args!("\t\tzap_magic: 0x{:x}", Stats::MAGIC));
    dump.line(format_args!("\t\tzap_salt: 0x{:x}", stats.salt));
    histogram(dump, "Leafs with 2^n pointers:", &stats.leaves_with_2n_pointers);
    histogram(dump, "Blocks with n*5 entries:", &stats.leaves_with_n5_entries);
    histogram(dump, "Blocks n/10 full:", &stats.leaves_n_tenths_full);
    histogram(dump, "Entries with n chunks:", &stats.entries_using_n_chunks);
    histogram(dump, "Buckets with n entries:", &stats.buckets_with_n_entries);
}

fn dsl_dir(dump: &mut Dump<'_>, dir: &DslDirPhys) {
    const USED_BREAKDOWN: u64 = 1;
    const KINDS: [&str; 5] = ["HEAD", "SNAP", "CHILD", "CHILD_RSRV", "REFRSRV"];
    let mut field = |name: &str, value: String| dump.line(format_args!("\t\t{name} = {value}"));
    field("creation_time", cli::time::long(dir.dd_creation_time as i64));
    field("head_dataset_obj", dir.dd_head_dataset_obj.to_string());
    field("parent_dir_obj", dir.dd_parent_obj.to_string());
    field("origin_obj", dir.dd_origin_obj.to_string());
    field("child_dir_zapobj", dir.dd_child_dir_zapobj.to_string());
    let sizes = [
        ("used_bytes", dir.dd_used_bytes),
        ("compressed_bytes", dir.dd_compressed_bytes),
        ("uncompressed_bytes", dir.dd_uncompressed_bytes),
        ("quota", dir.dd_quota),
        ("reserved", dir.dd_reserved),
    ];
    for (name, bytes) in sizes {
        let bytes = dump.number(bytes);
        dump.line(format_args!("\t\t{name} = {bytes}"));
    }
    dump.line(format_args!("\t\tprops_zapobj = {}", dir.dd_props_zapobj));
    dump.line(format_args!("\t\tdeleg_zapobj = {}", dir.dd_deleg_zapobj));
    dump.line(format_args!("\t\tflags = {:x}", dir.dd_flags));
    if dir.dd_flags & USED_BREAKDOWN != 0 {
        for (kind, bytes) in KINDS.iter().zip(dir.dd_used_breakdown) {
            let bytes = dump.number(bytes);
            dump.line(format_args!("\t\tused_breakdown[{kind}] = {bytes}"));
        }
    }
    dump.line(format_args!("\t\tclones = {}", dir.dd_clones));
}

fn dsl_dataset(dump: &mut Dump<'_>, ds: &DslDatasetPhys) {
    let numbers = [
        ("dir_obj", ds.ds_dir_obj),
        ("prev_snap_obj", ds.ds_prev_snap_obj),
        ("prev_snap_txg", ds.ds_prev_snap_txg),
        ("next_snap_obj", ds.ds_next_snap_obj),
        ("snapnames_zapobj", ds.ds_snapnames_zapobj),
        ("num_children", ds.ds_num_children),
        ("userrefs_obj", ds.ds_userrefs_obj),
    ];
    for (name, number) in numbers {
        dump.line(format_args!("\t\t{name} = {number}"));
    }
    dump.line(format_args!("\t\tcreation_time = {}", cli::time::long(ds.ds_creation_time as i64)));
    dump.line(format_args!("\t\tcreation_txg = {}", ds.ds_creation_txg));
    dump.line(format_args!("\t\tdeadlist_obj = {}", ds.ds_deadlist_obj));
    let sizes = [
        ("used_bytes", ds.ds_referenced_bytes),
        ("compressed_bytes", ds.ds_compressed_bytes),
        ("uncompressed_bytes", ds.ds_uncompressed_bytes),
        ("unique", ds.ds_unique_bytes),
    ];
    for (name, bytes) in sizes {
        let bytes = dump.number(bytes);
        dump.line(format_args!("\t\t{name} = {bytes}"));
    }
    dump.line(format_args!("\t\tfsid_guid = {}", ds.ds_fsid_guid));
    dump.line(format_args!("\t\tguid = {}", ds.ds_guid));
    dump.line(format_args!("\t\tflags = {:x}", ds.ds_flags));
    dump.line(format_args!("\t\tnext_clones_obj = {}", ds.ds_next_clones_obj));
    dump.line(format_args!("\t\tprops_obj = {}", ds.ds_props_obj));
    dump.line(format_args!("\t\tbp = {}", ds.ds_bp));
}

fn bpobj(dump: &mut Dump<'_>, shown: &Shown, object: ObjectId, list: &BpobjPhys, bonus_bytes: usize) {
    const V1_BYTES: usize = 32;
    const V2_BYTES: usize = 48;
    let (bytes, comp, uncomp) = (dump.number(list.bpo_bytes), dump.number(list.bpo_comp), dump.number(list.bpo_uncomp));
    dump.line(format_args!("\t\tnum_blkptrs = {}\n\t\tbytes = {bytes}", list.bpo_num_blkptrs));
    if bonus_bytes >= V1_BYTES {
        dump.line(format_args!("\t\tcomp = {comp}\n\t\tuncomp = {uncomp}"));
    }
    if bonus_bytes >= V2_BYTES {
        dump.line(format_args!("\t\tsubobjs = {}\n\t\tnum_subobjs = {}", list.bpo_subobjs, list.bpo_num_subobjs));
        dump.line(format_args!("\t\tnum_freed = {}", list.bpo_num_freed));
    }
    if dump.datasets >= 5 {
        block_pointers(dump, &shown.objset, object, &mut (0..list.bpo_num_blkptrs));
    }
}

/// Shows block pointers of a list by their numbers, as far as it has them.
pub fn block_pointers(dump: &mut Dump<'_>, objset: &Arc<Objset>, object: ObjectId, numbers: &mut dyn Iterator<Item = u64>) {
    const FREE: u64 = 1;
    let read = |index: u64| -> Option<BlockPtr> {
        let mut raw = [0; BlockPtr::BYTES];
        objset.hold(object).ok()?.read(index.checked_mul(BlockPtr::BYTES as u64)?, &mut raw).ok()?;
        Some(BlockPtr::decode(&raw, true)).filter(|bp| bp.birth().0 != 0)
    };
    for index in numbers {
        let Some(bp) = read(index) else {
            return dump.damage(format_args!("object {object}: block pointer {index} cannot be read"));
        };
        // Livelists mark what was freed in the lowest bit of the fill count.
        let mut text = pointer(dump, &bp);
        if !bp.is_embedded() && bp.fill() & FREE != 0 {
            text = if dump.whole_pointers { format!("{text} FREE") } else { text.replace(" cksum=", " FREE cksum=") };
        }
        dump.line(format_args!("\t{text}"));
    }
}

fn packed_list(dump: &mut Dump<'_>, objset: &Arc<Objset>, object: ObjectId, bonus: &[u8]) {
    match read_packed(objset, object, bonus) {
        Some(list) => dump.text(format_args!("{}", list.dump(8))),
        None => dump.damage(format_args!("object {object}: the packed list cannot be read")),
    }
}

/// Packed list whose length stands in its bonus.
pub fn read_packed(objset: &Arc<Objset>, object: ObjectId, bonus: &[u8]) -> Option<NvList> {
    let length = u64::from_le_bytes(*bonus.first_chunk()?);
    let dnode = objset.hold(object).ok()?;
    let info = dnode.info().ok()?;
    let most = info.max_block.0.saturating_add(1).saturating_mul(info.block_size as u64).min(PACKED_BYTES_MAX);
    let mut packed = vec![0; usize::try_from(length).ok().filter(|_| length <= most)?];
    dnode.read(0, &mut packed).ok()?;
    NvList::decode(&packed).ok()
}

/// Words of the first MiB of an object.
fn read_words(objset: &Arc<Objset>, object: ObjectId, phys: &DnodePhys) -> Option<(Vec<u64>, bool)> {
    const BYTES_MAX: u64 = 1 << 20;
    let length = phys.max_block.0.saturating_add(1).saturating_mul(phys.data_block_bytes() as u64);
    let mut bytes = vec![0; length.min(BYTES_MAX) as usize];
    objset.hold(object).ok()?.read(0, &mut bytes).ok()?;
    let words = bytes.chunks_exact(8).map(|raw| raw.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)));
    Some((words.collect(), length > BYTES_MAX))
}

fn words(dump: &mut Dump<'_>, objset: &Arc<Objset>, object: ObjectId, phys: &DnodePhys) {
    if dump.datasets < 6 {
        return;
    }
    let Some((words, is_cut)) = read_words(objset, object, phys) else {
        return dump.damage(format_args!("object {object} cannot be read"));
    };
    for (index, word) in words.iter().enumerate() {
        let before = if index == 0 {
            "\t\t["
        } else if index % 4 == 0 {
            ",\n\t\t"
        } else {
            ", "
        };
        dump.text(format_args!("{before}{word:x}"));
    }
    dump.line(format_args!("{}]", if is_cut { ", ... " } else { "" }));
}

fn sub_lists(dump: &mut Dump<'_>, objset: &Arc<Objset>, object: ObjectId, phys: &DnodePhys) {
    let Some((words, _)) = read_words(objset, object, phys) else {
        return dump.damage(format_args!("object {object} cannot be read"));
    };
    let used = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
    for word in &words[..used] {
        dump.line(format_args!("\t{word}"));
    }
}
