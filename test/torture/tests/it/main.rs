//! Short forms of the campaigns of `torture`, for the gate. One program: each file of tests by itself would be linked with all that is below.

mod broken;
mod cuts;
mod direct;
mod durable;
mod liars;
mod lives;
mod receives;
