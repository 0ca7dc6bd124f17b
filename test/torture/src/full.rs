//! Direct overwrites on a pool that is almost full: what they replace rests until its txgs are on disk, so that there is
//! room for every one of them, but not always at once. None may fail; the model says what the file holds in the end.

use crate::cuts::check_space;
use crate::machine::{DEVICE_BYTES, FILE_SYSTEM, create_on, mount_limited};
use abd::Abd;
use device::MemDevice;
use exec::{Exec, Mutex, SplitMix};
use std::sync::Arc;
use zpl::direct::Access;
use zpl::{NewNode, Node, WriteData, Zfs, ZplError};

/// Bytes of a request: many blocks.
const REQUEST: u64 = 256 << 10;
/// Bytes that are given back once the file system is full.
const ROOM: u64 = 2 << 20;
/// Number of requests under way at once.
const DEPTH: u64 = 6;

fn noise(seed: u64) -> Vec<u8> {
    SplitMix::new(seed).bytes(REQUEST as usize)
}

fn request(offset: u64, seed: u64) -> WriteData {
    WriteData { offset, data: Abd::from_slice(&noise(seed)), may_keep: true, kill_suid: false, synchronous: false }
}

/// Writes until there is no more space; returns the number of requests that fitted.
fn fill(zfs: &Zfs, node: &Node) -> Result<u64, String> {
    for number in 0.. {
        match zfs.write_with(node, request(number * REQUEST, number), Access::DIRECT) {
            Ok(_) => {}
            Err(ZplError::NoSpace) => return Ok(number),
            Err(error) => return Err(format!("filling, request {number}: {error}")),
        }
    }
    Ok(0)
}

/// Fills a pool of one device, then overwrites it `rounds` times at random, one request at a time or (`deep`) several under way.
/// Gives the bytes overwritten per byte of the pool.
///
/// No txg is synced early, and every block has so many copies: more rests at a time than the pool keeps back.
pub fn overwrite_full(exec: &Exec, copies: u8, (seed, rounds): (u64, u64), deep: bool) -> Result<f64, String> {
    let pool = create_on(exec, Arc::new(MemDevice::new("d0", DEVICE_BYTES))).map_err(|trouble| trouble.to_string())?;
    pool.txgs().set_direct_max(u64::MAX);
    let copies = [("copies".to_string(), copies.to_string())];
    let set = pool.dsl().hold(FILE_SYSTEM).and_then(|dataset| dataset.set_props(&copies));
    set.map_err(|error| format!("copies: {error}"))?;
    let zfs = mount_limited(&pool).map_err(|trouble| trouble.to_string())?;
    let root = zfs.node(zfs.root()).map_err(|error| error.to_string())?;
    let new = NewNode { mode: 0o100_644, ..NewNode::default() };
    let node = zfs.create_node(&root, b"full", &new).map_err(|error| error.to_string())?;
    let requests = fill(&zfs, &node)? - ROOM / REQUEST;
    zfs.truncate(&node, requests * REQUEST).map_err(|error| format!("truncation: {error}"))?;
    pool.sync().map_err(|error| format!("sync: {error}"))?;
    let (mut model, mut random): (Vec<u64>, _) = ((0..requests).collect(), SplitMix::new(seed));
    for round in 0..rounds {
        let places: Vec<u64> = (0..if deep { DEPTH } else { 1 }).map(|_| random.next_u64() % requests).collect();
        let done = Arc::new(Mutex::new(Vec::new()));
        for (index, place) in places.iter().enumerate() {
            // A place that is chosen twice would have no order.
            if places[..index].contains(place) {
                done.lock().push(Ok(0));
                continue;
            }
            let salt = 1_000_000 + round * DEPTH + index as u64;
            model[*place as usize] = salt;
            let (write, own) = (request(place * REQUEST, salt), done.clone());
            match deep {
                true => zfs.write_then(&node, write, Access::DIRECT, Box::new(move |result| own.lock().push(result))),
                false => own.lock().push(zfs.write_with(&node, write, Access::DIRECT)),
            }
        }
        exec.wait(&|| done.lock().len() == places.len(), &|| exec.sleep_ns(200_000));
        if let Some(error) = done.lock().iter().find_map(|result| result.as_ref().err()) {
            return Err(format!("seed {seed}, round {round} of {rounds}: {error}"));
        }
    }
    for (place, salt) in (0..).zip(&model) {
        let found = zfs.read_with(&node, place * REQUEST, REQUEST, Access::DIRECT).map_err(|error| format!("read: {error}"))?;
        if found.to_vec() != noise(*salt) {
            return Err(format!("seed {seed}: request {place} reads as something else"));
        }
    }
    drop((node, root, zfs));
    check_space(&pool)?;
    pool.export().map_err(|error| format!("export: {error}"))?;
    Ok((rounds * if deep { DEPTH } else { 1 } * REQUEST) as f64 / DEVICE_BYTES as f64)
}
