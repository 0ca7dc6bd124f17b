//! Vdevs that are for some blocks only: what lies there and what does not, how they join a pool, and what an import knows of them.
use crate::common::{self, BLOCK_BYTES, BLOCKS, check, dataset, devices, exec, host, import, new_object, tops, write};
use device::MemDevice;
use dmu::Tx;
use dsl::DslPool;
use pool::{AddSpec, ClassSpec, Pool, PoolError, PoolSpec, Runtime};
use std::sync::Arc;
use vdev::{Bias, TopKind};

const DATA_BYTES: u64 = BLOCKS * BLOCK_BYTES as u64;
/// Txgs after which what was overwritten is free.
const RESTING_TXGS: usize = 4;

fn special(devices: &[Arc<MemDevice>]) -> ClassSpec {
    ClassSpec { special: tops(&[(TopKind::Mirror, devices.len())], devices), ..ClassSpec::default() }
}

fn spec(all: &[Arc<MemDevice>]) -> PoolSpec {
    PoolSpec { host: host(), classes: special(&all[2..4]), ..PoolSpec::new("tank", tops(&[(TopKind::Mirror, 2)], &all[..2]), dataset()) }
}

fn biases(pool: &Pool) -> Vec<Bias> {
    pool.tree().tops.iter().map(|top| top.bias).collect()
}

/// Bytes on the vdevs, once nothing rests that was freed.
fn settled(pool: &Pool) -> Vec<u64> {
    (0..RESTING_TXGS).for_each(|_| pool.sync().expect("synced"));
    pool.status().vdev_space.iter().map(|space| space.allocated).collect()
}

/// Number of vdevs that the feature counts.
fn counted(pool: &Pool) -> Option<u64> {
    pool.features().into_iter().find_map(|(name, _, references)| (name == "allocation_classes").then_some(references)).flatten()
}

/// If this fails, metadata lies on slow disks, files fill the vdev for it though nobody asked for that, or those that shall lie there do not.
#[test]
fn metadata_and_small_blocks_alone_lie_on_the_vdevs_for_them() {
    let all = devices(4);
    let mut pool = Pool::create(&exec(7), spec(&all), &Runtime::new()).expect("created");
    let object = new_object(&pool);
    assert_eq!(settled(&pool)[0], 0, "from the first block on");
    write(&pool, object, 0..BLOCKS, 1);
    let with_data = settled(&pool);
    assert_eq!(with_data[0], DATA_BYTES, "no metadata is beside the data");
    let mut age = 1;
    for (small_bytes, beside) in [(BLOCK_BYTES, 0), (BLOCK_BYTES / 2, DATA_BYTES), (BLOCK_BYTES, 0), (0, DATA_BYTES)] {
        pool.export().expect("exported");
        pool = import(&all, false).expect("imported");
        assert_eq!((biases(&pool), counted(&pool)), (vec![Bias::None, Bias::Special], Some(1)));
        let handle = pool.dsl().hold("tank").expect("held");
        handle.set_props(&[("special_small_blocks".to_string(), small_bytes.to_string())]).expect("set");
        drop(handle);
        age += 1;
        write(&pool, object, 0..BLOCKS, age);
        let used = settled(&pool);
        assert_eq!(used[0], beside, "blocks up to {small_bytes} bytes are small");
        assert!(used[1] >= DATA_BYTES - beside, "{used:?}");
        check(&pool, object, &[age; BLOCKS as usize], "after the property was set");
        assert!(pool.verify_space().expect("readable").is_clean());
    }
    let space = pool.status().space;
    let [plain, metadata] = [0, 1].map(|vdev| pool.status().vdev_space[vdev]);
    assert_eq!(space.capacity, plain.capacity + metadata.capacity, "they are part of the pool");
    assert!(space.deflated_capacity <= plain.capacity, "they are no room for files");
}

