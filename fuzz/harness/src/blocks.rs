//! A disk as commands of SCSI see it: an array of bytes that follows what was answered GOOD, read from the descriptor blocks alone (SBC-3).

/// Bytes of a logical block.
pub const BLOCK: usize = 512;
/// Number of logical blocks.
pub const BLOCKS: usize = 512;

/// Command, what was sent with it, and what came back.
#[derive(Clone, Debug, Default)]
pub struct Command {
    /// Descriptor block.
    pub cdb: [u8; 16],
    /// Bytes that the initiator announced, or expects.
    pub expected: usize,
    /// True when it reads, as its flags say.
    pub reads: bool,
    /// Data that were sent with it.
    pub data: Vec<u8>,
    /// Data that came back.
    pub reply: Vec<u8>,
}

/// Bytes of a disk as they should be.
pub struct Blocks {
    bytes: Vec<u8>,
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0usize, |value, byte| value.saturating_mul(256).saturating_add(usize::from(*byte)))
}

impl Blocks {
    /// Zeros.
    pub fn new() -> Blocks {
        Blocks { bytes: vec![0; BLOCKS * BLOCK] }
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of a number of blocks; who names others than there are was not to be answered GOOD.
    fn range(&mut self, first: usize, blocks: usize) -> &mut [u8] {
        assert!(first <= BLOCKS && blocks <= BLOCKS - first, "{blocks} blocks from {first} on were taken");
        &mut self.bytes[first * BLOCK..(first + blocks) * BLOCK]
    }

    /// First block and number of blocks, where READ has them.
    fn span(cdb: &[u8; 16]) -> (usize, usize) {
        match cdb[0] >> 5 {
            0 => (number(&[cdb[1] & 0x1F, cdb[2], cdb[3]]), if cdb[4] == 0 { 256 } else { usize::from(cdb[4]) }),
            1 | 2 => (number(&cdb[2..6]), number(&cdb[7..9])),
            5 => (number(&cdb[2..6]), number(&cdb[6..10])),
            _ => (number(&cdb[2..10]), number(&cdb[10..14])),
        }
    }

    /// Does what a command did that was answered GOOD, and checks what it read or compared.
    pub fn done(&mut self, command: &Command) {
        let (cdb, data) = (&command.cdb, &command.data[..]);
        let (first, blocks) = Blocks::span(cdb);
        match cdb[0] {
            0x08 | 0x28 | 0x88 | 0xA8 => self.read(first, blocks, command),
            0x0A | 0x2A | 0x2E | 0x8A | 0x8E | 0xAA | 0xAE => {
                // A shorter transfer than the blocks writes those that are whole.
                let whole = blocks.min(data.len() / BLOCK);
                self.range(first, blocks);
                self.range(first, whole).copy_from_slice(&data[..whole * BLOCK]);
            }
            0x2F | 0x8F | 0xAF if cdb[1] & 0x06 == 0x02 => {
                assert!(*self.range(first, blocks) == data[..blocks * BLOCK], "what differs was found to be the same");
            }
            0x8B => self.range(first, blocks).iter_mut().zip(data).for_each(|(byte, bits)| *byte |= bits),
            0x89 => {
                let blocks = usize::from(cdb[13]);
                let (compared, written) = data[..2 * blocks * BLOCK].split_at(blocks * BLOCK);
                assert!(*self.range(first, blocks) == *compared, "what differs was found to be the same");
                self.range(first, blocks).copy_from_slice(written);
            }
            0x41 | 0x93 => {
                let blocks = if blocks == 0 { BLOCKS.saturating_sub(first) } else { blocks };
                let zeros = [0; BLOCK];
                let pattern = if cdb[0] == 0x93 && cdb[1] & 1 != 0 { &zeros[..] } else { &data[..BLOCK] };
                self.range(first, blocks).chunks_mut(BLOCK).for_each(|block| block.copy_from_slice(pattern));
            }
            0x42 => self.unmap(&data[..number(&cdb[7..9])]),
            _ => {}
        }
    }

    fn read(&mut self, first: usize, blocks: usize, command: &Command) {
        let wanted = if command.reads { command.expected.min(blocks * BLOCK) } else { 0 };
        assert_eq!(command.reply.len(), wanted, "bytes came back");
        assert!(self.range(first, blocks)[..wanted] == command.reply[..], "other bytes came back");
    }

    fn unmap(&mut self, list: &[u8]) {
        let Some(descriptors) = list.get(8..) else { return };
        let described = number(&list[2..4]).min(descriptors.len());
        for descriptor in descriptors[..described].chunks_exact(16) {
            self.range(number(&descriptor[..8]), number(&descriptor[8..12])).fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, the model agrees with whatever a unit does.
    #[test]
    fn blocks_follow_commands() {
        let mut blocks = Blocks::new();
        let mut cdb = [0; 16];
        (cdb[0], cdb[5], cdb[8]) = (0x2A, 3, 2);
        blocks.done(&Command { cdb, data: vec![7; 2 * BLOCK], ..Command::default() });
        let mut list = vec![0; 24];
        (list[3], list[15], list[19]) = (16, 4, 1);
        cdb = [0; 16];
        (cdb[0], cdb[8]) = (0x42, 24);
        blocks.done(&Command { cdb, data: list, ..Command::default() });
        let expected = |at: usize| if at / BLOCK == 3 { 7 } else { 0 };
        assert!(blocks.bytes().iter().enumerate().all(|(at, byte)| *byte == expected(at)));
        (cdb[0], cdb[5], cdb[8]) = (0x28, 3, 1);
        let read = Command { cdb, expected: BLOCK, reads: true, reply: vec![0; BLOCK], ..Command::default() };
        assert!(std::panic::catch_unwind(move || blocks.done(&read)).is_err(), "other bytes are noticed");
    }
}
