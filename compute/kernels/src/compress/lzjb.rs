//! LZJB (OpenZFS: `lzjb.c`): each control byte says for the next eight items, lowest bit first, literal or match.
//!
//! A match is two bytes: six bits of length − 3, ten bits of distance back.

const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = 66;
const DISTANCE_MASK: usize = 0x3FF;
const TABLE: usize = 1024;
/// A control byte and eight matches.
const GROUP_BYTES: usize = 17;

fn slot(bytes: &[u8]) -> usize {
    let mut hash = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
    hash += hash >> 9;
    hash += hash >> 5;
    hash % TABLE
}

/// Compresses a block, and returns the bytes written; None when the result does not fit.
pub(super) fn compress(source: &[u8], target: &mut [u8]) -> Option<usize> {
    let mut recent = [0u16; TABLE];
    let (mut at, mut out) = (0, 0);
    while at < source.len() {
        if out + GROUP_BYTES >= target.len() {
            return None;
        }
        let control = out;
        target[control] = 0;
        out += 1;
        for bit in 0..8 {
            if at >= source.len() {
                break;
            }
            if at + MATCH_MAX <= source.len() {
                let here = &source[at..at + MATCH_MAX];
                let entry = &mut recent[slot(here)];
                let distance = at.wrapping_sub(usize::from(*entry)) & DISTANCE_MASK;
                *entry = at as u16;
                if distance != 0 && distance <= at && source[at - distance..][..MATCH_MIN] == here[..MATCH_MIN] {
                    let there = &source[at - distance..];
                    let length = MATCH_MIN + here[MATCH_MIN..].iter().zip(&there[MATCH_MIN..]).take_while(|(a, b)| a == b).count();
                    target[control] |= 1 << bit;
                    target[out] = ((length - MATCH_MIN) << 2 | distance >> 8) as u8;
                    target[out + 1] = distance as u8;
                    out += 2;
                    at += length;
                    continue;
                }
            }
            target[out] = source[at];
            out += 1;
            at += 1;
        }
    }
    Some(out)
}

/// Decompresses the whole of `target`; None when the stream is malformed.
pub(super) fn decompress(source: &[u8], target: &mut [u8]) -> Option<()> {
    let (mut at, mut out) = (0, 0);
    while out < target.len() {
        let control = *source.get(at)?;
        at += 1;
        for bit in 0..8 {
            if out == target.len() {
                break;
            }
            if control >> bit & 1 == 0 {
                target[out] = *source.get(at)?;
                at += 1;
                out += 1;
                continue;
            }
            let (high, low) = (usize::from(*source.get(at)?), usize::from(*source.get(at + 1)?));
            at += 2;
            let distance = high << 8 & DISTANCE_MASK | low;
            let length = ((high >> 2) + MATCH_MIN).min(target.len() - out);
            let from = out.checked_sub(distance)?;
            if distance >= length {
                target.copy_within(from..from + length, out);
            } else {
                for n in 0..length {
                    target[out + n] = target[from + n];
                }
            }
            out += length;
        }
    }
    Some(())
}
