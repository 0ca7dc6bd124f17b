//! Permissions that were delegated: who has which, by a table of OpenZFS's rules, and what is stored for them.

use super::references::change;
use super::{TestPool, filesystem};
use crate::{Delegation, DslError, Subject, is_delegation, is_permission};
use ondisk::{ObjectId, ObjectType};

/// Delegation of permissions, which are separated by commas.
fn delegation(who: &str, permissions: &str) -> Delegation {
    Delegation { who: who.to_string(), permissions: permissions.split(',').filter(|word| !word.is_empty()).map(String::from).collect() }
}

/// Pool with the file systems `tank/a/b` and `tank/c`, and a snapshot of `tank/a`.
fn pool() -> TestPool {
    let pool = TestPool::create(71);
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        pool.dsl.create_dataset(name, filesystem()).expect("creates");
    }
    pool.dsl.snapshot(&["tank/a@s".to_string()], Vec::new()).expect("snapshots");
    pool
}

/// User 7 of groups 70 and 71.
fn ann() -> Subject {
    Subject { uid: 7, groups: vec![70, 71] }
}

/// Row of the rules: what is given where, where it is looked for, and whether user 7 of groups 70 and 71 has the permission `snapshot` there.
type Rule = (&'static [(&'static str, &'static str, &'static str)], &'static str, bool);

/// Rules of OpenZFS's `dsl_deleg_access_impl`, one a row.
const RULES: &[Rule] = &[
    // Nobody has anything that nobody gave.
    (&[], "tank/a", false),
    (&[("tank/a", "ul$7", "clone")], "tank/a", false),
    (&[("tank/a", "ul$8", "snapshot")], "tank/a", false),
    (&[("tank/a", "ul$70", "snapshot")], "tank/a", false),
    // At the place itself, and below it.
    (&[("tank/a", "ul$7", "snapshot")], "tank/a", true),
    (&[("tank/a", "ul$7", "snapshot")], "tank/a/b", false),
    (&[("tank/a", "ul$7", "snapshot")], "tank", false),
    (&[("tank/a", "ul$7", "snapshot")], "tank/c", false),
    (&[("tank/a", "ud$7", "snapshot")], "tank/a", false),
    (&[("tank/a", "ud$7", "snapshot")], "tank/a/b", true),
    (&[("tank", "ud$7", "snapshot")], "tank/a/b", true),
    (&[("tank", "ul$7", "snapshot")], "tank/a/b", false),
    // Snapshots lie below their file system.
    (&[("tank/a", "ul$7", "snapshot")], "tank/a@s", false),
    (&[("tank/a", "ud$7", "snapshot")], "tank/a@s", true),
    (&[("tank", "ud$7", "snapshot")], "tank/a@s", true),
    (&[("tank", "ul$7", "snapshot")], "tank/a@s", false),
    // Every group of the user, and everyone.
    (&[("tank/a", "gl$70", "snapshot")], "tank/a", true),
    (&[("tank/a", "gl$71", "snapshot")], "tank/a", true),
    (&[("tank/a", "gl$7", "snapshot")], "tank/a", false),
    (&[("tank", "gd$71", "snapshot")], "tank/a", true),
    (&[("tank/a", "el$", "snapshot")], "tank/a", true),
    (&[("tank/a", "ed$", "snapshot")], "tank/a", false),
    (&[("tank/a", "ed$", "snapshot")], "tank/a/b", true),
    // What creators get is nobody's until somebody creates.
    (&[("tank", "c-$", "snapshot")], "tank/a", false),
    // Sets, defined at the place or above it.
    (&[("tank/a", "Ul$7", "@x"), ("tank/a", "s-$@x", "snapshot")], "tank/a", true),
    (&[("tank/a", "Ul$7", "@x"), ("tank", "s-$@x", "snapshot")], "tank/a", true),
    (&[("tank/a", "Ul$7", "@x"), ("tank/c", "s-$@x", "snapshot")], "tank/a", false),
    (&[("tank/a", "Ul$7", "@x")], "tank/a", false),
    (&[("tank/a", "s-$@x", "snapshot")], "tank/a", false),
    (&[("tank/a", "Ul$7", "@y"), ("tank/a", "s-$@x", "snapshot")], "tank/a", false),
    (&[("tank/a", "Gl$70", "@x"), ("tank/a", "s-$@x", "snapshot")], "tank/a", true),
    (&[("tank", "Ed$", "@x"), ("tank", "s-$@x", "snapshot")], "tank/a/b", true),
    // A set that is given above does not mean what is called so below.
    (&[("tank", "Ud$7", "@x"), ("tank/a", "s-$@x", "snapshot")], "tank/a", false),
    // The nearest definition counts.
    (&[("tank/a", "Ul$7", "@x"), ("tank/a", "s-$@x", "clone"), ("tank", "s-$@x", "snapshot")], "tank/a", false),
    (&[("tank/a", "Ul$7", "@x"), ("tank/a", "s-$@x", "snapshot"), ("tank", "s-$@x", "clone")], "tank/a", true),
    // Sets of sets, also in a circle.
    (&[("tank/a", "Ul$7", "@x"), ("tank/a", "S-$@x", "@y"), ("tank/a", "s-$@y", "snapshot")], "tank/a", true),
    (&[("tank/a", "Ul$7", "@x"), ("tank/a", "S-$@x", "@y"), ("tank", "s-$@y", "snapshot")], "tank/a", true),
    (&[("tank/a", "Ul$7", "@x"), ("tank/a", "S-$@x", "@y"), ("tank/a", "S-$@y", "@x")], "tank/a", false),
    (&[("tank", "Ul$7", "@a"), ("tank", "S-$@a", "@z"), ("tank", "S-$@z", "@b"), ("tank", "s-$@b", "snapshot")], "tank", true),
];

