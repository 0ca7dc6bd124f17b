//! `zdb -l`: the four labels of a device and their uberblocks (OpenZFS: `dump_label` in `zdb.c`).
//!
//! Equal configs and equal uberblocks are shown once, with the labels that hold them. Nothing is trusted: a label that cannot be read,
//! unpacked or verified is said to be so, and the others are shown.

use crate::{cache_device, stats};
use kernels::checksum::{Verifier, verify_embedded};
use nvlist::NvList;
use ondisk::names::{config, pool_state};
use ondisk::{Checksum, SECTOR_SHIFT, Uberblock, label};
use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Numbers of `-l` and `-u`, which say how much to show.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Number of `-l`. 1: labels that differ; 2: with the space that configs take; 3: each label.
    pub labels: u8,
    /// Number of `-u`. 0: none; 1: uberblocks; 2: also empty slots; 3: of each label; 4: also what repeats.
    pub uberblocks: u8,
    /// True to show nothing of configs: the status, and uberblocks that are asked for.
    pub quiet: bool,
}

/// Device or file opened for reading.
pub struct Device {
    file: File,
    bytes: u64,
}

/// Opens a path, or a name in `/dev` and its folders of stable names.
pub fn open(name: &str) -> io::Result<Device> {
    const FOLDERS: [&str; 4] = ["/dev", "/dev/disk/by-id", "/dev/disk/by-partlabel", "/dev/disk/by-vdev"];
    let given = Path::new(name);
    let candidates = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let path =
        if given.exists() { given.to_owned() } else { candidates.into_iter().find(|path| path.exists()).unwrap_or(given.to_owned()) };
    // A FIFO's other end is not waited for.
    let mut file = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a block device or regular file"));
    }
    let bytes = file.seek(SeekFrom::End(0))?;
    Ok(Device { file, bytes })
}

/// Contents of one label.
struct Label {
    checksum_valid: bool,
    config: Option<NvList>,
    /// Bytes of the packed config, which tell configs apart.
    packed: Vec<u8>,
    uberblocks: Vec<Option<Uberblock>>,
    header_printed: bool,
}

fn read(device: &Device, index: usize, ashift: &mut u32) -> Option<Label> {
    let offset = label::label_offset(device.bytes, index);
    let mut bytes = vec![0; label::LABEL_BYTES];
    device.file.read_exact_at(&mut bytes, offset).ok()?;
    let area = &bytes[label::CONFIG_OFFSET..label::RING_OFFSET];
    let verifier = Verifier::label(offset + label::CONFIG_OFFSET as u64);
    let checksum_valid = verify_embedded(Checksum::LABEL, area, verifier).is_ok();
    let (config, packed) = match NvList::decode_prefix(&area[..label::CONFIG_NVLIST_BYTES]) {
        Ok((list, used)) => (Some(list), area[..used].to_vec()),
        Err(_) => (None, Vec::new()),
    };
    if let Some(list) = &config {
        let found = list.get_nvlist(config::VDEV_TREE).and_then(|tree| tree.get_u64(config::ASHIFT));
        *ashift = found.and_then(|ashift| u32::try_from(ashift).ok()).unwrap_or(SECTOR_SHIFT);
    }
    let slot_at = |slot| label::ring_slot_offset(*ashift, slot);
    let uberblock = |slot| Uberblock::decode_slot(&bytes[slot_at(slot)..]).ok().flatten().map(|(uberblock, _)| uberblock);
    let uberblocks = (0..label::ring_slots(*ashift)).map(uberblock).collect();
    Some(Label { checksum_valid, config, packed, uberblocks, header_printed: false })
}

/// Configuration in the first good label of a device.
pub fn config(path: &Path) -> Option<NvList> {
    let device = open(path.to_str()?).ok()?;
    let mut ashift = SECTOR_SHIFT;
    (0..label::LABELS).find_map(|index| read(&device, index, &mut ashift).filter(|label| label.checksum_valid)?.config)
}

/// Text for a device and the exit status: 0 when all labels are good, 1 when some are not, 2 when none has a config.
pub fn dump(device: &Device, options: Options) -> (String, u8) {
    let mut out = String::new();
    let mut ashift = SECTOR_SHIFT;
    let mut labels: Vec<Option<Label>> = (0..label::LABELS).map(|index| read(device, index, &mut ashift)).collect();
    for index in (0..label::LABELS).filter(|&index| labels[index].is_none() && !options.quiet) {
        line(&mut out, format_args!("failed to read label {index}"));
    }
    let mut damaged = labels.iter().any(|label| label.as_ref().is_none_or(|label| label.config.is_none()));
    let found = labels.iter().flatten().any(|label| label.config.is_some());
    for index in 0..label::LABELS {
        if !options.quiet {
            dump_config(&mut out, &mut labels, index, options);
        }
        // Uberblocks that were asked for are shown all the same.
        dump_uberblocks(&mut out, &mut labels, index, options);
    }
    let is_cache = |list: &NvList| list.get_u64(config::POOL_STATE) == Some(pool_state::L2CACHE);
    if labels.iter().flatten().filter_map(|label| label.config.as_ref()).any(is_cache) {
        damaged |= !cache_device::dump(&mut out, &device.file, if options.quiet { 0 } else { options.labels });
    }
    (out, if !found { 2 } else { u8::from(damaged) })
}

