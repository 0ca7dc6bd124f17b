//! Answers to `lseek` with SEEK_DATA and SEEK_HOLE that count what the kernel has not told yet.
//!
//! A store through a shared mapping is in a page only. `lseek` with SEEK_DATA or SEEK_HOLE asks us, and a hole that we know of may
//! have been stored to, so the kernel is made to write what it has of the hole before the answer. Nobody can have stored anything
//! unless somebody has the file open for reading and writing.

use crate::nodes::Node;
use crate::{Zfs, ZplError};
use fuse::{Answer, Errno, Kernel, Notifier, SeekRequest};
use std::ops::Range;
use std::sync::Arc;

/// Number of times that a hole is looked at again that turned out to be another one.
const LOOKS_MAX: u32 = 32;

/// Answer to a seek as far as we know, and the hole that it rests on.
struct Found {
    answer: Result<u64, ZplError>,
    hole: Range<u64>,
}

fn look(zfs: &Zfs, node: &Node, request: &SeekRequest) -> Result<Found, ZplError> {
    let data_from = |offset| match zfs.seek_data(node, offset) {
        Ok(found) => Ok((Ok(found), found)),
        Err(ZplError::PastEnd) => Ok((Err(ZplError::PastEnd), node.fields().size.max(offset))),
        Err(error) => Err(error),
    };
    if request.hole {
        let found = zfs.seek_hole(node, request.offset)?;
        return Ok(Found { answer: Ok(found), hole: found..data_from(found)?.1 });
    }
    let (answer, end) = data_from(request.offset)?;
    Ok(Found { answer, hole: request.offset..end })
}

/// Answers a seek; before that the kernel writes what was stored to the hole that the answer rests on.
pub(crate) fn seek_then(zfs: Arc<Zfs>, node: Node, request: &SeekRequest, notifier: Option<&Notifier>, answer: Answer<u64>) {
    let plain = |node: &Node| {
        if request.hole { zfs.seek_hole(node, request.offset) } else { zfs.seek_data(node, request.offset) }
    };
    let Some(notifier) = notifier.filter(|_| node.kernel.may_hide_stores()) else {
        return answer.send(plain(&node).map_err(Errno::from));
    };
    let request = *request;
    notifier.later(move |kernel| {
        let reply = settle(&zfs, &node, &request, kernel);
        drop(node);
        answer.send(reply.map_err(Errno::from));
    });
}

fn settle(zfs: &Zfs, node: &Node, request: &SeekRequest, kernel: &Kernel) -> Result<u64, ZplError> {
    let mut written = 0..0;
    if node.kernel.keeps_writes() {
        // Where the file ends is not known here either.
        kernel.forget_pages(request.node, 0..i64::MAX as u64);
    }
    // Of data that zeros were stored over since nothing is known here.
    if node.kernel.has_stored() && zfs.store.compresses() {
        written = request.offset..node.fields().size.max(request.offset);
        kernel.forget_pages(request.node, written.clone());
    }
    for _ in 0..LOOKS_MAX {
        let Found { answer, hole } = look(zfs, node, request)?;
        if hole.is_empty() || (written.start <= hole.start && hole.end <= written.end) {
            return answer;
        }
        kernel.forget_pages(request.node, hole.clone());
        written = hole;
    }
    // Somebody makes holes all the time: no hole is an answer that loses nothing.
    let size = node.fields().size;
    match request.offset {
        offset if offset >= size => Err(ZplError::PastEnd),
        _ if request.hole => Ok(size),
        offset => Ok(offset),
    }
}
