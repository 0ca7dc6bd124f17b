//! A target and its shared memory, as a hostile host uses them. One program: each file of tests by itself would be linked with all that is below.

mod hostile;
mod shared;
