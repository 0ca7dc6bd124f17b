//! The range_tree layer; see ARCHITECTURE.md for its place and invariants.
