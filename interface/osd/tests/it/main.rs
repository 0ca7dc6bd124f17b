//! Object storage devices, judged from outside: a model, power cuts, what is copied and what the devices see, callbacks, grants, threads.

mod bed;
mod cuts;
mod model;
mod moves;
mod threads;
mod transactions;