/// Adds a line to a text.
pub fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

fn header(out: &mut String, label: &mut Label, (index, quiet): (usize, bool)) {
    const RULE: &str = "------------------------------------";
    if !label.header_printed && !quiet {
        label.header_printed = true;
        let note = if label.checksum_valid { "" } else { "(Bad label cksum)" };
        line(out, format_args!("{RULE}\nLABEL {index} {note}\n{RULE}"));
    }
}

/// Indexes of the labels for which `same` holds.
fn holders(labels: &[Option<Label>], same: impl Fn(&Label) -> bool) -> Vec<usize> {
    labels.iter().enumerate().filter(|(_, label)| label.as_ref().is_some_and(&same)).map(|(index, _)| index).collect()
}
fn numbers(holders: &[usize]) -> String {
    holders.iter().map(|index| format!("{index} ")).collect()
}

fn dump_config(out: &mut String, labels: &mut [Option<Label>], index: usize, options: Options) {
    let Some(label) = &labels[index] else { return };
    if label.config.is_none() {
        line(out, format_args!("failed to unpack label {index}"));
        return;
    }
    let holders = holders(labels, |other| other.config.is_some() && other.packed == label.packed);
    if options.labels < 3 && holders.first() != Some(&index) {
        return;
    }
    let Some(label) = &mut labels[index] else { return };
    header(out, label, (index, options.quiet));
    let Some(list) = &label.config else { return };
    out.push_str(&list.dump(4));
    line(out, format_args!("    labels = {}", numbers(&holders)));
    if options.labels >= 2 {
        out.push_str(&stats::dump(list, label::CONFIG_NVLIST_BYTES, options.labels >= 3));
    }
}

fn dump_uberblocks(out: &mut String, labels: &mut [Option<Label>], index: usize, options: Options) {
    let slots = labels[index].as_ref().map_or(0, |label| label.uberblocks.len());
    if options.uberblocks == 0 {
        return;
    }
    for slot in 0..slots {
        let Some(label) = &mut labels[index] else { return };
        let Some(uberblock) = label.uberblocks[slot].clone() else {
            if options.uberblocks >= 2 {
                header(out, label, (index, options.quiet));
                line(out, format_args!("    Uberblock[{slot}] invalid"));
            }
            continue;
        };
        let holders = holders(labels, |other| other.uberblocks.iter().flatten().any(|known| *known == uberblock));
        if options.uberblocks < 3 && holders.first() != Some(&index) {
            continue;
        }
        // The last slot is multihost's heartbeat when that is on.
        if options.uberblocks < 4 && uberblock.mmp_valid() && uberblock.ub_mmp_delay != 0 && slot + 1 == slots {
            continue;
        }
        let Some(label) = &mut labels[index] else { return };
        header(out, label, (index, options.quiet));
        line(out, format_args!("    Uberblock[{slot}]"));
        dump_uberblock(out, &uberblock, options.uberblocks >= 4);
        line(out, format_args!("        labels = {}", numbers(&holders)));
    }
}

/// Shows the fields of an uberblock (OpenZFS: `dump_uberblock`).
pub fn dump_uberblock(out: &mut String, ub: &Uberblock, detailed: bool) {
    line(out, format_args!("\tmagic = {:016x}", ub.ub_magic));
    line(out, format_args!("\tversion = {}", ub.ub_version));
    line(out, format_args!("\ttxg = {}", ub.ub_txg));
    line(out, format_args!("\tguid_sum = {}", ub.ub_guid_sum));
    line(out, format_args!("\ttimestamp = {} UTC = {}", ub.ub_timestamp, cli::time::long(ub.ub_timestamp as i64)));
    line(out, format_args!("\tbp = {}", ub.ub_rootbp));
    line(out, format_args!("\tmmp_magic = {:016x}", ub.ub_mmp_magic));
    if ub.mmp_valid() {
        line(out, format_args!("\tmmp_delay = {}", ub.ub_mmp_delay));
        let optional = [("mmp_seq", ub.mmp_sequence()), ("mmp_fail", ub.mmp_fail_intervals()), ("mmp_write", ub.mmp_interval_ms())];
        for (name, value) in optional {
            if let Some(value) = value {
                line(out, format_args!("\t{name} = {value}"));
            }
        }
        line(out, format_args!("\tmmp_valid = {:x}", ub.ub_mmp_config & 0xFF));
    }
    if detailed {
        line(out, format_args!("\trootbp = {}", ub.ub_rootbp));
    }
    line(out, format_args!("\tcheckpoint_txg = {}", ub.ub_checkpoint_txg));
    line(out, format_args!("\traidz_reflow state={} off={}", ub.raidz_reflow_state(), ub.raidz_reflow_offset()));
}

