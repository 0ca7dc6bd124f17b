//! Where the text goes, and how numbers look in it.

use ondisk::ObjectId;
use std::fmt::Arguments;
use std::io::Write;

/// Directory of the meta object set (OpenZFS: `DMU_POOL_DIRECTORY_OBJECT`).
pub const DIRECTORY: ObjectId = ObjectId(1);

/// Output of one run.
pub struct Dump<'w> {
    out: &'w mut dyn Write,
    /// Number of times that `-d` was given.
    pub datasets: u32,
    /// True for exact numbers: `-P`.
    pub exact: bool,
    /// True when block pointers are shown with everything that they say: `-bbbbbb`.
    pub whole_pointers: bool,
    /// True when what stands in front of blocks of zstd is shown behind their pointers: `-Z`.
    pub zstd_headers: bool,
    /// True when the pool has the feature `project_quota` enabled: files show their project.
    pub has_projects: bool,
    /// Number of things that could not be read.
    pub damaged: u64,
}

impl<'w> Dump<'w> {
    /// Makes the output, which goes to `out`.
    pub fn new(out: &'w mut dyn Write, datasets: u32, exact: bool) -> Dump<'w> {
        Dump { out, datasets, exact, whole_pointers: false, zstd_headers: false, has_projects: false, damaged: 0 }
    }
    /// Appends text. A reader that went away (a pipe into head) ends the program in [`cli::print::Output`].
    pub fn text(&mut self, text: Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }
    /// Appends a line.
    pub fn line(&mut self, text: Arguments<'_>) {
        let _ = self.out.write_fmt(text);
        let _ = self.out.write_all(b"\n");
    }
    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
    }
    /// Says that something could not be read; the run ends with a failure.
    pub fn damage(&mut self, text: Arguments<'_>) {
        self.damaged += 1;
        self.line(format_args!("error: {text}"));
    }
    /// Text of a number for people, or exact (OpenZFS: `zdb_nicenum`).
    pub fn number(&self, number: u64) -> String {
        if self.exact { number.to_string() } else { cli::number::nice_count(number) }
    }
}
