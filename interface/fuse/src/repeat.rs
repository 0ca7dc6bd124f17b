//! Answers to requests that another server did and the kernel sends again (docs/adr/0018).

use crate::abi::{self, op};
use crate::dispatch::{Output, Request, set_xattr, take, take_name};
use crate::encode::{entry_out, open_out};
use crate::handler::{Caller, Handler, NodeId, SetXattr};
use crate::lasting::Done;
use crate::{Errno, Reply};
use zerocopy::IntoBytes;

/// Answers a request that another server did, without doing it; None where doing it once more comes to the same.
pub(crate) fn repeat(handler: &dyn Handler, request: &Request<'_>, done: Done, out: &mut Vec<u8>) -> Option<Reply<Output>> {
    let header = &request.header;
    let caller = Caller { uid: header.uid, gid: header.gid, pid: header.pid };
    let small = |reply: Reply<()>| Some(reply.map(|()| Output::Small));
    let mut body = request.body;
    match header.opcode {
        op::CREATE | op::TMPFILE => small(take(&mut body).and_then(|input: abi::CreateIn| {
            let opened = handler.open(&caller, done.node, input.flags)?;
            out.extend_from_slice(entry_out(&handler.refer(&caller, done.node)?).as_bytes());
            out.extend_from_slice(open_out(&opened).as_bytes());
            Ok(())
        })),
        op::MKNOD | op::MKDIR | op::SYMLINK => small(handler.refer(&caller, done.node).map(|entry| {
            out.extend_from_slice(entry_out(&entry).as_bytes());
        })),
        op::LINK => small(take(&mut body).and_then(|input: abi::LinkIn| {
            out.extend_from_slice(entry_out(&handler.refer(&caller, NodeId(input.oldnodeid))?).as_bytes());
            Ok(())
        })),
        op::UNLINK | op::RMDIR | op::RENAME | op::RENAME2 => small(Ok(())),
        op::REMOVEXATTR => small(take_name(&mut body).and_then(|name| {
            let node = NodeId(header.nodeid);
            // What was there is gone, perhaps not all of it.
            handler.removexattr(&caller, node, name).or_else(|errno| if errno == Errno(libc::ENODATA) { Ok(()) } else { Err(errno) })
        })),
        op::SETXATTR => small(set_xattr(&mut body).and_then(|set| {
            // Whether it was there before was looked at then.
            handler.setxattr(&caller, NodeId(header.nodeid), &SetXattr { flags: 0, ..set })
        })),
        _ => None,
    }
}
