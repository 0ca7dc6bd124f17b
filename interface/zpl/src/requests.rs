//! Requests of the kernel in the words of the file system: what is made, which attributes change, how room is given.

use crate::device_number::decode_device;
use crate::{Allocate, NewNode, SetAttrs, SetMode, Time};
use fuse::{Caller, SetAttr, SetTime};

/// New node that a caller asks for.
pub(crate) fn new_node<'a>(caller: &Caller, new: &fuse::NewNode, target: &'a [u8]) -> NewNode<'a> {
    NewNode {
        mode: u64::from(new.mode),
        uid: caller.uid,
        gid: caller.gid,
        rdev: decode_device(new.rdev),
        target,
        umask: Some(u64::from(new.umask)),
        ..NewNode::default()
    }
}

/// Attributes besides the size that are to be changed at this time; None where there are none.
pub(crate) fn attributes(set: &SetAttr, now: Time) -> Option<SetAttrs> {
    let time = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::At(at) => (at.seconds, at.nanoseconds),
    };
    let has_any = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.atime.is_some() || set.mtime.is_some();
    (has_any || set.kill_suid).then(|| SetAttrs {
        mode: set.mode.map(u64::from),
        uid: set.uid,
        gid: set.gid,
        atime: set.atime.map(time),
        mtime: set.mtime.map(time),
        kill_suid: set.kill_suid,
        touches: ![set.atime, set.mtime].iter().any(|time| matches!(time, Some(SetTime::At(_)))),
    })
}

/// Condition of setxattr(2), by its flags.
pub(crate) fn set_mode(flags: u32) -> SetMode {
    match flags {
        1 => SetMode::Create,
        2 => SetMode::Replace,
        _ => SetMode::Any,
    }
}

/// Way of fallocate(2) by its mode; None for one that there is not.
pub(crate) fn allocation(mode: u32) -> Option<Allocate> {
    const KEEP_SIZE: u32 = 1;
    const PUNCH_HOLE: u32 = 2;
    const ZERO_RANGE: u32 = 16;
    match mode {
        0 => Some(Allocate::Extend),
        KEEP_SIZE => Some(Allocate::KeepSize),
        mode if mode == PUNCH_HOLE | KEEP_SIZE => Some(Allocate::Punch),
        ZERO_RANGE => Some(Allocate::Zero),
        mode if mode == ZERO_RANGE | KEEP_SIZE => Some(Allocate::ZeroKeepSize),
        _ => None,
    }
}

/// Names of extended attributes as listxattr(2) gives them, to somebody who asks: the trusted ones to administrators only (OpenZFS:
/// `__zpl_xattr_trusted_list`; the kernel leaves that to us).
pub(crate) fn listed(names: Vec<Vec<u8>>, caller: &Caller) -> Vec<u8> {
    let mut list = Vec::new();
    let mut sees_trusted = None;
    for name in names {
        let is_seen = !name.starts_with(b"trusted.") || *sees_trusted.get_or_insert_with(|| caller.is_administrator());
        if is_seen {
            list.extend_from_slice(&name);
            list.push(0);
        }
    }
    list
}