/// If this fails, blocks on a vdev for metadata use up the room of all others: `zfs list` has less and less, and files are refused on an empty pool.
#[test]
fn what_lies_on_the_vdevs_for_some_blocks_takes_no_room_of_others() {
    let all = devices(4);
    let pool = Pool::create(&exec(7), spec(&all), &Runtime::new()).expect("created");
    let handle = pool.dsl().hold("tank").expect("held");
    handle.set_props(&[("special_small_blocks".to_string(), BLOCK_BYTES.to_string())]).expect("set");
    let object = new_object(&pool);
    settled(&pool);
    let before = handle.space();
    write(&pool, object, 0..BLOCKS, 1);
    assert!(settled(&pool)[1] >= DATA_BYTES, "it lies there");
    let after = handle.space();
    assert!(after.used >= before.used + DATA_BYTES, "{before:?}, {after:?}");
    assert!(after.available + DATA_BYTES / 2 > before.available, "{before:?}, {after:?}");
}

/// If this fails, a vdev for metadata can be had with a new pool only, OpenZFS does not see what it is for, or a pool that OpenZFS cannot understand is made.
#[test]
fn vdevs_for_some_blocks_join_a_pool_with_the_feature() {
    let all = devices(5);
    let plain = || Some(vec!["async_destroy".to_string()]);
    let refused = Pool::create(&exec(7), PoolSpec { features: plain(), ..spec(&all) }, &Runtime::new());
    assert!(matches!(refused.err(), Some(PoolError::Invalid(_))));
    let old = PoolSpec { features: plain(), classes: ClassSpec::default(), ..spec(&all) };
    let pool = Pool::create(&exec(7), old, &Runtime::new()).expect("created");
    let both = || ClassSpec { dedup: tops(&[(TopKind::Leaf, 1)], &all[4..]), ..special(&all[2..4]) };
    assert!(matches!(pool.add(AddSpec { classes: both(), ..AddSpec::default() }), Err(PoolError::Invalid(_))));
    pool.destroy().expect("destroyed");

    let pool = common::create(&all[..2], TopKind::Mirror);
    assert_eq!(counted(&pool), Some(0));
    pool.add(AddSpec { classes: both(), ..AddSpec::default() }).expect("added");
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    let before = settled(&pool);
    assert!(before[1] > 0 && before[2] == 0, "{before:?}");
    drop(pool);
    assert!(import(&all[..2], false).is_err(), "nobody knows where anything is without it");
    let pool = import(&all, false).expect("imported");
    assert_eq!((biases(&pool), counted(&pool)), (vec![Bias::None, Bias::Special, Bias::Dedup], Some(2)));
    let guids: Vec<_> = pool.tree().tops.iter().map(|top| top.guid).collect();
    assert!(matches!(pool.set_allocating(guids[0], false), Err(PoolError::Target(_))), "all other blocks have no other place");
    pool.set_allocating(guids[1], false).expect("set");
    write(&pool, object, 0..BLOCKS, 2);
    assert!(settled(&pool)[0] > before[0], "metadata falls back to the others");
    check(&pool, object, &[2; BLOCKS as usize], "without a vdev for metadata");
    assert!(pool.verify_space().expect("readable").is_clean());
}

/// If this fails, a vdev for metadata becomes one for all blocks when a disk fails to read for a moment: files fill it, and nothing moves them away again.
#[test]
fn a_pool_is_not_written_while_nobody_knows_which_blocks_a_vdev_is_for() {
    let all = devices(4);
    let pool = Pool::create(&exec(7), spec(&all), &Runtime::new()).expect("created");
    let object = new_object(&pool);
    write(&pool, object, 0..BLOCKS, 1);
    let (guid, zap) = (pool.tree().tops[1].guid, pool.tree().tops[1].zap);
    let change = move |dsl: &Arc<DslPool>, (), tx: &Tx| Ok(dsl.mos().hold(zap)?.write(0, &[0xAB; 512], tx)?);
    pool.dsl().sync_task(|_, _| Ok(()), change).expect("changed");
    pool.export().expect("exported");
    for _ in 0..2 {
        let refused = import(&all, false).err();
        assert!(matches!(&refused, Some(PoolError::Bias(of, _)) if *of == guid), "{refused:?}");
        let found = pool::find_pools(&exec(8), common::opened(&all)).remove(0);
        let examined = found.examine(&exec(8), &Runtime::new());
        assert_eq!(examined.problem, refused, "a search says so too");
    }
    let pool = import(&all, true).expect("imported to be read");
    check(&pool, object, &[1; BLOCKS as usize], "all is there");
}
