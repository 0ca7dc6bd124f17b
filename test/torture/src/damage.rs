//! Damaged devices: noise over labels, uberblocks and whole devices, devices cut short, and hostile images whose checksums are
//! right.
//!
//! What redundancy covers must not be missed; the rest must end in a typed error. Nothing may panic or go on for ever.

use crate::cuts::{check_space, go_on};
use crate::machine::{DEVICE_BYTES, Layout, Machine, Trouble, mount, read_state};
use crate::model::State;
use crate::outcome::Verdict;
use crate::program::{Program, Runner};
use crate::raw::{self, Forger};
use exec::SplitMix;
use ondisk::label::{LABEL_BYTES, LABELS, label_offset};
use ondisk::{BlockPtr, DnodePhys, ObjectType, Txg, VdevId};
use pool::PoolStatus;
use sim::Image;

/// Pool with contents that was exported.
pub struct Specimen {
    /// Layout of the pool.
    pub layout: Layout,
    /// Images of the devices.
    images: Vec<Image>,
    /// States that a user sees after each operation.
    states: Vec<State>,
    seed: u64,
}

/// Makes a pool, runs a program and exports it.
pub fn specimen(layout: Layout, seed: u64, operations: usize) -> Result<Specimen, Trouble> {
    let machine = Machine::new(layout, seed);
    let pool = machine.create(layout)?;
    pool.set_prop("failmode", "continue")?;
    let mut program = Program::new(seed);
    {
        let mut runner = Runner::new(&pool)?;
        for _ in 0..operations {
            runner.step(&mut program, &mut |_, _| ())?;
        }
    }
    pool.export()?;
    Ok(Specimen { layout, images: machine.images(), states: program.states().to_vec(), seed })
}

fn noise(image: &mut Image, range: std::ops::Range<usize>, seed: u64) {
    let mut random = SplitMix::new(seed);
    for at in range.step_by(4096) {
        let mut page = [0; 4096];
        page.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = random.next_u64().to_le_bytes());
        image.write(at, &page);
    }
}

/// Imports and compares: returns the position of the state that was found, and the pool's status.
fn found(specimen: &Specimen, images: Vec<Image>) -> Result<(usize, PoolStatus, Machine, State), String> {
    let machine = Machine::with(specimen.seed + 1, images);
    let pool = machine.import(true).map_err(|error| format!("cannot be imported: {error}"))?;
    let state = read_state(&pool).map_err(|error| format!("cannot be read: {error}"))?;
    let position = specimen.states.iter().rposition(|known| *known == state);
    let position = position.ok_or_else(|| state.difference(&specimen.states[specimen.states.len() - 1]))?;
    check_space(&pool)?;
    let status = pool.status();
    pool.export().map_err(|error| format!("cannot be closed: {error}"))?;
    Ok((position, status, machine, state))
}

/// Checks that everything is there and the pool goes on working.
fn whole(specimen: &Specimen, images: Vec<Image>) -> Result<PoolStatus, String> {
    let (position, status, machine, state) = found(specimen, images)?;
    if specimen.states[position..].iter().any(|later| later != &state) {
        return Err(format!("fell back to operation {position}"));
    }
    go_on(&machine, state)?;
    Ok(status)
}

/// Checks that the pool, which cannot be there any more, says so.
fn refused(specimen: &Specimen, images: Vec<Image>) -> Result<(), String> {
    for read_only in [true, false] {
        let machine = Machine::with(specimen.seed + 1, images.clone());
        let pool = match machine.import(read_only) {
            Err(Trouble::Pool(_)) => continue,
            Err(other) => return Err(format!("not an error of the pool: {other}")),
            Ok(pool) => pool,
        };
        // What could be opened must not show wrong contents.
        if let Ok(state) = read_state(&pool)
            && !specimen.states.contains(&state)
        {
            return Err(format!("wrong contents: {}", state.difference(&specimen.states[specimen.states.len() - 1])));
        }
        let _ = pool.export();
    }
    Ok(())
}

