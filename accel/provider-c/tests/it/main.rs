//! Providers in C, built here and loaded: the example, and one that uses every part. One program: each file of tests by itself would be linked with all that is below.

mod common;
mod example;
mod full;
