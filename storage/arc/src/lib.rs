//! The arc layer; see ARCHITECTURE.md for its place and invariants.
