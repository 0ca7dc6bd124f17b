//! The engine object: what all I/O of one pool shares, and the public operations.

use crate::{ErrorKind, ReadRequest, ReadThen, WriteRequest, WriteThen, ZioError};
use abd::Abd;
use exec::{Exec, completion};
use ondisk::{BlockPtr, Bookmark, Txg};

/// The pipeline of one pool; a cheap handle.
#[derive(Clone)]
pub struct Zio {
    exec: Exec,
}

impl std::fmt::Debug for Zio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Zio")
    }
}

impl Zio {
    /// The executor that the pipeline runs on.
    pub fn exec(&self) -> &Exec {
        &self.exec
    }

    /// Reads one block; `then` gets its logical bytes (or the physical ones with [`crate::ReadFlags::raw`]).
    pub fn read(&self, request: ReadRequest, then: ReadThen) {
        then(Err(ZioError::new(ErrorKind::Unsupported, request.bookmark)));
    }

    /// Reads one block and waits.
    pub fn read_wait(&self, request: ReadRequest) -> Result<Abd, ZioError> {
        let (done, wait) = completion();
        self.read(request, Box::new(move |result| done.complete(result)));
        wait.wait(&self.exec)
    }

    /// Writes one block; `then` gets its pointer. Nothing is freed: that is up to the caller.
    pub fn write(&self, request: WriteRequest, then: WriteThen) {
        then(Err(ZioError::new(ErrorKind::Unsupported, request.bookmark)));
    }

    /// Writes one block and waits.
    pub fn write_wait(&self, request: WriteRequest) -> Result<BlockPtr, ZioError> {
        let (done, wait) = completion();
        self.write(request, Box::new(move |result| done.complete(result)));
        wait.wait(&self.exec)
    }

    /// Gives the block's space back in `txg`; a gang's members too. Holes and embedded pointers cost nothing.
    pub fn free(&self, txg: Txg, bp: &BlockPtr) {
        let _ = (txg, bp);
    }

    /// Makes everything written so far durable on every leaf; `then` gets the first error of a leaf that matters.
    pub fn flush_all(&self, then: Box<dyn FnOnce(Result<(), ZioError>) + Send>) {
        then(Err(ZioError::new(ErrorKind::Unsupported, Bookmark::default())));
    }

    /// Makes everything written so far durable, and waits.
    pub fn flush_wait(&self) -> Result<(), ZioError> {
        let (done, wait) = completion();
        self.flush_all(Box::new(move |result| done.complete(result)));
        wait.wait(&self.exec)
    }
}
