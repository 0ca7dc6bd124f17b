//! In a process of its own, because what is mapped is counted for all of it.

use abd::{Abd, memory_stats};

/// Each size that was ever used would keep an empty slab of 4 MiB for itself, and a budget of memory would be exceeded by their sum.
#[test]
fn an_empty_slab_serves_buffers_of_other_sizes() {
    let sizes = [4 << 10, 20 << 10, 100 << 10, 128 << 10, 300 << 10, 1 << 20];
    for size in sizes {
        drop(Abd::scratch(size));
    }
    let mapped = memory_stats().mapped_bytes;
    for size in sizes {
        drop(Abd::scratch(size));
        assert_eq!(memory_stats().mapped_bytes, mapped, "{size} bytes");
    }
    assert_eq!(mapped, 4 << 20, "one slab is enough for one buffer at a time");
}
