//! The zio layer; see ARCHITECTURE.md for its place and invariants.
