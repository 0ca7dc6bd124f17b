//! Contents of a device as shared pages: a copy costs a pointer per page, a write copies only the pages it touches.

use abd::Abd;
use std::sync::{Arc, OnceLock};

const PAGE_BYTES: usize = 16 << 10;
type Page = [u8; PAGE_BYTES];
static ZEROS: Page = [0; PAGE_BYTES];

/// Bytes of a device at some moment. Pages of zeros take no memory.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pages: Vec<Option<Arc<Page>>>,
    size_bytes: usize,
}

impl Image {
    /// An image of `size_bytes` zeros.
    pub fn new(size_bytes: usize) -> Image {
        Image { pages: vec![None; size_bytes.div_ceil(PAGE_BYTES)], size_bytes }
    }

    /// An image of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::new(bytes.len());
        for (index, chunk) in bytes.chunks(PAGE_BYTES).enumerate() {
            if !abd::slice_is_zero(chunk) {
                image.write(index * PAGE_BYTES, chunk);
            }
        }
        image
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Copies the bytes from `offset` on into `out`. Panics when they are not inside the image.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.visit(offset, out.len(), &mut |at, bytes| out[at..at + bytes.len()].copy_from_slice(bytes));
    }

    /// Shows the `length` bytes from `offset` on, piece by piece, with where in them each begins. Panics when they are not inside the
    /// image.
    pub fn visit(&self, offset: usize, length: usize, see: &mut dyn FnMut(usize, &[u8])) {
        assert!(offset + length <= self.size_bytes, "read beyond the image");
        let mut done = 0;
        while done < length {
            let at = offset + done;
            let (page, start) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let count = (PAGE_BYTES - start).min(length - done);
            see(done, &self.pages[page].as_deref().unwrap_or(&ZEROS)[start..start + count]);
            done += count;
        }
    }

    /// Overwrites the bytes from `offset` on. Panics when they are not inside the image.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.size_bytes, "write beyond the image");
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done;
            let (page, start) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let count = (PAGE_BYTES - start).min(bytes.len() - done);
            let piece = &bytes[done..done + count];
            done += count;
            let place = &mut self.pages[page];
            // Zeros take no memory, where nothing else is.
            if (count == PAGE_BYTES || place.is_none()) && abd::slice_is_zero(piece) {
                *place = None;
                continue;
            }
            let page = place.get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[start..start + count].copy_from_slice(piece);
        }
    }

    /// Overwrites `length` bytes from `offset` on with what nobody wrote, as a device may after a trim. Whole pages cost nothing.
    pub fn poison(&mut self, offset: usize, length: usize) {
        static POISON: OnceLock<Arc<Page>> = OnceLock::new();
        let poison = POISON.get_or_init(|| Arc::new([0xDB; PAGE_BYTES]));
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let count = (PAGE_BYTES - at % PAGE_BYTES).min(end - at);
            match count {
                PAGE_BYTES => self.pages[at / PAGE_BYTES] = Some(poison.clone()),
                _ => self.write(at, &poison[..count]),
            }
            at += count;
        }
    }

    /// Overwrites the bytes from `offset` on with those of a buffer.
    pub fn write_abd(&mut self, offset: usize, data: &Abd) {
        data.fold(offset, |at, bytes| {
            self.write(at, bytes);
            Some(at + bytes.len())
        });
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size_bytes];
        for (page, chunk) in self.pages.iter().zip(bytes.chunks_mut(PAGE_BYTES)) {
            if let Some(page) = page {
                chunk.copy_from_slice(&page[..chunk.len()]);
            }
        }
        bytes
    }

    /// The parts that may hold anything but zeros, with their offsets; enough to write the image into a sparse file.
    pub fn written(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.pages.iter().enumerate().filter_map(|(index, page)| {
            let offset = index * PAGE_BYTES;
            let length = PAGE_BYTES.min(self.size_bytes - offset);
            page.as_ref().map(|page| (offset, &page[..length]))
        })
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        let zero = |page: &Option<Arc<Page>>| page.as_ref().is_none_or(|page| abd::slice_is_zero(&page[..]));
        let same = |(a, b): (&Option<Arc<Page>>, &Option<Arc<Page>>)| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            (a, b) => zero(a) && zero(b),
        };
        self.size_bytes == other.size_bytes && self.pages.iter().zip(&other.pages).all(same)
    }
}

impl Eq for Image {}