/// Tries noise over each label: of one device, of all devices; over all labels of one device.
pub fn try_labels(specimen: &Specimen) -> Verdict {
    let mut verdict = Verdict::default();
    let label = |image: &mut Image, index: usize| {
        let start = label_offset(DEVICE_BYTES as u64, index) as usize;
        noise(image, start..start + LABEL_BYTES, specimen.seed + index as u64);
    };
    for index in 0..LABELS {
        for count in [1, specimen.layout.devices()] {
            verdict.trial(&format!("{} label {index} of {count} devices", specimen.layout), || {
                let mut images = specimen.images.clone();
                images.iter_mut().take(count).for_each(|image| label(image, index));
                let status = whole(specimen, images)?;
                if status.damaged_labels == count { Ok(()) } else { Err(format!("{} damaged labels reported", status.damaged_labels)) }
            });
        }
    }
    verdict.trial(&format!("{} three labels of every device", specimen.layout), || {
        let mut images = specimen.images.clone();
        images.iter_mut().for_each(|image| (1..LABELS).for_each(|index| label(image, index)));
        whole(specimen, images).map(|_| ())
    });
    verdict.trial(&format!("{} all labels of one device", specimen.layout), || {
        let mut images = specimen.images.clone();
        (0..LABELS).for_each(|index| label(&mut images[0], index));
        if specimen.layout.is_redundant() { whole(specimen, images).map(|_| ()) } else { refused(specimen, images) }
    });
    verdict
}

/// Tries noise over the newest uberblocks in all labels of all devices: the pool opens at the one before and says so.
pub fn try_uberblocks(specimen: &Specimen) -> Verdict {
    let mut verdict = Verdict::default();
    for count in 1..=2 {
        verdict.trial(&format!("{} newest {count} uberblocks", specimen.layout), || {
            let mut images = specimen.images.clone();
            let newest = raw::uberblocks(&images[0]);
            for image in &mut images {
                for (slot, _) in &newest[..count] {
                    (0..LABELS).for_each(|label| {
                        let start = raw::slot_offset(label, *slot);
                        let mut random = SplitMix::new(specimen.seed);
                        let bytes: Vec<u8> = random.bytes(raw::slot_bytes());
                        image.write(start, &bytes);
                    });
                }
            }
            let (_, status, machine, state) = found(specimen, images)?;
            if status.txg != newest[count].1.txg() {
                return Err(format!("opened txg {} instead of {}", status.txg, newest[count].1.txg()));
            }
            if status.damaged_uberblocks == 0 {
                return Err("fell back without saying so".to_string());
            }
            go_on(&machine, state)
        });
    }
    verdict.trial(&format!("{} all uberblocks", specimen.layout), || {
        let mut images = specimen.images.clone();
        for image in &mut images {
            (0..LABELS).for_each(|label| noise(image, raw::ring_offset(label)..raw::ring_offset(label) + (128 << 10), specimen.seed));
        }
        refused(specimen, images)
    });
    verdict
}

/// Tries every device in turn overwritten as a whole, and cut short at several lengths.
pub fn try_devices(specimen: &Specimen) -> Verdict {
    let mut verdict = Verdict::default();
    for device in 0..specimen.images.len() {
        let mut judge = |what: String, image: Image| {
            verdict.trial(&format!("{} device {device} {what}", specimen.layout), || {
                let mut images = specimen.images.clone();
                images[device] = image;
                if specimen.layout.is_redundant() { whole(specimen, images).map(|_| ()) } else { refused(specimen, images) }
            });
        };
        let mut image = specimen.images[device].clone();
        noise(&mut image, 0..DEVICE_BYTES, specimen.seed + 17);
        judge("overwritten".to_string(), image);
        for length in [0, 512, 1 << 20, 5 << 20, DEVICE_BYTES / 2, DEVICE_BYTES - (1 << 20), DEVICE_BYTES - 512] {
            judge(format!("cut to {length} bytes"), shortened(&specimen.images[device], length));
        }
    }
    verdict
}

fn shortened(image: &Image, length: usize) -> Image {
    let mut short = Image::new(length);
    for (offset, bytes) in image.written().filter(|(offset, _)| *offset < length) {
        short.write(offset, &bytes[..bytes.len().min(length - offset)]);
    }
    short
}

/// Changes a few bytes: flips, extremes, small numbers.
fn mutate(bytes: &mut [u8], random: &mut SplitMix) {
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next_u64() as u8,
            2 => {
                let end = (at + 8).min(bytes.len());
                bytes[at..end].fill(if random.chance(2) { 0xFF } else { 0 });
            }
            3 => {
                let word = at / 8 * 8;
                let value = [0, 1, u64::MAX, 1 << 63, random.next_u64() >> random.below(64)][random.below(5)];
                let end = (word + 8).min(bytes.len());
                bytes[word..end].copy_from_slice(&value.to_le_bytes()[..end - word]);
            }
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
}

