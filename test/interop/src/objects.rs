//! Objects of a storage device: written through `osd`, files for everybody else.

use crate::shadow::{Expected, KINDS, Shadow, content};
use crate::{Failure, driver};
use abd::Abd;
use osd::{Device, Fid, NewObject, Object};
use pool::Pool;
use std::sync::Arc;
use zpl::direct::Direct;

const SEQUENCE: u64 = 0x2_0000_0402;
const OBJECTS: u32 = 40;
const KEYS: u32 = 300;
/// Record sizes and compressions of the datasets.
const HOW: [(&str, &str); 3] = [("16K", "lz4"), ("128K", "off"), ("1M", "zstd")];

fn path(fid: Fid) -> String {
    format!("/O/{:x}/d{}/{}", fid.sequence, fid.object % 32, fid.object)
}

/// Writes bytes, lent ones every other time.
fn write(device: &Arc<Device>, object: &Arc<Object>, offset: usize, bytes: &[u8], shadow: &mut Shadow) -> Result<(), Failure> {
    let range = offset as u64..(offset + bytes.len()) as u64;
    let running = device.begin().write(object, range.clone()).start()?;
    if offset.is_multiple_of(2) {
        let mut loans = object.lend(std::slice::from_ref(&range))?;
        loans.iter_mut().for_each(|loan| loan.copy_from_slice(bytes));
        running.commit(object, loans)?;
    } else {
        running.write(object, range.start, &Abd::from_slice(bytes))?;
    }
    running.stop();
    let file = shadow.files.entry(path(object.fid())).or_default();
    file.resize(file.len().max(offset + bytes.len()), 0);
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// Changes an object: pieces of pages and of no pages, holes, another end, its end.
fn change(device: &Arc<Device>, object: &Arc<Object>, shadow: &mut Shadow) -> Result<(), Failure> {
    let number = object.fid().object as usize;
    let kind = KINDS[number % KINDS.len()];
    if number.is_multiple_of(9) {
        let running = device.begin().destroy(object).start()?;
        running.destroy(object)?;
        shadow.files.remove(&path(object.fid()));
        return Ok(());
    }
    for piece in 0..number % 12 {
        write(device, object, 4096 * number + piece * 32768, &content(32768, piece as u64, kind), shadow)?;
    }
    write(device, object, 1001 * number, &content(5000 + number, 7, kind), shadow)?;
    let Some(file) = shadow.files.get_mut(&path(object.fid())) else { return Ok(()) };
    let (start, end) = (file.len() / 3, file.len() / 2);
    let range = if number.is_multiple_of(5) { start as u64..u64::MAX } else { start as u64..end as u64 };
    if number.is_multiple_of(5) {
        file.truncate(start);
    } else {
        file[start..end].fill(0);
    }
    let running = device.begin().punch(object, range.clone()).xattr(object, 100).start()?;
    running.punch(object, &range)?;
    Ok(running.set_xattr(object, b"trusted.fid", Some(&content(100, 3, kind)))?)
}

/// Makes an object with keys, and takes a third of them away.
fn index(device: &Arc<Device>) -> Result<(), Failure> {
    let object = device.object(Fid::new(SEQUENCE, OBJECTS + 1))?;
    let running = device.begin().create(&object).index(&object).start()?;
    running.create(&object, NewObject { is_index: true, ..NewObject::default() })?;
    for key in 0..KEYS {
        running.insert(&object, format!("key {key}").as_bytes(), &content(1 + key as usize % 90, 1, KINDS[0]))?;
    }
    running.stop();
    device.sync()?;
    let running = device.begin().index(&object).start()?;
    (0..KEYS).step_by(3).try_for_each(|key| running.delete(&object, format!("key {key}").as_bytes()))?;
    Ok(())
}

/// Makes datasets of objects, changes these over a few txgs, and destroys some.
pub fn objects(pool: &Pool) -> Result<Expected, Failure> {
    let mut expected = Expected::default();
    for (record, compression) in HOW {
        let name = format!("{}/objects-{record}", pool.name());
        pool.dsl().create_dataset(&name, driver::filesystem(&[("compression", compression), ("recordsize", record)]))?;
        let device = Device::open(pool.dsl().hold(&name)?, Direct::default())?;
        let mut shadow = Shadow::default();
        let mut all = Vec::new();
        for number in 1..=OBJECTS {
            let object = device.object(Fid::new(SEQUENCE, number))?;
            let running = device.begin().create(&object).start()?;
            running.create(&object, NewObject { mode: 0o640, uid: number, gid: 5, is_index: false })?;
            running.stop();
            write(
                &device,
                &object,
                0,
                &content(30_000 * number as usize, number.into(), KINDS[number as usize % KINDS.len()]),
                &mut shadow,
            )?;
            all.push(object);
        }
        device.sync()?;
        all.iter().try_for_each(|object| change(&device, object, &mut shadow))?;
        index(&device)?;
        device.sync()?;
        if device.counts().direct == 0 {
            return Err(format!("{name}: nothing was written directly").into());
        }
        expected.add(&name, &shadow);
    }
    Ok(expected)
}
