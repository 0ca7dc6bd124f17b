//! Pools, judged from outside, from their first label to lost power. One program: each file of tests by itself would be linked with all that is below.

mod brt;
mod common;
mod compat;
mod direct;
mod gangs;
mod hostile;
mod intent_logs;
mod life;
mod lifecycle;
mod log_writes;
mod multihost;
mod power_cuts;
mod progress;
mod pulled;
mod rebuild;
mod resilver;
mod salts;
mod scan_disks;
mod scan_pools;
mod scans;
mod scrub;
mod space_maps;
mod sweeps;
mod sync_points;
mod unreadable;
mod zia;
