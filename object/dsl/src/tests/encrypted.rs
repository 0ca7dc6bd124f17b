//! Encrypted datasets: what is known of them without their keys, what they can be part of, that they leave nothing behind, and who opens them.

use super::receive::beginning;
use super::{TestPool, filesystem, with_props, write};
use crate::{DslError, PoolServices, PropValue, ReceiveBegin, features, keys};
use crypt::{DataKey, KEY_VERSION, Secret, Suite, WrappedKey, WrappingKey};
use dmu::DmuError;
use dmu::testing::MemBlockIo;
use ondisk::{ObjectId, ObjectType, ObjsetType, Txg, ZilHeader};
use std::sync::Weak;
use zap::Value;
use zil::{Filled, LogSource, Payload};

/// Values of the property `keyformat`.
const RAW: u64 = 1;
const PASSPHRASE: u64 = 3;

/// The user's key of every dataset here.
const KEY: [u8; 32] = [9; 32];

/// Entries of a key object with keys that [`KEY`] opens.
fn wrapped() -> Vec<(&'static str, Value)> {
    let keys = Secret::new(DataKey::bytes_of(Suite::Aes256Gcm), |bytes| bytes.fill(3));
    let key = DataKey::new(Suite::Aes256Gcm, 99, KEY_VERSION, keys).expect("as many bytes as it takes");
    let wrapped = WrappedKey::seal(&key, &WrappingKey::raw(&KEY).expect("32 bytes"), [5; 12]).expect("it wraps");
    vec![
        ("DSL_CRYPTO_GUID", Value::U64(vec![wrapped.guid])),
        ("DSL_CRYPTO_VERSION", Value::U64(vec![wrapped.version])),
        ("DSL_CRYPTO_IV", Value::U8(wrapped.iv.to_vec())),
        ("DSL_CRYPTO_MAC", Value::U8(wrapped.mac.to_vec())),
        ("DSL_CRYPTO_MASTER_KEY_1", Value::U8(wrapped.master.to_vec())),
        ("DSL_CRYPTO_HMAC_KEY_1", Value::U8(wrapped.hmac.to_vec())),
    ]
}

/// Gives a file system a key object as OpenZFS makes it; its encryption root is `root`, or itself.
fn encrypt(pool: &TestPool, name: &str, root: Option<&str>, format: u64) -> u64 {
    let (name, root) = (name.to_string(), root.map(String::from));
    let marked = pool.dsl.sync_task(
        move |pool, _| Ok((pool.tree.find(&name)?, root.map(|root| pool.tree.find_dir(&root)).transpose()?)),
        move |pool, (head, root), tx| {
            let meta = &pool.tree.meta;
            let object = meta.create_zap(ObjectType::OTN_ZAP_METADATA, tx)?;
            let root = root.map_or(head.dir.object, |dir| dir.object);
            let entries = [("DSL_CRYPTO_SUITE", 8), ("DSL_CRYPTO_ROOT_DDOBJ", root), ("DSL_CRYPTO_REFCOUNT", 1)];
            for (key, value) in entries.into_iter().chain([("keyformat", format), ("pbkdf2iters", 350_000)]) {
                meta.zap(object)?.add_u64(key, value, tx)?;
            }
            for (key, value) in wrapped() {
                meta.zap(object)?.add(key, &value, tx)?;
            }
            meta.zapify(&meta.hold(head.dir.object)?, tx)?;
            meta.zap(head.dir.object)?.add_u64("com.datto:crypto_key_obj", object, tx)?;
            head.activate(meta, features::bit(features::ENCRYPTION), tx)?;
            Ok(object)
        },
    );
    marked.expect("gets its keys")
}

