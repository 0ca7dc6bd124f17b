//! The writer over a store in memory.
