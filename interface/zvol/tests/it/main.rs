//! Volumes, judged from outside: a model of bytes, power cuts, alignment, and requests that nobody waits for.

mod at_hand;
mod bed;
mod cuts;
mod edges;
mod model;
mod threads;
