//! Cutting of bytes that come in parts of any length into blocks, for hash functions that treat their last block in a way of its own.

/// The bytes that no whole block, followed by others, was made of yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Pending<N> {
    /// Nothing.
    pub(super) fn new() -> Pending<N> {
        Pending { bytes: [0; N], length: 0 }
    }

    /// Adds bytes, and hands on every block that others follow: a block that may be the last one stays.
    pub(super) fn feed(&mut self, mut data: &[u8], mut hand_on: impl FnMut(&[u8; N])) {
        while !data.is_empty() {
            if self.length == N {
                hand_on(&self.bytes);
                self.length = 0;
            }
            while let Some((block, rest)) = data.split_first_chunk::<N>().filter(|(_, rest)| self.length == 0 && !rest.is_empty()) {
                hand_on(block);
                data = rest;
            }
            let count = data.len().min(N - self.length);
            self.bytes[self.length..self.length + count].copy_from_slice(&data[..count]);
            self.length += count;
            data = &data[count..];
        }
    }

    /// Bytes that stayed: none only where nothing was added.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the checksum of a block depends on how it lies in memory: it is written with one and read with another.
    #[test]
    fn blocks_do_not_depend_on_the_parts_that_bytes_come_in() {
        for length in 0..=17u8 {
            let bytes: Vec<u8> = (0..length).collect();
            for first in 0..=bytes.len() {
                for second in first..=bytes.len() {
                    let (mut pending, mut blocks) = (Pending::<4>::new(), Vec::new());
                    for part in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                        pending.feed(part, |block| blocks.extend_from_slice(block));
                    }
                    let expected = if bytes.is_empty() { 0 } else { (bytes.len() - 1) / 4 * 4 };
                    assert_eq!((&blocks[..], pending.rest()), bytes.split_at(expected), "{length} bytes cut at {first} and {second}");
                }
            }
        }
    }
}
