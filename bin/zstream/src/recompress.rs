//! `zstream recompress` and `zstream decompress`: blocks of a stream in another form (OpenZFS: `zstream_recompress.c`, `zstream_decompress.c`).

use crate::rewrite::{failed, filter};
use cli::Stop;
use control_api::{ErrorKind, Failure};
use kernels::compress::from_property;
use ondisk::{Compression, ObjectType};
use std::collections::HashMap;
use stream::{Begin, Features, HeaderType, Record, Write};

/// Bytes that compressed blocks are a multiple of (OpenZFS: `SPA_MINBLOCKSIZE`).
const SECTOR_BYTES: usize = 512;
/// Exit code of an algorithm that there is not, as OpenZFS's program has it.
const EXIT_ALGORITHM: u8 = 2;

/// Runs `zstream recompress`.
pub fn recompress(algorithm: &str, level: Option<i32>) -> Result<u8, Stop> {
    let is_known = |kind: &Compression| *kind == Compression::OFF || kernels::COMPRESSIONS.contains(kind);
    if !from_property(algorithm).is_some_and(|(kind, _)| is_known(&kind)) {
        cli::errln!("invalid compression type {algorithm}");
        return Ok(EXIT_ALGORITHM);
    }
    let Some((kind, level)) = with_level(algorithm, level) else {
        let why = format!("invalid level {} of {algorithm}", level.unwrap_or_default());
        return Err(Failure::new(ErrorKind::Invalid, why, "zstd has -1 to -10, some down to -1000, and 1 to 19, gzip has 1 to 9").into());
    };
    filter(&mut |_, record, payload| {
        match record {
            Record::Begin(begin) => begin.versioninfo = versioninfo(begin, kind),
            Record::Write(write) if !is_left(write) => again(write, payload, (kind, level))?,
            _ => {}
        }
        Ok(())
    })
}

/// Kind and level of an algorithm, with this level where it has any; None for a level that it has not.
fn with_level(algorithm: &str, level: Option<i32>) -> Option<(Compression, u8)> {
    let family = algorithm.split('-').next().unwrap_or(algorithm);
    match level {
        Some(level) if family == "zstd" && level < 0 => from_property(&format!("zstd-fast-{}", level.unsigned_abs())),
        Some(level) if matches!(family, "zstd" | "gzip") => from_property(&format!("{family}-{level}")),
        _ => from_property(algorithm),
    }
}

/// True for blocks that stay as they are: metadata is not compressed in streams, and what is encrypted cannot be.
fn is_left(write: &Write) -> bool {
    is_encrypted(write) || u8::try_from(write.kind).is_ok_and(|kind| ObjectType(kind).is_metadata())
}

fn is_encrypted(write: &Write) -> bool {
    write.salt != [0; 8] || write.iv != [0; 12] || write.mac != [0; 16]
}

/// Word of a header whose blocks are compressed in another way.
fn versioninfo(begin: &Begin, kind: Compression) -> u64 {
    if HeaderType::of_versioninfo(begin.versioninfo) != Some(HeaderType::Substream) {
        return begin.versioninfo;
    }
    let features = Features::of_versioninfo(begin.versioninfo);
    let features = match kind {
        Compression::OFF if features.has(Features::RAW) => features,
        // Contents that lie in block pointers stay compressed.
        Compression::OFF if features.has(Features::EMBED_DATA) => features.without(Features::COMPRESSED),
        Compression::OFF => features.without(Features::COMPRESSED).without(Features::LZ4.with(Features::ZSTD)),
        Compression::ZSTD => features.with(Features::COMPRESSED).with(Features::ZSTD),
        Compression::LZ4 => features.with(Features::COMPRESSED).with(Features::LZ4),
        _ => features.with(Features::COMPRESSED),
    };
    features.versioninfo(HeaderType::Substream)
}

