//! What was written to the pool of a life: one object whose blocks tell their age.

use dmu::NewObject;
use dsl::TxSpace;
use exec::SplitMix;
use ondisk::{ObjectId, ObjectType};
use pool::Pool;
use std::fmt;
use std::ops::Range;

const BLOCK_BYTES: usize = 16 << 10;
/// Number of blocks of the object.
pub const BLOCKS: u64 = 20;
/// Name of the dataset that the object lies in.
pub const DATASET: &str = "tank/lives";

pub fn said<T, E: fmt::Display>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Bytes of a block that tell its number and age.
fn pattern(age: u64, block: u64) -> Vec<u8> {
    let mut random = SplitMix::new(age << 16 | block);
    let mut bytes = vec![0; BLOCK_BYTES];
    bytes.as_chunks_mut().0.iter_mut().for_each(|word| *word = random.next_u64().to_le_bytes());
    bytes
}

pub struct Written {
    object: ObjectId,
    /// Age with which each block was written last; 0 is never.
    ages: Vec<u64>,
    age: u64,
}

impl Written {
    /// Makes the object.
    pub fn begin(pool: &Pool) -> Result<Written, String> {
        let handle = said("hold", pool.dsl().hold(DATASET))?;
        let tx = said("assign", handle.assign(TxSpace::Writes(1 << 20)))?;
        let new = NewObject { block_size: BLOCK_BYTES, ..NewObject::new(ObjectType::UINT64_OTHER) };
        let object = said("allocate", said("objset", handle.objset())?.allocate_object(new, &tx))?.object();
        Ok(Written { object, ages: vec![0; BLOCKS as usize], age: 0 })
    }

    /// Writes blocks, with a new age.
    pub fn write(&mut self, pool: &Pool, blocks: Range<u64>) -> Result<(), String> {
        self.age += 1;
        let handle = said("hold", pool.dsl().hold(DATASET))?;
        let tx = said("assign", handle.assign(TxSpace::Writes(1 << 20)))?;
        let dnode = said("objset", handle.objset())?.hold(self.object);
        let dnode = said("hold an object", dnode)?;
        for block in blocks {
            said("write", dnode.write(block * BLOCK_BYTES as u64, &pattern(self.age, block), &tx))?;
            self.ages[block as usize] = self.age;
        }
        Ok(())
    }

    /// Ages of the blocks, for [`Written::go_back`].
    pub fn ages(&self) -> Vec<u64> {
        self.ages.clone()
    }

    /// Takes back what was written after these ages, which is not there.
    pub fn go_back(&mut self, ages: Vec<u64>) {
        self.ages = ages;
    }

    /// Reads everything from the devices.
    pub fn check(&self, pool: &Pool) -> Result<(), String> {
        pool.cache().clear();
        let objset = said("objset", said("hold", pool.dsl().hold(DATASET))?.objset())?;
        let dnode = said("hold an object", objset.hold(self.object))?;
        let mut block = vec![0; BLOCK_BYTES];
        for (index, age) in self.ages.iter().enumerate().filter(|(_, age)| **age != 0) {
            if let Err(error) = dnode.read(index as u64 * BLOCK_BYTES as u64, &mut block) {
                return Err(format!("block {index}: {error}"));
            }
            if block != pattern(*age, index as u64) {
                return Err(format!("block {index} is not what was written"));
            }
        }
        Ok(())
    }
}
