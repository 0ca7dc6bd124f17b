//! Packing of lists: XDR (big-endian, RFC 4506) and little-endian native (OpenZFS: `nvs_xdr_*`, `nvs_native_*` in `nvpair.c`).
//!
//! Each native pair is its record followed, for nested lists, by their pairs: the nested list's header lies in the record.

use crate::value::{Byte, Bytes, HrTime, NvList, NvString, Value};

/// Form in which a list is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Portable form: what labels and pool objects use.
    Xdr,
    /// The memory image of a little-endian machine.
    NativeLittle,
}

/// Bytes of `nvlist_t` in memory, which native records embed.
pub(crate) const LIST_BYTES: usize = 24;
/// Bytes of `nvpair_t` before the name.
pub(crate) const PAIR_BYTES: usize = 16;

pub(crate) fn encode(list: &NvList, encoding: Encoding) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    match encoding {
        Encoding::Xdr => {
            // The second byte is the packer's own byte order; the payload is big-endian all the same.
            out.extend([1, 1, 0, 0]);
            xdr_list(list, &mut out);
        }
        Encoding::NativeLittle => {
            out.extend([0, 1, 0, 0]);
            out.extend(0i32.to_le_bytes());
            out.extend(list.flags().to_le_bytes());
            native_pairs(list, &mut out);
        }
    }
    out
}

/// Number of elements as the pair records it: 0 for a name alone, 1 for scalars.
fn count(value: &Value) -> usize {
    match value {
        Value::Boolean => 0,
        Value::ByteArray(Bytes(v)) | Value::Uint8Array(v) => v.len(),
        Value::Int8Array(v) => v.len(),
        Value::Int16Array(v) => v.len(),
        Value::Uint16Array(v) => v.len(),
        Value::Int32Array(v) => v.len(),
        Value::Uint32Array(v) => v.len(),
        Value::Int64Array(v) => v.len(),
        Value::Uint64Array(v) => v.len(),
        Value::BooleanArray(v) => v.len(),
        Value::StringArray(v) => v.len(),
        Value::NvListArray(v) => v.len(),
        _ => 1,
    }
}

/// Bytes of the value in a native record, before rounding up to eight.
fn native_value_bytes(value: &Value) -> usize {
    let each = match value {
        Value::Boolean => 0,
        Value::Byte(_) | Value::Int8(_) | Value::Uint8(_) | Value::ByteArray(_) | Value::Int8Array(_) | Value::Uint8Array(_) => 1,
        Value::Int16(_) | Value::Uint16(_) | Value::Int16Array(_) | Value::Uint16Array(_) => 2,
        Value::Int32(_) | Value::Uint32(_) | Value::BooleanValue(_) => 4,
        Value::Int32Array(_) | Value::Uint32Array(_) | Value::BooleanArray(_) => 4,
        Value::Int64(_) | Value::Uint64(_) | Value::HrTime(_) | Value::Double(_) | Value::Int64Array(_) | Value::Uint64Array(_) => 8,
        Value::String(text) => text.as_bytes().len() + 1,
        Value::StringArray(texts) => return texts.iter().map(|text| 8 + text.as_bytes().len() + 1).sum(),
        Value::NvList(_) => LIST_BYTES,
        Value::NvListArray(_) => 8 + LIST_BYTES,
    };
    each * count(value)
}

fn native_record_bytes(name: &NvString, value: &Value) -> usize {
    (PAIR_BYTES + name.as_bytes().len() + 1).next_multiple_of(8) + native_value_bytes(value).next_multiple_of(8)
}

fn pad(out: &mut Vec<u8>, start: usize, multiple: usize) {
    out.resize(start + (out.len() - start).next_multiple_of(multiple), 0);
}

fn native_pairs(list: &NvList, out: &mut Vec<u8>) {
    for (name, value) in list.iter() {
        let start = out.len();
        let size = native_record_bytes(name, value);
        out.extend((size as u32).to_le_bytes());
        out.extend((name.as_bytes().len() as u16 + 1).to_le_bytes());
        out.extend([0, 0]);
        out.extend((count(value) as u32).to_le_bytes());
        out.extend(value.type_number().to_le_bytes());
        out.extend(name.as_bytes());
        out.push(0);
        pad(out, start, 8);
        native_value(value, out);
        pad(out, start, 8);
        match value {
            Value::NvList(inner) => native_pairs(inner, out),
            Value::NvListArray(inner) => inner.iter().for_each(|list| native_pairs(list, out)),
            _ => {}
        }
    }
    out.extend(0u32.to_le_bytes());
}

fn native_list_header(list: &NvList, out: &mut Vec<u8>) {
    out.extend(0i32.to_le_bytes());
    out.extend(list.flags().to_le_bytes());
    out.extend([0; LIST_BYTES - 8]);
}