/// If this fails, a user may do what nobody allowed, or is refused what somebody did.
#[test]
fn a_user_has_what_the_rules_give_and_nothing_else() {
    let pool = pool();
    for (given, place, expected) in RULES {
        for (name, who, permissions) in *given {
            assert_eq!(pool.dsl.delegate(name, vec![delegation(who, permissions)]), Ok(()), "{given:?}");
        }
        assert_eq!(pool.dsl.is_delegated(place, "snapshot", &ann()), Ok(*expected), "{given:?} at {place}");
        // A user without groups has no group's.
        let alone = Subject { uid: 7, groups: Vec::new() };
        let is_group = given.iter().any(|(_, who, _)| who.starts_with(['g', 'G']));
        assert_eq!(pool.dsl.is_delegated(place, "snapshot", &alone), Ok(*expected && !is_group), "{given:?} at {place}");
        for (name, who, _) in *given {
            assert_eq!(pool.dsl.undelegate(name, vec![delegation(who, "")]), Ok(()));
        }
        assert_eq!(pool.dsl.delegations("tank/a/b"), Ok(Vec::new()), "{given:?} is taken back");
    }
    assert_eq!(pool.dsl.is_delegated("tank/no", "snapshot", &ann()), Err(DslError::NotFound));
    assert_eq!(pool.dsl.is_delegated("tank/a@no", "snapshot", &ann()), Err(DslError::NotFound));
    pool.check();
}

/// If this fails, whoever makes a file system cannot do with it what was promised, or somebody else can.
#[test]
fn creators_get_what_was_promised_on_what_they_make() {
    let pool = pool();
    let promised = [("tank", "c-$", "destroy,mount"), ("tank/a", "C-$", "@x"), ("tank", "s-$@x", "snapshot"), ("tank", "ud$7", "clone")];
    for (name, who, permissions) in promised {
        pool.dsl.delegate(name, vec![delegation(who, permissions)]).expect("given");
    }
    for (permission, expected) in [("destroy", true), ("mount", true), ("snapshot", true), ("clone", true), ("rename", false)] {
        assert_eq!(pool.dsl.is_delegated_in("tank/a", permission, &ann()), Ok(expected), "{permission} before");
    }
    assert_eq!(pool.dsl.is_delegated_in("tank/c", "snapshot", &ann()), Ok(false), "sets of another branch");
    pool.dsl.create_dataset("tank/a/new", filesystem()).expect("creates");
    assert_eq!(pool.dsl.is_delegated("tank/a/new", "destroy", &ann()), Ok(false), "nobody was named yet");
    assert_eq!(pool.dsl.delegate_to_creator("tank/a/new", 7), Ok(()));
    let own = [delegation("Ul$7", "@x"), delegation("ul$7", "destroy,mount")];
    assert_eq!(pool.dsl.delegations("tank/a/new").expect("listed")[0], ("tank/a/new".to_string(), own.to_vec()));
    for (permission, expected) in [("destroy", true), ("mount", true), ("snapshot", true), ("clone", true), ("rename", false)] {
        assert_eq!(pool.dsl.is_delegated("tank/a/new", permission, &ann()), Ok(expected), "{permission}");
        let other = Subject { uid: 8, groups: vec![70] };
        assert_eq!(pool.dsl.is_delegated("tank/a/new", permission, &other), Ok(false), "{permission} of somebody else");
    }
    pool.check();
}

