//! Requests without a kernel: a handler is fed bytes as if they had come from the device; its answers go nowhere.

use crate::abi::op;
use crate::dispatch::{HEAD_BYTES, Request, Transfer, dispatch, transfer};
use crate::{Answer, Handler, abi};
use abd::Abd;
use zerocopy::FromBytes;

/// Serves one request; false when it is too short to be one.
pub fn serve(handler: &dyn Handler, request: &[u8]) -> bool {
    let Ok((header, _)) = abi::InHeader::read_from_prefix(request) else { return false };
    let is_write = header.opcode == op::WRITE;
    let payload = request.get(HEAD_BYTES..).unwrap_or_default();
    let end = if is_write { request.len().min(HEAD_BYTES) } else { request.len() };
    let (body, buffer) = (request.get(size_of::<abi::InHeader>()..end).unwrap_or_default(), Abd::from_slice(payload));
    let request = Request { header, payload: &buffer, payload_bytes: payload.len(), body };
    if matches!(header.opcode, op::READ | op::WRITE | op::LSEEK) {
        match transfer(&request) {
            Ok((caller, Transfer::Read(read))) => handler.read_then(&caller, &read, Answer::new(|_| ())),
            Ok((caller, Transfer::Write(write))) => handler.write_then(&caller, write, Answer::new(|_| ())),
            Ok((caller, Transfer::Seek(seek))) => handler.lseek_then(&caller, &seek, Answer::new(|_| ())),
            Err(_) => {}
        }
    } else {
        let _ = dispatch(handler, &request, &mut Vec::new());
    }
    true
}