fn native_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Boolean => {}
        Value::Byte(Byte(v)) | Value::Uint8(v) => out.push(*v),
        Value::Int8(v) => out.extend(v.to_le_bytes()),
        Value::Int16(v) => out.extend(v.to_le_bytes()),
        Value::Uint16(v) => out.extend(v.to_le_bytes()),
        Value::Int32(v) => out.extend(v.to_le_bytes()),
        Value::Uint32(v) => out.extend(v.to_le_bytes()),
        Value::BooleanValue(v) => out.extend(u32::from(*v).to_le_bytes()),
        Value::Int64(v) | Value::HrTime(HrTime(v)) => out.extend(v.to_le_bytes()),
        Value::Uint64(v) => out.extend(v.to_le_bytes()),
        Value::Double(v) => out.extend(v.to_le_bytes()),
        Value::String(v) => {
            out.extend(v.as_bytes());
            out.push(0);
        }
        Value::ByteArray(Bytes(v)) | Value::Uint8Array(v) => out.extend(v),
        Value::Int8Array(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Value::Int16Array(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Value::Uint16Array(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Value::Int32Array(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Value::Uint32Array(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Value::BooleanArray(v) => out.extend(v.iter().flat_map(|v| u32::from(*v).to_le_bytes())),
        Value::Int64Array(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Value::Uint64Array(v) => out.extend(v.iter().flat_map(|v| v.to_le_bytes())),
        Value::StringArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            for text in v {
                out.extend(text.as_bytes());
                out.push(0);
            }
        }
        Value::NvList(list) => native_list_header(list, out),
        Value::NvListArray(lists) => {
            out.resize(out.len() + 8 * lists.len(), 0);
            lists.iter().for_each(|list| native_list_header(list, out));
        }
    }
}

fn xdr_list(list: &NvList, out: &mut Vec<u8>) {
    out.extend(0i32.to_be_bytes());
    out.extend(list.flags().to_be_bytes());
    for (name, value) in list.iter() {
        let start = out.len();
        out.extend([0; 4]);
        out.extend((native_record_bytes(name, value) as u32).to_be_bytes());
        xdr_string(name, out);
        out.extend(value.type_number().to_be_bytes());
        out.extend((count(value) as u32).to_be_bytes());
        xdr_value(value, out);
        let size = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    }
    out.extend([0; 8]);
}

fn xdr_string(text: &NvString, out: &mut Vec<u8>) {
    out.extend((text.as_bytes().len() as u32).to_be_bytes());
    let start = out.len();
    out.extend(text.as_bytes());
    pad(out, start, 4);
}

/// A counted array of elements, each widened to (at least) one XDR unit.
fn xdr_array<const N: usize>(values: impl ExactSizeIterator<Item = [u8; N]>, out: &mut Vec<u8>) {
    out.extend((values.len() as u32).to_be_bytes());
    out.extend(values.flatten());
}

fn xdr_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Boolean => {}
        // Bytes are widened without sign: the kernel's XDR refuses more than eight bits.
        Value::Byte(Byte(v)) | Value::Uint8(v) => out.extend(u32::from(*v).to_be_bytes()),
        Value::Int8(v) => out.extend(u32::from(*v as u8).to_be_bytes()),
        Value::Int16(v) => out.extend(i32::from(*v).to_be_bytes()),
        Value::Uint16(v) => out.extend(u32::from(*v).to_be_bytes()),
        Value::Int32(v) => out.extend(v.to_be_bytes()),
        Value::Uint32(v) => out.extend(v.to_be_bytes()),
        Value::BooleanValue(v) => out.extend(u32::from(*v).to_be_bytes()),
        Value::Int64(v) | Value::HrTime(HrTime(v)) => out.extend(v.to_be_bytes()),
        Value::Uint64(v) => out.extend(v.to_be_bytes()),
        Value::Double(v) => out.extend(v.to_be_bytes()),
        Value::String(v) => xdr_string(v, out),
        Value::ByteArray(Bytes(v)) => {
            let start = out.len();
            out.extend(v);
            pad(out, start, 4);
        }
        // An array without elements is packed as nothing at all, not even its count (OpenZFS: `nvs_xdr_nvp_op`, which yet
        // counts four bytes for it in the pair's packed size; nobody reads that).
        _ if count(value) == 0 => {}
        Value::Uint8Array(v) => xdr_array(v.iter().map(|v| u32::from(*v).to_be_bytes()), out),
        Value::Int8Array(v) => xdr_array(v.iter().map(|v| u32::from(*v as u8).to_be_bytes()), out),
        Value::Int16Array(v) => xdr_array(v.iter().map(|v| i32::from(*v).to_be_bytes()), out),
        Value::Uint16Array(v) => xdr_array(v.iter().map(|v| u32::from(*v).to_be_bytes()), out),
        Value::Int32Array(v) => xdr_array(v.iter().map(|v| v.to_be_bytes()), out),
        Value::Uint32Array(v) => xdr_array(v.iter().map(|v| v.to_be_bytes()), out),
        Value::BooleanArray(v) => xdr_array(v.iter().map(|v| u32::from(*v).to_be_bytes()), out),
        Value::Int64Array(v) => xdr_array(v.iter().map(|v| v.to_be_bytes()), out),
        Value::Uint64Array(v) => xdr_array(v.iter().map(|v| v.to_be_bytes()), out),
        Value::StringArray(v) => v.iter().for_each(|text| xdr_string(text, out)),
        Value::NvList(list) => xdr_list(list, out),
        Value::NvListArray(lists) => lists.iter().for_each(|list| xdr_list(list, out)),
    }
}

impl NvList {
    /// The packed form: [`Encoding::Xdr`] for labels and what lies in the pool, [`Encoding::NativeLittle`] where OpenZFS packs natively.
    pub fn encode(&self, encoding: Encoding) -> Vec<u8> {
        encode(self, encoding)
    }
}
