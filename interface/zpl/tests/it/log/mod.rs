//! What operations note in the intent log, written by a log in memory and replayed after a power cut: whatever fsync(2) promised is there.
//! When these fail, a crash costs users what their programs had made durable.

mod bed;
mod kinds;
mod programs;
mod source;