/// If this fails, OpenZFS finds other permissions than were given, or the objects that held them stay in the pool for ever.
#[test]
fn permissions_are_stored_as_openzfs_stores_them_and_leave_nothing() {
    let mut pool = pool();
    let seen = pool.services.events.lock().len();
    pool.dsl.delegate("tank/a", vec![delegation("ul$7", "mount,create"), delegation("gd$70", "send")]).expect("given");
    pool = pool.reopen();
    let all = vec![("tank/a".to_string(), vec![delegation("gd$70", "send"), delegation("ul$7", "create,mount")])];
    assert_eq!(pool.dsl.delegations("tank/a/b"), Ok(all));
    pool.dsl.undelegate("tank/a", vec![delegation("ul$7", "create,rename"), delegation("ul$8", "mount")]).expect("taken");
    pool.dsl.undelegate("tank/a", vec![delegation("ul$7", "mount")]).expect("taken");
    assert_eq!(pool.dsl.delegations("tank/a"), Ok(vec![("tank/a".to_string(), vec![delegation("gd$70", "send")])]));
    let told: Vec<String> = pool.services.events.lock().iter().skip(seen).map(|event| format!("{} {}", event.name, event.text)).collect();
    let expected = [
        "permission update ul$7 mount",
        "permission update ul$7 create",
        "permission update gd$70 send",
        "permission remove ul$7 create",
        "permission remove ul$7 rename",
        "permission remove ul$7 mount",
    ];
    assert_eq!(told, expected);
    // The tables go with the dataset.
    pool.dsl.delegate("tank/c", vec![delegation("el$", "send")]).expect("given");
    let table = pool.dsl.tree.find_dir("tank/c").expect("there").phys().dd_deleg_zapobj;
    let set = pool.dsl.tree.meta.zap(table).expect("a table").lookup_u64("el$").expect("an entry");
    pool.dsl.destroy_dataset("tank/c").expect("destroyed");
    pool.sync();
    for object in [table, set] {
        assert!(pool.dsl.mos().hold(ObjectId(object)).is_err(), "object {object} is still there");
    }
    pool.check();
}

/// If this fails, a command line, or a program that talks to the daemon, writes entries that OpenZFS panics on.
#[test]
fn what_is_no_permission_is_not_stored() {
    for (who, permissions, is_one) in [
        ("ul$7", "create", true),
        ("ul$7", "compression,userprop,receive:append", true),
        ("Ul$7", "@set", true),
        ("s-$@set", "mount", true),
        ("c-$", "mount", true),
        ("ul$7", "", true),
        ("ul$7", "@set", false),
        ("Ul$7", "create", false),
        ("ul$7", "created", false),
        ("ul$7", "used", false),
        ("ul$7", "mlslabel", false),
        ("ul$x", "create", false),
        ("ul$-7", "create", false),
        ("ul$07", "create", false),
        ("ul$", "create", false),
        ("el$7", "create", false),
        ("c-$7", "create", false),
        ("cl$", "create", false),
        ("u-$7", "create", false),
        ("s-$set", "create", false),
        ("s-$@", "create", false),
        ("s-$@a/b", "create", false),
        ("xl$7", "create", false),
        ("ul7", "create", false),
        ("", "create", false),
    ] {
        assert_eq!(is_delegation(&delegation(who, permissions)), is_one, "{who} {permissions}");
    }
    let long = |length: usize| delegation(&format!("s-$@{}", "x".repeat(length)), "create");
    assert!(is_delegation(&long(62)) && !is_delegation(&long(63)));
    assert!(!is_permission("type") && !is_permission("com.example:x") && is_permission("mountpoint"));
    let pool = pool();
    assert_eq!(pool.dsl.delegate("tank/a", vec![delegation("ul$7", "created")]), Err(DslError::BadValue));
    assert_eq!(pool.dsl.delegate("tank/a", vec![delegation("ul$7", "")]), Err(DslError::BadValue));
    assert_eq!(pool.dsl.delegate("tank/no", vec![delegation("ul$7", "create")]), Err(DslError::NotFound));
}

/// If this fails, users go on doing what an administrator has just switched off for all of them.
#[test]
fn a_pool_delegates_unless_it_is_told_not_to() {
    let pool = pool();
    assert_eq!(pool.dsl.delegates(), Ok(true));
    change(&pool, |dsl, tx| {
        let table = dsl.tree.meta.create_zap(ObjectType::POOL_PROPS, tx)?;
        dsl.tree.meta.directory()?.add_u64("pool_props", table, tx)?;
        Ok(())
    });
    assert_eq!(pool.dsl.delegates(), Ok(true), "nothing is said of it");
    for number in [0, 1] {
        change(&pool, move |dsl, tx| {
            let table = dsl.tree.meta.directory()?.lookup_u64("pool_props")?;
            Ok(dsl.tree.meta.zap(table)?.update_u64("delegation", number, tx)?)
        });
        assert_eq!(pool.dsl.delegates(), Ok(number == 1));
    }
}

/// If this fails, a damaged or hostile pool lets users do what nobody allowed, or stops the daemon.
#[test]
fn tables_that_cannot_be_read_allow_nothing() {
    let pool = pool();
    pool.dsl.delegate("tank/a", vec![delegation("el$", "send")]).expect("given");
    let table = pool.dsl.tree.find_dir("tank/a").expect("there").phys().dd_deleg_zapobj;
    change(&pool, move |dsl, tx| Ok(dsl.tree.meta.zap(table)?.update_u64("el$", u64::from(u32::MAX), tx)?));
    assert!(pool.dsl.is_delegated("tank/a", "send", &ann()).is_err());
    assert!(pool.dsl.is_delegated("tank/a", "snapshot", &ann()).is_err());
}
