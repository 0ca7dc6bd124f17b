//! Trees of vdevs, judged from outside: failures of leaves, rebuilds, and leaves that sit out. One program: each file of tests by itself would be linked with all that is below.

mod expanded;
mod failures;
mod rebuild;
mod removed;
mod sitting;
