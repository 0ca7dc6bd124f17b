//! The registry of accelerators, judged from outside: breakers, events, faults, graphs, registration. One program: each file of tests by itself would be linked with all that is below.

mod breaker;
mod common;
mod events;
mod faults;
mod graphs;
mod registry;
mod worth;