/// An encrypted file system `tank/a` with a child and a snapshot each; gives the key object of the child.
fn encrypted(pool: &TestPool) -> u64 {
    for name in ["tank/a", "tank/a/b", "tank/plain"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    encrypt(pool, "tank/a", None, PASSPHRASE);
    let keys = encrypt(pool, "tank/a/b", Some("tank/a"), PASSPHRASE);
    pool.dsl.snapshot(&["tank/a@s".to_string(), "tank/a/b@s".to_string()], Vec::new()).expect("snapshots");
    keys
}

fn prop(pool: &TestPool, name: &str, property: &str) -> PropValue {
    pool.dsl.hold(name).and_then(|handle| handle.prop(property)).expect("a property").value
}

/// If this fails, nobody finds the key of what is locked; or what is locked is read as if its ciphertext were its contents.
#[test]
fn what_is_locked_says_so_and_is_not_opened() {
    let pool = TestPool::create(71);
    encrypted(&pool);
    let text = |value: &str| PropValue::Text(value.to_string());
    for name in ["tank/a", "tank/a/b", "tank/a@s"] {
        let handle = pool.dsl.hold(name).expect("it is there");
        assert_eq!((handle.objset().map(drop), handle.kind()), (Err(DslError::NoKey), Ok(ObjsetType::ZFS)), "{name}");
        assert_eq!((prop(&pool, name, "encryption"), prop(&pool, name, "keystatus")), (text("aes-256-gcm"), text("unavailable")));
        assert_eq!(prop(&pool, name, "encryptionroot"), text("tank/a"));
        assert!(handle.props().is_ok(), "all properties of {name}");
    }
    assert_eq!(
        (prop(&pool, "tank/a", "keyformat"), prop(&pool, "tank/a", "pbkdf2iters")),
        (text("passphrase"), PropValue::Number(350_000))
    );
    assert_eq!((prop(&pool, "tank/plain", "encryption"), prop(&pool, "tank/plain", "keystatus")), (text("off"), PropValue::None));
    assert!(pool.dsl.hold("tank/plain").and_then(|handle| handle.objset()).is_ok());
}

/// If this fails, a wrong key is taken for the right one, or contents stay open whose key was taken away.
#[test]
fn contents_are_there_as_long_as_the_right_key_is_loaded() {
    let pool = TestPool::create(74);
    create_root(&pool, "tank/raw").expect("an encryption root");
    for name in ["tank/raw/below", "tank/plain"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    pool.dsl.unload_key("tank/raw").expect("nobody uses it");
    let load = |name: &str, key: &[u8], only_check: bool| pool.dsl.load_key(name, key, only_check);
    assert_eq!(load("tank/plain", &KEY, false), Err(DslError::NotEncrypted));
    assert_eq!(load("tank/raw/below", &KEY, false), Err(DslError::NotEncryptionRoot { root: "tank/raw".to_string() }));
    assert_eq!(load("tank/raw", &KEY[1..], false), Err(DslError::BadKey));
    assert_eq!(load("tank/raw", &[8; 32], false), Err(DslError::WrongKey));
    assert_eq!(load("tank/raw", &KEY, true), Ok(()));
    let below = pool.dsl.hold("tank/raw/below").expect("it is there");
    assert_eq!((below.objset().map(drop), below.is_locked()), (Err(DslError::NoKey), Ok(true)), "it was only looked at");
    assert_eq!((load("tank/raw", &KEY, false), load("tank/raw", &KEY, false)), (Ok(()), Err(DslError::KeyLoaded)));
    assert_eq!(prop(&pool, "tank/raw/below", "keystatus"), PropValue::Text("available".to_string()));
    let contents = below.objset().expect("it opens");
    assert!(!contents.is_read_only());
    assert_eq!(pool.dsl.unload_key("tank/raw"), Err(DslError::Busy));
    drop(contents);
    assert_eq!((pool.dsl.unload_key("tank/raw"), pool.dsl.unload_key("tank/raw")), (Ok(()), Err(DslError::KeyUnloaded)));
    assert_eq!(below.objset().map(drop), Err(DslError::NoKey));
}

/// If this fails, somebody who can write to the devices shows a file system of his own as the encrypted one, to whoever loaded its key.
#[test]
fn contents_that_the_key_does_not_authenticate_are_refused() {
    let pool = TestPool::create(84);
    pool.dsl.create_dataset("tank/forged", filesystem()).expect("creates");
    write(&pool, "tank/forged", 0, 0, &[1; 4096]).expect("writes");
    pool.sync();
    encrypt(&pool, "tank/forged", None, RAW);
    pool.dsl.load_key("tank/forged", &KEY, false).expect("the key is the right one");
    let opened = pool.dsl.hold("tank/forged").and_then(|handle| handle.objset());
    assert!(matches!(opened.map(drop), Err(DslError::Dmu(_))), "its root is nobody's");
}

/// If this fails, what users write into an encrypted dataset lies in the pool in the clear, or is lost when its key was unloaded.
#[test]
fn what_is_written_is_there_for_the_key_alone() {
    let pool = TestPool::create(75);
    create_root(&pool, "tank/raw").expect("an encryption root");
    let object = write(&pool, "tank/raw", 0, 0, &[0xA5; 60_000]).expect("writes");
    pool.sync();
    write(&pool, "tank/raw", object, 8192, &[0xB6; 8192]).expect("writes over it");
    pool.dsl.snapshot(&["tank/raw@s".to_string()], Vec::new()).expect("a snapshot");
    pool.dsl.unload_key("tank/raw").expect("what was written is on disk first");
    let is_plain = |offset: &u64| {
        let bytes = pool.io.block(*offset).map_or_else(Vec::new, |block| block.data.to_vec());
        [0xA5, 0xB6].iter().any(|byte| bytes.windows(32).any(|part| part.iter().all(|own| own == byte)))
    };
    assert!(!pool.io.live_blocks().iter().any(is_plain), "a block has what was written");
    let read = |name: &str, at: u64| {
        let objset = pool.dsl.hold(name)?.objset()?;
        let mut bytes = [0; 4096];
        objset.hold(ObjectId(object))?.read(at, &mut bytes)?;
        Ok::<_, DslError>(bytes)
    };
    assert_eq!(read("tank/raw", 0).err(), Some(DslError::NoKey));
    pool.dsl.load_key("tank/raw", &KEY, false).expect("loads again");
    for name in ["tank/raw", "tank/raw@s"] {
        assert_eq!((read(name, 0), read(name, 8192)), (Ok([0xA5; 4096]), Ok([0xB6; 4096])), "{name}");
    }
    pool.drain();
    pool.check();
}

struct NoSource;

impl LogSource for NoSource {
    fn fill(&self, _: &Payload, _: Txg) -> Result<Filled, DmuError> {
        Ok(Filled::Nothing)
    }
}

/// If this fails, an fsync of an encrypted file promises what a power cut takes away; or a key cannot be unloaded because of a log that nobody has, or is
/// while somebody writes with it.
#[test]
fn a_log_has_its_key_as_long_as_somebody_has_the_log() {
    let pool = TestPool::create(76);
    create_root(&pool, "tank/raw").expect("an encryption root");
    for round in 0..2 {
        let handle = pool.dsl.hold("tank/raw").expect("held");
        let log = handle.intent_log(Weak::<NoSource>::new()).expect("a log");
        assert!(log.is_wanted() && log.arena().is_none());
        let before = pool.txgs.open_txg();
        write(&pool, "tank/raw", 0, 0, &[1; 4096]).expect("writes");
        // There is no store of log blocks here.
        log.commit(None).expect("it is durable");
        assert!(pool.txgs.synced_txg() >= before, "round {round}");
        assert_eq!(handle.objset().map(|objset| objset.zil_header()), Ok(ZilHeader::default()));
        assert_eq!(pool.dsl.unload_key("tank/raw"), Err(DslError::Busy));
        log.commit(None).expect("it still is a log");
        drop((log, handle));
        assert_eq!(pool.dsl.unload_key("tank/raw"), Ok(()), "round {round}");
        pool.dsl.load_key("tank/raw", &KEY, false).expect("the key is the right one");
    }
}

/// Makes an encrypted file system with a key of its own.
fn create_root(pool: &TestPool, name: &str) -> Result<(), DslError> {
    pool.dsl.create_dataset_with(name, with_props(&[("encryption", "on"), ("keyformat", "raw")]), Some(&KEY))
}

/// If this fails, a dataset that somebody asked to be encrypted is not, or nobody can open it again.
#[test]
fn new_datasets_are_encrypted_and_what_is_below_them() {
    let pool = TestPool::create(77);
    create_root(&pool, "tank/a").expect("an encryption root");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("below it");
    pool.dsl.create_dataset("tank/a/b/c", with_props(&[("encryption", "aes-128-ccm")])).expect("with another suite");
    let text = |value: &str| PropValue::Text(value.to_string());
    let mut objects = Vec::new();
    for (name, suite) in [("tank/a", "aes-256-gcm"), ("tank/a/b", "aes-256-gcm"), ("tank/a/b/c", "aes-128-ccm")] {
        assert_eq!((prop(&pool, name, "encryption"), prop(&pool, name, "keyformat")), (text(suite), text("raw")), "{name}");
        assert_eq!((prop(&pool, name, "encryptionroot"), prop(&pool, name, "keystatus")), (text("tank/a"), text("available")));
        assert!(pool.dsl.hold(name).expect("held").root_block().uses_crypt(), "{name}");
        objects.push((name, write(&pool, name, 0, 0, &[0xA5; 20_000]).expect("writes")));
    }
    assert_eq!((prop(&pool, "tank/a", "keylocation"), prop(&pool, "tank/a/b", "keylocation")), (text("prompt"), text("none")));
    assert_eq!(pool.services.feature_refs(features::ENCRYPTION), 3);
    let most = |name: &str| pool.dsl.hold(name).and_then(|handle| handle.block_bytes_max());
    assert_eq!((most("tank/a/b"), most("tank/a/b/c")), (Ok(16 << 20), Ok(8 << 20)), "CCM encrypts less than 16 MiB at once");
    let set = |name: &str, location: &str| {
        pool.dsl.hold(name).and_then(|handle| handle.set_props(&[("keylocation".to_string(), location.to_string())]))
    };
    assert_eq!((set("tank/a", "file:///key"), set("tank/a", "none")), (Ok(()), Err(DslError::BadValue)));
    assert_eq!((set("tank/a/b", "prompt"), set("tank", "prompt")), (Err(DslError::BadValue), Err(DslError::BadValue)));
    assert_eq!((set("tank/a/b", "none"), set("tank", "none")), (Err(DslError::BadValue), Ok(())));
    for (location, outcome) in [
        ("https://keys.example/a", Ok(())),
        ("http://keys.example/a", Ok(())),
        ("https://", Err(DslError::BadValue)),
        ("http://", Err(DslError::BadValue)),
        ("file:///", Err(DslError::BadValue)),
        ("https://h/\n", Err(DslError::BadValue)),
        ("ftp://keys.example/a", Err(DslError::BadValue)),
        ("file:///key", Ok(())),
    ] {
        assert_eq!(set("tank/a", location), outcome, "{location}");
    }
    pool.drain();
    pool.check();
    let pool = pool.reopen();
    assert_eq!(pool.dsl.load_key("tank/a", &[8; 32], false), Err(DslError::WrongKey));
    assert_eq!(pool.dsl.load_key("tank/a", &KEY, false), Ok(()));
    for (name, object) in objects {
        let mut bytes = [0; 20_000];
        let objset = pool.dsl.hold(name).and_then(|handle| handle.objset()).expect("it opens");
        objset.hold(ObjectId(object)).and_then(|dnode| dnode.read(0, &mut bytes)).expect("it reads");
        assert_eq!(bytes, [0xA5; 20_000], "{name}");
    }
    for name in ["tank/a/b/c", "tank/a/b", "tank/a"] {
        pool.dsl.destroy_dataset(name).expect("destroys");
    }
    pool.drain();
    assert_eq!(pool.services.feature_refs(features::ENCRYPTION), 0);
    pool.check();
    pool.check_features();
}

/// If this fails, a dataset is made without the encryption, or with another key, than somebody asked for.
#[test]
fn encryption_that_cannot_be_is_refused() {
    let pool = TestPool::create(78);
    let create = |name: &str, words: &[(&str, &str)], secret: Option<&[u8]>| pool.dsl.create_dataset_with(name, with_props(words), secret);
    let (on, raw) = (("encryption", "on"), ("keyformat", "raw"));
    let iterations = |count| [on, ("keyformat", "passphrase"), ("pbkdf2iters", count)];
    assert_eq!(create("tank/a", &[on], None), Err(DslError::BadValue), "whose key?");
    assert_eq!(create("tank/a", &[raw], Some(&KEY)), Err(DslError::BadValue), "for what?");
    assert_eq!(create("tank/a", &[("encryption", "off"), raw], Some(&KEY)), Err(DslError::BadValue));
    assert_eq!(create("tank/a", &[on, raw], None), Err(DslError::BadKey));
    assert_eq!(create("tank/a", &[on, raw], Some(&KEY[1..])), Err(DslError::BadKey));
    assert_eq!(create("tank/a", &iterations("1000"), Some(b"correct horse")), Err(DslError::BadValue));
    assert_eq!(create("tank/a", &iterations("100000"), Some(b"correct horse")), Ok(()));
    assert_eq!((prop(&pool, "tank/a", "pbkdf2iters"), pool.dsl.unload_key("tank/a")), (PropValue::Number(100_000), Ok(())));
    assert_eq!(create("tank/a/b", &[], None), Err(DslError::NoKey));
    assert_eq!(pool.dsl.load_key("tank/a", b"battery staple", false), Err(DslError::WrongKey));
    assert_eq!(pool.dsl.load_key("tank/a", b"correct horse", false), Ok(()));
    assert_eq!(create("tank/a/b", &[raw, ("encryption", "on")], Some(&[7; 32])), Ok(()), "a root below a root");
    assert_eq!(prop(&pool, "tank/a/b", "encryptionroot"), PropValue::Text("tank/a/b".to_string()));
    let without = TestPool::create_without(MemBlockIo::inline(79), &[features::ENCRYPTION]);
    assert_eq!(create_root(&without, "tank/a"), Err(DslError::NeedsFeature(features::ENCRYPTION)));
}

/// If this fails, an administrator is not told that encrypted datasets have to be copied, or of pools that have no such datasets that they have; or new ones
/// are made that way.
#[test]
fn errata_of_old_pools_are_told() {
    let pool = TestPool::create(81);
    let object = encrypted(&pool);
    assert_eq!(pool.dsl.erratum(), 0);
    assert_ne!(prop(&pool, "tank/a@s", "ivsetguid"), PropValue::None);
    let old =
        pool.dsl.sync_task(|_, _| Ok(()), move |pool, (), tx| Ok(pool.tree.meta.zap(object)?.update_u64("DSL_CRYPTO_VERSION", 0, tx)?));
    assert_eq!(old, Ok(()));
    let pool = pool.reopen();
    let has_old_keys = |name: &str| pool.dsl.hold(name).and_then(|handle| handle.has_old_keys());
    assert_eq!(has_old_keys("tank/a@s"), Ok(false));
    assert_eq!((has_old_keys("tank/a/b"), pool.dsl.erratum()), (Ok(true), 3));
    let without = TestPool::create_without(MemBlockIo::inline(82), &[features::BOOKMARK_V2]);
    encrypted(&without);
    assert_eq!((without.dsl.erratum(), prop(&without, "tank/a@s", "ivsetguid")), (4, PropValue::None));
    assert_eq!(create_root(&without, "tank/c"), Err(DslError::NeedsFeature(features::BOOKMARK_V2)));
}

/// If this fails, a key that somebody got hold of still opens what has a new one, or what is below it opens with neither.
#[test]
fn another_key_opens_the_same_contents() {
    let pool = TestPool::create(80);
    create_root(&pool, "tank/a").expect("an encryption root");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("below it");
    create_root(&pool, "tank/a/c").expect("a root below it");
    let object = write(&pool, "tank/a/b", 0, 0, &[0xA5; 4096]).expect("writes");
    let words = |words: &[(&str, &str)]| words.iter().map(|(name, value)| ((*name).to_string(), (*value).to_string())).collect::<Vec<_>>();
    let root_of = |name: &str| prop(&pool, name, "encryptionroot");
    let text = |value: &str| PropValue::Text(value.to_string());
    let passphrase = words(&[("keyformat", "passphrase"), ("pbkdf2iters", "100000"), ("keylocation", "file:///key")]);
    assert_eq!(pool.dsl.change_key("tank/a", passphrase, b"correct horse"), Ok(()));
    assert_eq!((prop(&pool, "tank/a", "keyformat"), prop(&pool, "tank/a", "keylocation")), (text("passphrase"), text("file:///key")));
    assert_eq!((prop(&pool, "tank/a/b", "keyformat"), prop(&pool, "tank/a/c", "keyformat")), (text("passphrase"), text("raw")));
    assert_eq!(pool.dsl.unload_key("tank/a"), Ok(()));
    assert_eq!(pool.dsl.change_key("tank/a", Vec::new(), b"battery staple"), Err(DslError::NoKey));
    assert_eq!(pool.dsl.load_key("tank/a", &KEY, false), Err(DslError::WrongKey), "the old key");
    assert_eq!(pool.dsl.load_key("tank/a", b"correct horse", false), Ok(()));
    assert_eq!(pool.dsl.change_key("tank/a/b", Vec::new(), &[7; 32]), Err(DslError::BadValue), "which form?");
    assert_eq!(pool.dsl.change_key("tank/a/b", words(&[("keyformat", "raw")]), &[7; 32]), Ok(()));
    assert_eq!((root_of("tank/a/b"), prop(&pool, "tank/a/b", "keylocation")), (text("tank/a/b"), text("prompt")));
    assert_eq!(pool.dsl.inherit_key("tank/a"), Err(DslError::OtherRoot));
    for name in ["tank/a/b", "tank/a/c"] {
        assert_eq!((pool.dsl.inherit_key(name), root_of(name)), (Ok(()), text("tank/a")), "{name}");
    }
    assert_eq!(pool.dsl.inherit_key("tank/a/c"), Err(DslError::NotEncryptionRoot { root: "tank/a".to_string() }));
    assert_eq!(prop(&pool, "tank/a/b", "keylocation"), text("none"));
    let pool = pool.reopen();
    assert_eq!(pool.dsl.load_key("tank/a", b"correct horse", false), Ok(()));
    let mut bytes = [0; 4096];
    for name in ["tank/a", "tank/a/b", "tank/a/c"] {
        let objset = pool.dsl.hold(name).and_then(|handle| handle.objset()).expect("the one key opens it");
        if name == "tank/a/b" {
            objset.hold(ObjectId(object)).and_then(|dnode| dnode.read(0, &mut bytes)).expect("it reads");
        }
    }
    assert_eq!(bytes, [0xA5; 4096]);
    pool.drain();
    pool.check();
}

fn first_byte(pool: &TestPool, name: &str, object: u64) -> Result<u8, DslError> {
    let mut byte = [0];
    pool.dsl.hold(name)?.objset()?.hold(ObjectId(object))?.read(0, &mut byte)?;
    Ok(byte[0])
}

/// If this fails, a key that was loaded while another one took its place wraps the keys of new datasets, which nobody opens after the next import.
#[test]
fn a_key_that_was_changed_meanwhile_is_not_loaded() {
    let pool = TestPool::create(85);
    create_root(&pool, "tank/a").expect("an encryption root");
    let key = || WrappingKey::raw(&KEY).expect("32 bytes");
    let load = |name: &str| pool.dsl.tree.load(name, key());
    assert_eq!((load("tank/a"), pool.dsl.unload_key("tank/a"), load("tank/a")), (Err(DslError::KeyLoaded), Ok(()), Ok(())));
    assert_eq!((pool.dsl.change_key("tank/a", Vec::new(), &[7; 32]), load("tank/a")), (Ok(()), Err(DslError::KeyLoaded)));
    assert_eq!((pool.dsl.unload_key("tank/a"), load("tank/a")), (Ok(()), Err(DslError::WrongKey)));
    pool.dsl.destroy_dataset("tank/a").expect("destroys");
    assert_eq!(load("tank/a"), Err(DslError::NotFound));
}

/// If this fails, a clone of an encrypted snapshot cannot be opened, is written with other keys than its origin, or takes the keys along when it goes; or
/// a rollback shows what was written since.
#[test]
fn clones_share_their_origins_keys_and_rollbacks_go_back() {
    let pool = TestPool::create(81);
    create_root(&pool, "tank/a").expect("an encryption root");
    let object = write(&pool, "tank/a", 0, 0, &[1; 20_000]).expect("writes");
    pool.dsl.snapshot(&["tank/a@s".to_string()], Vec::new()).expect("a snapshot");
    write(&pool, "tank/a", object, 0, &[2; 20_000]).expect("writes");
    pool.dsl.clone_snapshot("tank/clone", "tank/a@s", Vec::new()).expect("a clone");
    assert_eq!(prop(&pool, "tank/clone", "encryptionroot"), PropValue::Text("tank/a".to_string()));
    write(&pool, "tank/clone", object, 8192, &[3; 8192]).expect("writes");
    let both = |pool: &TestPool| (first_byte(pool, "tank/a", object), first_byte(pool, "tank/clone", object));
    assert_eq!(both(&pool), (Ok(2), Ok(1)));
    let of_own = vec![("encryption".to_string(), "on".to_string())];
    assert_eq!(pool.dsl.clone_snapshot("tank/no", "tank/a@s", of_own), Err(DslError::BadValue));
    assert_eq!(pool.dsl.change_key("tank/clone", Vec::new(), &KEY), Err(DslError::NotEncryptionRoot { root: "tank/a".to_string() }));
    assert_eq!(pool.dsl.change_key("tank/a", Vec::new(), &[7; 32]), Ok(()));
    assert_eq!((pool.dsl.unload_key("tank/a"), both(&pool)), (Ok(()), (Err(DslError::NoKey), Err(DslError::NoKey))));
    pool.dsl.load_key("tank/a", &[7; 32], false).expect("the new key");
    assert_eq!(both(&pool), (Ok(2), Ok(1)));
    assert_eq!((pool.dsl.rollback("tank/a@s"), first_byte(&pool, "tank/a", object)), (Ok(()), Ok(1)));
    write(&pool, "tank/a", object, 0, &[4; 4096]).expect("writes on");
    pool.dsl.destroy_dataset("tank/clone").expect("destroys the clone");
    assert_eq!(first_byte(&pool, "tank/a", object), Ok(4), "its keys are still there");
    pool.drain();
    pool.check();
    pool.check_features();
}

/// If this fails, what was promoted has lost the way to its key, or what was below its origin has.
#[test]
fn a_promoted_clone_is_the_encryption_root() {
    let pool = TestPool::create(82);
    create_root(&pool, "tank/a").expect("an encryption root");
    pool.dsl.create_dataset("tank/a/b", filesystem()).expect("below it");
    let object = write(&pool, "tank/a", 0, 0, &[1; 4096]).expect("writes");
    let below = write(&pool, "tank/a/b", 0, 0, &[2; 4096]).expect("writes");
    pool.dsl.snapshot(&["tank/a@s".to_string(), "tank/a/b@s".to_string()], Vec::new()).expect("snapshots");
    pool.dsl.clone_snapshot("tank/clone", "tank/a@s", Vec::new()).expect("a clone");
    pool.dsl.clone_snapshot("tank/below", "tank/a/b@s", Vec::new()).expect("a clone");
    assert_eq!(pool.dsl.promote("tank/below"), Err(DslError::OtherRoot), "it would be outside");
    assert_eq!(pool.dsl.promote("tank/clone"), Ok(()));
    let text = |value: &str| PropValue::Text(value.to_string());
    for name in ["tank/clone", "tank/a", "tank/a/b", "tank/below"] {
        let facts = (prop(&pool, name, "encryptionroot"), prop(&pool, name, "keystatus"));
        assert_eq!(facts, (text("tank/clone"), text("available")), "{name}");
    }
    assert_eq!((prop(&pool, "tank/clone", "keylocation"), prop(&pool, "tank/a", "keylocation")), (text("prompt"), text("none")));
    pool.drain();
    pool.check();
    let pool = pool.reopen();
    assert_eq!(pool.dsl.load_key("tank/a", &KEY, false), Err(DslError::NotEncryptionRoot { root: "tank/clone".to_string() }));
    pool.dsl.load_key("tank/clone", &KEY, false).expect("loads");
    let read = |name: &str, object| first_byte(&pool, name, object);
    assert_eq!((read("tank/clone", object), read("tank/a", object)), (Ok(1), Ok(1)));
    assert_eq!((read("tank/a/b", below), read("tank/below", below)), (Ok(2), Ok(2)));
}

/// If this fails, plain files come to lie where their owner believes everything to be encrypted, or a dataset loses the way to its key.
#[test]
fn what_would_need_a_key_is_refused() {
    let pool = TestPool::create(72);
    encrypted(&pool);
    assert_eq!(pool.dsl.create_dataset("tank/a/new", filesystem()), Err(DslError::NoKey));
    assert_eq!(pool.dsl.create_dataset("tank/a/open", with_props(&[("encryption", "off")])), Ok(()));
    let received = |begin: ReceiveBegin| pool.dsl.receive_begin(begin).map(drop);
    assert_eq!(received(beginning("tank/a", 0, true)), Err(DslError::Encrypted));
    assert_eq!(received(beginning("tank/a/new", 0, false)), Err(DslError::NoKey));
    assert_eq!(pool.dsl.rename("tank/a/b", "tank/b"), Err(DslError::OtherRoot));
    assert_eq!(pool.dsl.rename("tank/a/b", "tank/a/c"), Ok(()));
    assert_eq!(pool.dsl.rename("tank/a", "tank/plain/a"), Ok(()), "an encryption root takes its key along");
    assert_eq!(prop(&pool, "tank/plain/a/c", "encryptionroot"), PropValue::Text("tank/plain/a".to_string()));
}

/// If this fails, a pool from which every encrypted dataset was destroyed still asks for software that knows encryption; or keys that a clone needs go
/// with the dataset that it was made from.
#[test]
fn keys_and_counts_go_with_the_last_dataset_that_has_them() {
    let pool = TestPool::create(73);
    let object = encrypted(&pool);
    let counted = |guid: &str| pool.services.feature_refs(guid);
    assert_eq!(counted(features::ENCRYPTION), 4, "two file systems with a snapshot each");
    let meta = &pool.dsl.tree.meta;
    let snapshot = pool.dsl.tree.find("tank/a/b@s").expect("it is there");
    assert_ne!(keys::ivs_of(meta, &snapshot), Ok(0), "raw streams know the snapshot by it");
    assert_eq!(pool.dsl.create_bookmark("tank/a/b#m", "tank/a/b@s"), Ok(()));
    assert_eq!(counted(features::BOOKMARK_V2), 1);
    // A clone that OpenZFS made has the same keys.
    let shared =
        pool.dsl.sync_task(|_, _| Ok(()), move |pool, (), tx| Ok(pool.tree.meta.zap(object)?.update_u64("DSL_CRYPTO_REFCOUNT", 2, tx)?));
    assert_eq!(shared, Ok(()));
    drop(snapshot);
    for name in ["tank/a/b", "tank/a"] {
        pool.dsl.destroy_snapshots(&[format!("{name}@s")], false).expect("destroys the snapshot");
        pool.dsl.destroy_dataset(name).expect("destroys the file system");
    }
    pool.drain();
    assert_eq!((counted(features::ENCRYPTION), counted(features::BOOKMARK_V2)), (0, 0));
    assert_eq!(meta.zap(object).and_then(|keys| Ok(keys.lookup_u64("DSL_CRYPTO_REFCOUNT")?)), Ok(1), "the clone's");
    pool.check();
    pool.check_features();
}
