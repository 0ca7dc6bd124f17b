//! Metaslabs, judged from outside: accounts, a model, places. One program: each file of tests by itself would be linked with all that is below.

mod accounts;
mod model;
mod places;