/// Compresses the contents of a block in another way, or not at all where that makes them no smaller.
fn again(write: &mut Write, payload: &mut Vec<u8>, (kind, level): (Compression, u8)) -> Result<(), Failure> {
    if write.compressiontype != 0 {
        let why = format!("the block at object {} offset {} cannot be decompressed", write.object, write.offset);
        unpack(Compression(write.compressiontype), write, payload).ok_or_else(|| failed(ErrorKind::Damaged, why))?;
    }
    let mut packed = vec![0; payload.len()];
    let Some(used) = kernels::compress(kind, level, payload, &mut packed) else { return Ok(()) };
    let bytes = used.next_multiple_of(SECTOR_BYTES);
    if bytes < payload.len() {
        packed.truncate(used);
        packed.resize(bytes, 0);
        *payload = packed;
        (write.compressiontype, write.compressed_size) = (kind.0, bytes as u64);
    }
    Ok(())
}

/// Decompresses a block; None, and nothing changed, for one that is not compressed so.
fn unpack(kind: Compression, write: &mut Write, payload: &mut Vec<u8>) -> Option<()> {
    let bytes = usize::try_from(write.logical_size).ok().filter(|bytes| *bytes <= ondisk::BLOCK_BYTES_MAX)?;
    let mut plain = vec![0; bytes];
    kernels::decompress(kind, payload, &mut plain).ok()?;
    *payload = plain;
    (write.compressiontype, write.compressed_size) = (0, 0);
    Some(())
}

/// Object and offset of a block, and how it is compressed, of a word `OBJECT,OFFSET[,TYPE]`.
fn block(word: &str) -> Result<((u64, u64), Compression), Stop> {
    let mut parts = word.splitn(3, ',');
    let mut number = |what: &str| {
        let text = parts.next().ok_or_else(|| Stop::usage(format!("'{word}' is not OBJECT,OFFSET")))?;
        text.parse::<u64>().map_err(|_| Stop::from(Failure::new(ErrorKind::Invalid, format!("invalid value for {what}"), "")))
    };
    let place = (number("object")?, number("offset")?);
    let kind = match parts.next() {
        None | Some("lz4") => Compression::LZ4,
        Some("off") => Compression::OFF,
        Some("lzjb") => Compression::LZJB,
        Some("gzip") => Compression::GZIP_1,
        Some("zle") => Compression::ZLE,
        Some("zstd") => Compression::ZSTD,
        Some(other) => {
            let text = format!("invalid compression type {other}. Supported types are off, lz4, lzjb, gzip, zle, and zstd");
            return Err(Stop::usage(text));
        }
    };
    Ok((place, kind))
}

/// Runs `zstream decompress`.
pub fn decompress(words: &[String], is_verbose: bool) -> Result<u8, Stop> {
    let blocks = words.iter().map(|word| block(word)).collect::<Result<HashMap<_, _>, Stop>>()?;
    filter(&mut |_, record, payload| {
        if let Record::Write(write) = record
            && let Some(kind) = blocks.get(&(write.object, write.offset))
        {
            let said = named(*kind, write, payload);
            if is_verbose || !said.1 {
                cli::errln!("{}", said.0);
            }
        }
        Ok(())
    })
}

