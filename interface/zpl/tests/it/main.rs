//! File systems, judged from outside: models, records of the intent log, direct I/O, full and hostile pools. One program: each file of tests by itself would be linked with all that is below.

mod arena;
mod cloned;
mod diff;
mod direct;
mod encrypted;
mod flags;
mod full;
mod hostile;
mod legacy;
mod log;
mod model;
mod pool;
mod recount;
mod replay;
mod replay_bed;
mod saxattr;
mod seen;
mod steps;
mod threads;
mod unlinked;
