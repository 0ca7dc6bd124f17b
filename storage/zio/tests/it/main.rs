//! The pipeline, judged from outside: blocks, injected faults, layouts, queues, leaves that sit out, stages, suspension, threads. One program: each file of tests by itself would be linked with all that is below.

mod blocks;
mod classes;
mod common;
mod inject;
mod layouts;
mod places;
mod queue;
mod sitting;
mod stage;
mod suspended;
mod threads;
