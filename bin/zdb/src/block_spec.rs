//! The words of `-R` that name a block: `vdev:offset:[lsize/]psize[:flags]`, numbers in hexadecimal (OpenZFS: `zdb_read_block`).

use ondisk::{BLOCK_BYTES_MAX, BlockPtr, SECTOR_BYTES};

/// Letters that say how a block is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `b`: the block pointer at an offset of it.
    pub pointer: bool,
    /// `c`: its checksums, too.
    pub checksums: bool,
    /// `d`: decompressed.
    pub unpacked: bool,
    /// `e`: with its words in the other byte order.
    pub swapped: bool,
    /// `g`: as a gang header.
    pub gang: bool,
    /// `i`: as an indirect block.
    pub indirect: bool,
    /// `r`: its bytes as they are.
    pub raw: bool,
    /// `v`: with the kinds of compression that are tried.
    pub verbose: bool,
}

impl Flags {
    fn of(&mut self, letter: char) -> Option<&mut bool> {
        Some(match letter {
            'b' => &mut self.pointer,
            'c' => &mut self.checksums,
            'd' => &mut self.unpacked,
            'e' => &mut self.swapped,
            'g' => &mut self.gang,
            'i' => &mut self.indirect,
            'r' => &mut self.raw,
            'v' => &mut self.verbose,
            _ => return None,
        })
    }
}

fn is_flag(letter: char) -> bool {
    Flags::default().of(letter).is_some()
}

/// Block to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    /// Name of the vdev.
    pub vdev: String,
    /// Offset in the vdev's allocatable space, in bytes.
    pub offset: u64,
    /// Bytes that are shown: those of the logical block, where they are known, or as many as are stored.
    pub lsize: usize,
    /// Bytes that are stored.
    pub psize: usize,
    /// Form in which it is shown.
    pub flags: Flags,
    /// Offset in the block, in bytes, of the block pointer that `b` shows.
    pub pointer_at: usize,
    /// Letters that are no flags, and are passed over.
    pub ignored: Vec<char>,
}

/// Value of the hexadecimal digits that a text begins with: 0 without any.
fn hex(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let end = digits.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(digits.len());
    if end == 0 { 0 } else { u64::from_str_radix(&digits[..end], 16).unwrap_or(u64::MAX) }
}

/// Logical and physical size, in bytes.
fn sizes(text: &str) -> (u64, u64) {
    let mut parts = text.split('/').filter(|part| !part.is_empty()).map(hex);
    let lsize = parts.next().unwrap_or(0);
    (lsize, parts.next().unwrap_or(lsize))
}

impl BlockSpec {
    /// Reads the words of a block. What follows the digits of a number is passed over, so that sizes may be given as they are shown: `20000L/1200P`.
    ///
    /// # Errors
    /// What to tell the user.
    pub fn parse(text: &str) -> Result<BlockSpec, String> {
        const SECTOR: u64 = SECTOR_BYTES as u64;
        let mut words = text.split(':').filter(|word| !word.is_empty());
        let vdev = words.next().unwrap_or_default().to_string();
        let offset = words.next().map_or(0, hex);
        let (lsize, psize) = words.next().map_or((0, 0), sizes);
        let invalid = |why: &str| Err(format!("Invalid block specifier: {text}  - {why}"));
        if psize == 0 || lsize < psize || lsize > BLOCK_BYTES_MAX as u64 {
            return invalid("invalid size(s)");
        }
        if !lsize.is_multiple_of(SECTOR) || !psize.is_multiple_of(SECTOR) {
            return invalid("size must be a multiple of sector size");
        }
        if !offset.is_multiple_of(SECTOR) {
            return invalid("offset must be a multiple of sector size");
        }
        let (lsize, psize) = (lsize as usize, psize as usize);
        let mut spec = BlockSpec { vdev, offset, lsize, psize, flags: Flags::default(), pointer_at: 0, ignored: Vec::new() };
        spec.read_flags(words.next().unwrap_or_default())?;
        Ok(spec)
    }

    fn read_flags(&mut self, letters: &str) -> Result<(), String> {
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            let Some(flag) = self.flags.of(letter) else {
                self.ignored.push(letter);
                continue;
            };
            *flag = true;
            if letter == 'b' {
                let end = rest.find(is_flag).unwrap_or(rest.len());
                self.pointer_at = usize::try_from(hex(&rest[..end])).unwrap_or(usize::MAX);
                rest = &rest[end..];
            }
        }
        if self.flags == Flags::default() && !letters.is_empty() {
            return Err(format!("Invalid flag arg: '{letters}'"));
        }
        if !self.pointer_at.is_multiple_of(BlockPtr::BYTES) {
            return Err(format!("Block pointer offset 0x{:x} must be divisible by 0x{:x}", self.pointer_at, BlockPtr::BYTES));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(letters: &str) -> Result<(Flags, usize, String), String> {
        let spec = BlockSpec::parse(&format!("0:0:200:{letters}"))?;
        Ok((spec.flags, spec.pointer_at, spec.ignored.into_iter().collect()))
    }

    /// If this fails, what users copy from a listing names another block.
    #[test]
    fn sizes_are_read_as_listings_show_them() {
        for (text, lsize, psize) in
            [("1.0:2a00:1000L/200P", 0x1000, 0x200), ("1.0:2a00:0x400:", 0x400, 0x400), ("1.0:2a00:/400/200", 0x400, 0x200)]
        {
            let spec = BlockSpec::parse(text).expect(text);
            assert_eq!(
                (spec.vdev.as_str(), spec.offset, spec.lsize, spec.psize, spec.flags),
                ("1.0", 0x2a00, lsize, psize, Flags::default()),
                "{text}"
            );
        }
        for (text, why) in [
            ("", "invalid size(s)"),
            ("0", "invalid size(s)"),
            ("0:0:0", "invalid size(s)"),
            ("0:0:x", "invalid size(s)"),
            ("0:0:200/400", "invalid size(s)"),
            ("0:0:1000200", "invalid size(s)"),
            ("0:0:ffffffffffffffffff", "invalid size(s)"),
            ("0:0:201", "size must be a multiple of sector size"),
            ("0:100:200", "offset must be a multiple of sector size"),
            ("0:ffffffffffffffffff:200", "offset must be a multiple of sector size"),
        ] {
            assert_eq!(BlockSpec::parse(text), Err(format!("Invalid block specifier: {text}  - {why}")), "{text}");
        }
    }

    /// If this fails, a flag does something else than OpenZFS's, and a pointer is looked for at another place.
    #[test]
    fn flags_are_letters_and_an_offset() {
        let none = Flags::default();
        let both = Flags { pointer: true, unpacked: true, ..none };
        for letters in ["db80", "b80d", "b0x80d"] {
            assert_eq!(flags(letters), Ok((both, 0x80, String::new())), "{letters}");
        }
        assert_eq!(flags("bd"), Ok((both, 0, String::new())));
        let all =
            Flags { pointer: true, checksums: true, unpacked: true, swapped: true, gang: true, indirect: true, raw: true, verbose: true };
        assert_eq!(flags("bcdegirv"), Ok((all, 0, String::new())));
        assert_eq!(flags("rxq"), Ok((Flags { raw: true, ..none }, 0, "xq".to_string())));
        assert_eq!(flags("xq"), Err("Invalid flag arg: 'xq'".to_string()));
        assert_eq!(flags("b81"), Err("Block pointer offset 0x81 must be divisible by 0x80".to_string()));
    }
}