/// Images of the specimen as most users have it: what its devices cannot give is waited for. A lie must not be.
fn patient(specimen: &Specimen) -> Result<Vec<Image>, String> {
    let machine = Machine::with(specimen.seed + 1, specimen.images.clone());
    let pool = machine.import(false).map_err(|error| error.to_string())?;
    pool.set_prop("failmode", "wait").map_err(|error| error.to_string())?;
    pool.export().map_err(|error| error.to_string())?;
    Ok(machine.images())
}

/// Tries `count` hostile images from `seed` on, made from a pool of one device.
pub fn try_hostile(specimen: &Specimen, seed: u64, count: u64) -> Verdict {
    let mut verdict = Verdict::default();
    let whole = match patient(specimen) {
        Ok(images) => images,
        Err(error) => {
            verdict.trial("the specimen of hostile images", || Err(error));
            return verdict;
        }
    };
    for number in seed..seed + count {
        let mut random = SplitMix::new(number);
        let mut images = whole.clone();
        let what = match random.below(12) {
            0 => flip_anywhere(&mut images[0], &mut random),
            1 => forge_uberblock(&mut images[0], &mut random),
            2 => forge_config(&mut images[0], &mut random),
            8.. => forge_block(&mut images[0], &mut random, &lie_in_a_pointer),
            _ => forge_block(&mut images[0], &mut random, &mutate_block),
        };
        verdict.trial(&format!("hostile image {number} ({what})"), || {
            survive(specimen.seed, &images);
            Ok(())
        });
    }
    verdict
}

/// Does with an image what a user would; any error will do.
fn survive(seed: u64, images: &[Image]) {
    let machine = Machine::with(seed + 2, images.to_vec());
    if let Ok(pool) = machine.import(true) {
        let _ = read_state(&pool);
        let _ = pool.verify_space();
        let _ = (pool.history(), pool.props(), pool.status());
        let _ = pool.export();
    }
    let machine = Machine::with(seed + 2, images.to_vec());
    if let Ok(pool) = machine.import(false) {
        let work = || -> Result<(), Trouble> {
            let zfs = mount(&pool)?;
            let root = zfs.node(zfs.root())?;
            zfs.create_node(&root, b"new", &zpl::NewNode { mode: 0o100_644, ..zpl::NewNode::default() })?;
            Ok(pool.sync()?)
        };
        let _ = work();
        for snapshot in pool.dsl().snapshots(crate::machine::FILE_SYSTEM).unwrap_or_default() {
            let _ = pool.dsl().destroy_snapshots(&[format!("{}@{}", crate::machine::FILE_SYSTEM, snapshot.name)], false);
        }
        let _ = pool.export();
    }
}

fn flip_anywhere(image: &mut Image, random: &mut SplitMix) -> String {
    let used: Vec<usize> = image.written().map(|(offset, _)| offset).collect();
    for _ in 0..1 + random.below(40) {
        let at = used[random.below(used.len())] + random.below(16 << 10);
        image.write(at.min(DEVICE_BYTES - 1), &[random.next_u64() as u8]);
    }
    "bytes anywhere".to_string()
}

fn forge_uberblock(image: &mut Image, random: &mut SplitMix) -> String {
    let newest = raw::uberblocks(image);
    let Some((slot, _)) = newest.first() else { return "no uberblock".to_string() };
    let mut bytes = vec![0; raw::slot_bytes()];
    image.read(raw::slot_offset(0, *slot), &mut bytes);
    mutate(&mut bytes[..256], random);
    raw::write_slot(image, *slot, &bytes);
    "uberblock".to_string()
}

fn forge_config(image: &mut Image, random: &mut SplitMix) -> String {
    let mut bytes = raw::config(image);
    let used = bytes[..bytes.len() - 40].iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
    mutate(&mut bytes[..used], random);
    raw::write_config(image, &bytes);
    "label".to_string()
}

/// Block on the way down, and where in it the next pointer stands.
struct Step {
    bp: BlockPtr,
    plain: Vec<u8>,
    child: usize,
}