#[cfg(test)]
mod tests {
    //! `zdb -l` is the first tool on a pool that does not import: what it hides or invents costs somebody the pool.

    use super::*;
    use kernels::checksum::embed;
    use nvlist::Encoding;

    /// Makes a device of 1.25 MiB with a label in each place, the odd ones newer.
    fn device(name: &str, damage: impl Fn(&mut [u8])) -> Device {
        let bytes = 5 * label::LABEL_BYTES as u64 + 77;
        let mut image = vec![0u8; bytes as usize];
        for index in 0..label::LABELS {
            let at = label::label_offset(bytes, index) as usize;
            let tree = NvList::new().with(config::TYPE, "file").with(config::ASHIFT, 12u64);
            let list = NvList::new().with(config::POOL_TXG, 7 + index as u64 % 2).with(config::VDEV_TREE, tree);
            let area = &mut image[at + label::CONFIG_OFFSET..at + label::RING_OFFSET];
            let packed = list.encode(Encoding::Xdr);
            area[..packed.len()].copy_from_slice(&packed);
            embed(Checksum::LABEL, area, Verifier::label((at + label::CONFIG_OFFSET) as u64)).expect("fits");
            let ub = Uberblock { ub_magic: Uberblock::MAGIC, ub_txg: 7, ub_timestamp: 1_795_301_026, ..Default::default() };
            let slot = at + label::ring_slot_offset(12, 7);
            image[slot..slot + 4096].copy_from_slice(&ub.encode_slot(4096));
        }
        damage(&mut image);
        let path = std::env::temp_dir().join(format!("zirconia-zdb-{}-{name}", std::process::id()));
        std::fs::write(&path, &image).expect("a temporary file");
        let device = open(path.to_str().expect("UTF-8")).expect("opens");
        std::fs::remove_file(&path).expect("was made");
        device
    }

    const CONFIG: &str = "    vdev_tree:\n        type: 'file'\n        ashift: 12\n";

    #[test]
    fn equal_labels_are_shown_once() {
        let (text, status) = dump(&device("equal", |_| {}), Options { labels: 1, uberblocks: 0, quiet: false });
        let rule = "-".repeat(36);
        let shown = |index, txg, labels| format!("{rule}\nLABEL {index} \n{rule}\n    txg: {txg}\n{CONFIG}    labels = {labels} \n");
        assert_eq!(text, shown(0, 7, "0 2") + &shown(1, 8, "1 3"));
        assert_eq!(status, 0);
    }

    #[test]
    fn uberblocks_are_found_by_ashift() {
        let (text, _) = dump(&device("ring", |_| {}), Options { labels: 1, uberblocks: 1, quiet: false });
        assert_eq!(text.matches("    Uberblock[7]\n\tmagic = 0000000000bab10c\n").count(), 1);
        assert!(text.contains(&format!("\ttimestamp = 1795301026 UTC = {}\n", cli::time::long(1_795_301_026))));
        assert!(text.contains("        labels = 0 1 2 3 \n"));
        let (text, _) = dump(&device("slots", |_| {}), Options { labels: 1, uberblocks: 3, quiet: false });
        assert_eq!((text.matches(" invalid\n").count(), text.matches("Uberblock[7]\n").count()), (31 * 4, 4));
    }

    #[test]
    fn damage_is_reported_and_the_rest_is_shown() {
        let flip = |image: &mut [u8]| {
            image[label::RING_OFFSET - 1000] ^= 1;
            image[label::LABEL_BYTES + label::CONFIG_OFFSET] = 9;
        };
        let (text, status) = dump(&device("damage", flip), Options { labels: 1, uberblocks: 0, quiet: false });
        assert!(text.contains("LABEL 0 (Bad label cksum)\n") && text.contains("failed to unpack label 1\n"));
        assert!(text.contains("    labels = 3 \n"));
        assert_eq!(status, 1);
        let (text, status) = dump(&device("quiet", |image| image.fill(0)), Options { labels: 1, uberblocks: 1, quiet: true });
        assert_eq!((text.as_str(), status), ("", 2));
        let (text, status) = dump(&device("counted", |_| {}), Options { labels: 1, uberblocks: 3, quiet: true });
        let shown = text.lines().filter(|line| line.contains("Uberblock") && !line.contains("invalid")).count();
        assert_eq!((shown, status, text.contains("LABEL")), (4, 0, false), "uberblocks are counted with -q: {text}");
    }
}