/// Decompresses a block that somebody named; gives words about it, and whether that went well.
fn named(kind: Compression, write: &mut Write, payload: &mut Vec<u8>) -> (String, bool) {
    let place = format!("ino {} offset {}", write.object, write.offset);
    if kind == Compression::OFF {
        (write.compressiontype, write.compressed_size, write.logical_size) = (0, 0, payload.len() as u64);
        return (format!("Resetting compression type to off for {place}"), true);
    }
    match unpack(kind, write, payload) {
        Some(()) => (format!("Successfully decompressed {place}"), true),
        None => (format!("decompression failed for {place}"), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 16 << 10;

    fn text() -> Vec<u8> {
        b"what compresses well ".iter().copied().cycle().take(BLOCK).collect()
    }

    fn whole(object: u64) -> Write {
        Write { object, kind: 19, logical_size: BLOCK as u64, ..Write::default() }
    }

    /// If this fails, a backup that was made smaller on its way is another one when it comes back.
    #[test]
    fn contents_stay_the_same_in_every_form() {
        let (mut write, mut payload) = (whole(7), text());
        for algorithm in ["gzip-1", "lz4", "zstd-19", "lzjb", "off", "zle"] {
            let wanted = from_property(algorithm).expect("an algorithm");
            again(&mut write, &mut payload, wanted).expect("rewritten");
            assert_eq!(Record::Write(write.clone()).payload_bytes(), payload.len() as u64, "{algorithm}");
            let is_packed = !matches!(algorithm, "off" | "zle");
            assert_eq!((write.compressiontype != 0, payload.len() < BLOCK), (is_packed, is_packed), "{algorithm}");
            assert!(payload.len().is_multiple_of(SECTOR_BYTES), "{algorithm}");
        }
        assert_eq!(payload, text());
        assert!(is_left(&Write { mac: [1; 16], ..whole(7) }), "what is encrypted");
        assert!(is_left(&Write { kind: 20, ..whole(7) }), "a directory");
    }

    /// If this fails, whoever mistypes a level gets a stream that is compressed in another way, or not at all.
    #[test]
    fn levels_are_those_of_the_algorithm() {
        for (algorithm, level, same) in
            [("zstd", 19, "zstd-19"), ("zstd-3", -1, "zstd-fast"), ("zstd", -500, "zstd-fast-500"), ("gzip", 9, "gzip-9")]
        {
            assert_eq!(with_level(algorithm, Some(level)), from_property(same), "{algorithm} {level}");
        }
        for (algorithm, level) in
            [("zstd", 0), ("zstd", 20), ("zstd", 99), ("zstd", -1001), ("zstd", i32::MIN), ("gzip", 0), ("gzip", 10), ("gzip", -1)]
        {
            assert_eq!(with_level(algorithm, Some(level)), None, "{algorithm} {level}");
        }
        assert_eq!(with_level("lz4", Some(3)), from_property("lz4"));
    }

    /// Receivers decide by these bits whether they can read what follows.
    #[test]
    fn headers_say_what_follows() {
        let of = |features: Features| Begin { versioninfo: features.versioninfo(HeaderType::Substream), ..Begin::default() };
        let made = |features: Features, kind| Features::of_versioninfo(versioninfo(&of(features), kind));
        let compressed = Features::COMPRESSED.with(Features::LZ4);
        assert_eq!(made(Features::SA_SPILL, Compression::GZIP_1), Features::SA_SPILL.with(Features::COMPRESSED));
        assert_eq!(made(Features::default(), Compression::LZ4), compressed);
        assert_eq!(made(compressed, Compression::OFF), Features::default());
        assert_eq!(made(compressed.with(Features::EMBED_DATA), Compression::OFF), Features::LZ4.with(Features::EMBED_DATA));
    }

    /// Blocks whose header lies about their form can be mended.
    #[test]
    fn named_blocks_are_decompressed() {
        let (mut write, mut payload) = (whole(7), text());
        again(&mut write, &mut payload, (Compression::LZ4, 0)).expect("compressed");
        let packed = payload.clone();
        payload.resize(BLOCK, 0);
        let mut lying = whole(7);
        assert!(!named(Compression::ZSTD, &mut lying, &mut payload).1);
        assert!(named(Compression::LZ4, &mut lying, &mut payload).1);
        assert_eq!((lying, payload), (whole(7), text()));
        let mut kept = packed.clone();
        assert!(named(Compression::OFF, &mut write, &mut kept).1);
        assert_eq!((write.compressiontype, write.logical_size, kept), (0, packed.len() as u64, packed));
        assert_eq!(block("7,512").ok(), Some(((7, 512), Compression::LZ4)));
        assert_eq!(block("7,0,gzip").ok(), Some(((7, 0), Compression::GZIP_1)));
        assert!(block("7").is_err() && block("x,0").is_err() && block("7,0,rar").is_err());
    }
}
