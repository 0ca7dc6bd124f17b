//! Torture: whole pools through power cuts, faulty devices, damaged labels and hostile images, judged against a model.
//!
//! * [`cuts`]: every moment of a program at which the power may go off;
//! * [`durable`]: the same of a program that makes durable what it does, in a file system or on a volume, and of the replay of its intent log;
//! * [`receives`]: the same of a program that receives streams, whole, broken off and gone on with;
//! * [`faults`]: the k-th device operation fails, for every k;
//! * [`direct`]: direct and buffered requests of the same bytes, compared with a model after each;
//! * [`lives`]: devices that fail, come back and are replaced, in any order, with a model of what must survive;
//! * [`campaign`]: those by the thousand, with OpenZFS's judgement;
//! * [`liars`]: whole pools on providers that go bad after their registration;
//! * [`zia`]: providers of accelerated stages that fail, lie, stall or die at every operation;
//! * [`damage`]: labels, uberblocks, whole devices overwritten or cut short; bytes flipped with their checksums made right.
//!
//! # Invariants
//! 1. Everything follows from a seed: the same seed gives the same program, the same trace and the same verdict.
//! 2. The model knows nothing of the engine: it is a map of names and bytes.
//! 3. A trial ends in a typed error or in the model's contents; a panic is a failure with its seed.
#![forbid(unsafe_code)]

/// Small pool of the pipeline's own tests, and its blocks on a provider.
#[path = "../../../storage/zio/tests/it/common/mod.rs"]
mod common;
#[path = "../../../storage/offload/tests/scene/mod.rs"]
mod scene;

pub mod campaign;
pub mod cuts;
pub mod damage;
pub mod direct;
pub mod durable;
pub mod faults;
pub mod full;
pub mod liars;
pub mod lives;
pub mod machine;
pub mod model;
pub mod outcome;
pub mod program;
mod raw;
pub mod receives;
pub mod zia;
