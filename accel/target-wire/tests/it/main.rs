//! Frames of targets and shared regions, as a hostile peer fills them. One program: each file of tests by itself would be linked with all that is below.

mod hostile;
mod region;
