//! Pools whose salt is missing, or is none: what they lose is what has salted checksums, and never the machine. What the user loses when these fail: a
//! pool that is written although nobody can check what is in it, or files that could be read.
use crate::common::{devices, host, import, opened, tops};
use device::MemDevice;
use dmu::Tx;
use dsl::{CreateDataset, DslPool, TxSpace};
use exec::{Exec, Inline};
use ondisk::{ObjectId, ObjectType, ObjsetType};
use pool::{Pool, PoolError, PoolSpec, Runtime};
use std::sync::Arc;
use vdev::TopKind;
use zap::{Value, Zap};

const DIRECTORY: ObjectId = ObjectId(1);
const ENTRY: &str = "org.illumos:checksum_salt";
const BYTES: usize = 200_000;

fn dataset(checksum: &str) -> CreateDataset {
    let properties = vec![("checksum".to_string(), checksum.to_string()), ("compression".to_string(), "off".to_string())];
    CreateDataset { kind: ObjsetType::OTHER, properties, init: Box::new(|_, _| Ok(())) }
}

fn create(devices: &[Arc<MemDevice>], seed: u64) -> Pool {
    let exec: Exec = Arc::new(Inline::new(seed));
    let spec = PoolSpec { host: host(), ..PoolSpec::new("tank", tops(&[(TopKind::Mirror, devices.len())], devices), dataset("on")) };
    Pool::create(&exec, spec, &Runtime::new()).expect("created")
}

fn write(pool: &Pool, name: &str, checksum: &str) -> ObjectId {
    pool.dsl().create_dataset(name, dataset(checksum)).expect("created");
    let handle = pool.dsl().hold(name).expect("held");
    let tx = handle.assign(TxSpace::Writes(1 << 20)).expect("assigned");
    let new = dmu::NewObject { block_size: 32 << 10, ..dmu::NewObject::new(ObjectType::UINT64_OTHER) };
    let dnode = handle.objset().expect("objset").allocate_object(new, &tx).expect("allocated");
    dnode.write(0, &[7; BYTES], &tx).expect("written");
    dnode.object()
}

/// True when the object can be read, and is right.
fn reads(pool: &Pool, name: &str, object: ObjectId) -> bool {
    let mut bytes = vec![0; BYTES];
    let handle = pool.dsl().hold(name).expect("held");
    let read = handle.objset().and_then(|objset| Ok(objset.hold(object)?.read(0, &mut bytes)?));
    assert!(read.is_err() || bytes == [7; BYTES], "{name}: wrong bytes");
    read.is_ok()
}

fn stored(pool: &Pool) -> Option<Value> {
    Zap::hold(pool.mos(), DIRECTORY).and_then(|directory| directory.try_lookup(ENTRY)).expect("readable")
}

/// Puts something else in the salt's place.
fn plant(pool: &Pool, value: Option<Value>) {
    let change = move |dsl: &Arc<DslPool>, (), tx: &Tx| {
        let directory = Zap::hold(dsl.mos(), DIRECTORY)?;
        directory.remove(ENTRY, tx)?;
        if let Some(value) = &value {
            directory.add(ENTRY, value, tx)?;
        }
        Ok(())
    };
    pool.dsl().sync_task(|_, _| Ok(()), change).expect("changed");
}

/// Two pools with the same salt would take each other's blocks; one that changes its salt loses all that it has.
#[test]
fn every_pool_has_a_salt_of_its_own_and_keeps_it() {
    let salts = [1, 2].map(|seed| {
        let devices = devices(2);
        let pool = create(&devices, seed);
        let salt = stored(&pool);
        assert!(matches!(&salt, Some(Value::U8(bytes)) if bytes.len() == 32), "{salt:?}");
        pool.export().expect("exported");
        let pool = import(&devices, false).expect("imported");
        pool.sync_forced().expect("synced");
        assert_eq!(stored(&pool), salt);
        pool.export().expect("exported");
        salt
    });
    assert_ne!(salts[0], salts[1]);
}

/// If this fails, pools from before these checksums cannot have them; or one whose blocks nobody can check any more is written to as if all were well.
#[test]
fn a_pool_without_a_salt_gets_one_unless_it_needs_the_one_that_is_gone() {
    let disks = devices(2);
    let pool = create(&disks, 3);
    let plain = write(&pool, "tank/plain", "sha256");
    plant(&pool, None);
    pool.export().expect("exported");
    let pool = import(&disks, true).expect("imported to be read");
    assert!(reads(&pool, "tank/plain", plain) && stored(&pool).is_none(), "nothing is written");
    drop(pool);
    let pool = import(&disks, false).expect("imported");
    let salt = stored(&pool);
    assert!(matches!(&salt, Some(Value::U8(bytes)) if bytes.len() == 32), "{salt:?}");
    let keyed = write(&pool, "tank/keyed", "blake3");
    pool.export().expect("exported");
    let pool = import(&disks, false).expect("imported");
    assert!(reads(&pool, "tank/plain", plain) && reads(&pool, "tank/keyed", keyed));
    assert_eq!(stored(&pool), salt, "the one that blocks were written with");
    plant(&pool, None);
    pool.export().expect("exported");
    assert_eq!(import(&disks, false).err(), Some(PoolError::Salt { is_missing: true }));
    let pool = import(&disks, true).expect("imported to be read");
    assert_eq!([("tank/plain", plain), ("tank/keyed", keyed)].map(|(name, object)| reads(&pool, name, object)), [true, false]);
}

/// If this fails, whoever can write to a device brings the daemon down with it, or costs its owner what could still be read.
#[test]
fn what_is_no_salt_is_not_taken_for_one() {
    let lies = [Value::U8(vec![7; 31]), Value::U8(vec![7; 33]), Value::U8(vec![0]), Value::U64(vec![7; 4]), Value::U32(vec![7; 32])];
    for lie in lies {
        let disks = devices(2);
        let pool = create(&disks, 4);
        let (plain, keyed) = (write(&pool, "tank/plain", "on"), write(&pool, "tank/keyed", "skein"));
        plant(&pool, Some(lie.clone()));
        pool.export().expect("exported");
        let refused = import(&disks, false).err();
        assert_eq!(refused, Some(PoolError::Salt { is_missing: false }), "{lie:?}");
        assert!(refused.is_some_and(|error| error.to_string().contains("can be imported read-only")));
        let pool = import(&disks, true).expect("imported to be read");
        let found = [("tank/plain", plain), ("tank/keyed", keyed)].map(|(name, object)| reads(&pool, name, object));
        assert_eq!(found, [true, false], "{lie:?}");
        let found = pool::find_pools(pool.exec(), opened(&disks)).remove(0);
        let examined = found.examine(pool.exec(), &Runtime::new());
        assert_eq!(examined.problem, Some(PoolError::Salt { is_missing: false }), "a search says so too");
    }
}

/// If this fails, a salt that is right for its pool is put beside blocks of another one, and they pass.
#[test]
fn another_pools_salt_checks_nothing() {
    let disks = devices(2);
    let pool = create(&disks, 5);
    let keyed = write(&pool, "tank/keyed", "edonr");
    plant(&pool, Some(Value::U8(vec![9; 32])));
    pool.export().expect("exported");
    let pool = import(&disks, true).expect("imported to be read");
    assert!(!reads(&pool, "tank/keyed", keyed));
}