/// Changes a block somewhere below the newest uberblock and makes every checksum above it right.
fn forge_block(image: &mut Image, random: &mut SplitMix, change: &dyn Fn(&mut Step, &mut SplitMix)) -> String {
    let Some((slot, mut ub)) = raw::uberblocks(image).into_iter().next() else { return "no uberblock".to_string() };
    let mut steps: Vec<Step> = Vec::new();
    let mut bp = ub.ub_rootbp;
    while let Some(plain) = raw::read_block(image, &bp) {
        let children = pointers(&bp, &plain);
        steps.push(Step { bp, plain, child: 0 });
        if children.is_empty() || random.chance(5) {
            break;
        }
        let child = children[random.below(children.len())];
        let last = steps.len() - 1;
        steps[last].child = child;
        bp = pointer_at(&steps[last].plain, child);
    }
    let Some(mut lowest) = steps.pop() else { return "nothing to read".to_string() };
    let what = format!("{:?} block at level {}, depth {}", lowest.bp.object_type(), lowest.bp.level(), steps.len());
    change(&mut lowest, random);
    let mut forger = Forger::new();
    let mut forged = forger.write(image, &lowest.bp, &lowest.plain);
    while let (Some(child), Some(mut step)) = (forged, steps.pop()) {
        step.plain[step.child..step.child + BlockPtr::BYTES].copy_from_slice(&child.encode());
        forged = forger.write(image, &step.bp, &step.plain);
    }
    if let Some(root) = forged {
        ub.ub_rootbp = root;
        raw::write_slot(image, slot, &ub.encode_slot(raw::slot_bytes()));
    }
    what
}

fn mutate_block(step: &mut Step, random: &mut SplitMix) {
    mutate(&mut step.plain, random);
}

/// Makes one field of a pointer in the block a lie; a block without pointers is changed anywhere.
fn lie_in_a_pointer(step: &mut Step, random: &mut SplitMix) {
    let places = pointers(&step.bp, &step.plain);
    if places.is_empty() {
        return mutate(&mut step.plain, random);
    }
    let at = places[random.below(places.len())];
    let mut bp = pointer_at(&step.plain, at);
    for copy in 0..3 {
        let mut dva = bp.dva(copy);
        if dva.is_empty() {
            continue;
        }
        match random.below(6) {
            // Nobody has this vdev.
            0..3 => dva.vdev = VdevId([1, 2, 255, 0xFF_FFFF][random.below(4)]),
            3 => dva.offset = [DEVICE_BYTES as u64, 1 << 54, 512, dva.offset + 512][random.below(4)],
            4 => dva.asize = [512, 1 << 20, 0x1FF_FFFE00][random.below(3)],
            _ => dva.gang = !dva.gang,
        }
        bp.set_dva(copy, dva);
        if random.chance(2) {
            break;
        }
    }
    match random.below(12) {
        0 => bp.set_birth(Txg(1 << 50), Txg(1 << 50)),
        1 => bp.set_psize(512 << random.below(16)),
        2 => bp.set_lsize(512 << random.below(16)),
        3 => bp.set_level(random.below(32) as u8),
        // Embedded, dedup, encrypted, another byte order.
        4 => bp.0[6] ^= 1 << [39, 62, 61, 63][random.below(4)],
        _ => {}
    }
    step.plain[at..at + BlockPtr::BYTES].copy_from_slice(&bp.encode());
}

fn pointer_at(plain: &[u8], at: usize) -> BlockPtr {
    let mut bytes = [0; BlockPtr::BYTES];
    bytes.copy_from_slice(&plain[at..at + BlockPtr::BYTES]);
    BlockPtr::decode(&bytes, true)
}

/// Offsets of block pointers in a block, in bytes.
fn pointers(bp: &BlockPtr, plain: &[u8]) -> Vec<usize> {
    let all: Vec<usize> = if bp.level() > 0 {
        (0..plain.len() / BlockPtr::BYTES).map(|index| index * BlockPtr::BYTES).collect()
    } else if bp.object_type() == ObjectType::OBJSET {
        of_dnode(plain, 0)
    } else if bp.object_type() == ObjectType::DNODE {
        (0..plain.len() / 512).flat_map(|slot| of_dnode(plain, slot * 512)).collect()
    } else {
        Vec::new()
    };
    all.into_iter().filter(|at| at + BlockPtr::BYTES <= plain.len() && !pointer_at(plain, *at).is_hole()).collect()
}

fn of_dnode(plain: &[u8], at: usize) -> Vec<usize> {
    // In a dnode the pointers follow 64 bytes, the bonus follows them; a dataset's bonus has its root pointer behind 16 words.
    let Some(Ok(Some(dnode))) = plain.get(at..).map(DnodePhys::decode) else { return Vec::new() };
    let mut found: Vec<usize> = (0..dnode.ptrs().len()).map(|index| at + 64 + index * BlockPtr::BYTES).collect();
    if dnode.bonus_type == ObjectType::DSL_DATASET {
        found.push(at + 64 + dnode.ptrs().len() * BlockPtr::BYTES + 128);
    }
    found
}
