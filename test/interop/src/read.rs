//! `read`: pools made by the real engine, listed, survived with damage, written to and handed back; and pools refused.

use crate::damage::{Damage, bring_back, copy_pool, damage};
use crate::driver::{self, ImportError};
use crate::manifest::{self, Lines};
use crate::oracle::Oracle;
use crate::report::{Job, Table};
use crate::{Failure, Wanted, kernel, locked, logs, received, touch};
use exec::Exec;
use std::path::{Path, PathBuf};

/// Fixture that we read and write.
struct Fixture {
    name: &'static str,
    /// Number of devices of one top-level vdev that may be lost at once.
    parity: usize,
    /// True when it is part of the quick subset.
    quick: bool,
}

const fn fixture(name: &'static str, parity: usize, quick: bool) -> Fixture {
    Fixture { name, parity, quick }
}

const FIXTURES: [Fixture; 37] = [
    fixture("stripe1", 0, true),
    fixture("stripe3", 0, false),
    fixture("mirror2", 1, true),
    fixture("mirror3", 2, false),
    fixture("raidz1", 1, true),
    fixture("raidz1a9", 1, false),
    fixture("raidz1x2", 1, false),
    fixture("raidz2", 2, true),
    fixture("raidz2w", 2, false),
    fixture("raidz3", 3, false),
    fixture("expand", 1, true),
    fixture("draid1", 1, true),
    fixture("draid2", 2, false),
    fixture("draid2s0", 2, false),
    fixture("draid3", 3, false),
    fixture("draidspare", 2, true),
    fixture("ashift9", 0, false),
    fixture("ashift13", 0, false),
    fixture("ashift14", 1, false),
    fixture("ashift16", 0, false),
    fixture("recsizes", 0, false),
    fixture("copies", 0, false),
    fixture("dnodes", 0, false),
    fixture("bigdir", 0, false),
    fixture("bigfile", 0, false),
    fixture("gang", 0, true),
    fixture("comps", 0, false),
    fixture("cksums", 0, true),
    fixture("v28", 1, true),
    fixture("v5000", 1, false),
    fixture("degraded", 1, false),
    fixture("unlinked", 0, true),
    fixture("brt", 0, true),
    fixture("deduplegacy", 0, true),
    fixture("snapclone", 1, false),
    fixture("removal", 0, true),
    // Nobody repairs what only the checkpoint has, nor says that a device that missed some of it is whole: none is damaged.
    fixture("checkpoint", 0, true),
];

/// Names of fixtures of the quick subset that are also healed, and written to while devices are away.
const HEALED_QUICKLY: [&str; 1] = ["raidz2"];

/// Fixture that this release can't write, or can't open.
struct Refusal {
    name: &'static str,
    /// Text of the message.
    says: &'static str,
    /// True when it can be imported read-only.
    readable: bool,
    quick: bool,
}

const fn refusal(name: &'static str, quick: bool, readable: bool, says: &'static str) -> Refusal {
    Refusal { name, says, readable, quick }
}

const REFUSALS: [Refusal; 2] = [
    refusal(
        "dedupfast",
        false,
        true,
        "the pool uses features that are not supported: com.klarasystems:fast_dedup; it can be imported read-only",
    ),
    refusal(
        "classes",
        false,
        true,
        "the pool uses features that are not supported: com.klarasystems:fast_dedup; it can be imported read-only",
    ),
];

/// Fixtures whose maker "crashed" with a live intent log, and whether the quick subset has them.
const LOGS: [(&str, bool); 2] = [("zil", true), ("zilslog", false)];

/// Bench of a run: its engine, oracle, and the folders where it keeps its pools.
struct Bench<'a> {
    exec: Exec,
    oracle: &'a Oracle,
    made: PathBuf,
    work: PathBuf,
}

/// Runs the direction.
pub fn run(oracle: &Oracle, root: &Path, wanted: &Wanted, table: &Table) {
    let Ok(base) = crate::scratch() else {
        table.check("scratch folder", || crate::scratch().map(|_| ()));
        return;
    };
    let exec = driver::executor();
    let bench = |name: &str| Bench { exec: exec.clone(), oracle, made: base.join(name).join("made"), work: base.join(name).join("work") };
    let mut jobs: Vec<Job> = Vec::new();
    if oracle.has_zpfix() {
        for fixture in FIXTURES.iter().filter(|fixture| wanted.includes(fixture.name, fixture.quick)) {
            let bench = bench(fixture.name);
            jobs.push(Box::new(move |table| bench.fixture(fixture, wanted, table)));
        }
        for (name, _) in LOGS.into_iter().filter(|(name, quick)| wanted.includes(name, *quick)) {
            let bench = bench(name);
            jobs.push(Box::new(move |table| {
                table.check(&format!("read {name}, its log replayed"), || {
                    let text = bench.make_text(name)?;
                    logs::volume(&bench.exec, bench.oracle, (name, &text), &bench.made, &bench.work)
                });
                bench.clean_up();
            }));
        }
        if wanted.includes("encrypt", true) {
            let bench = bench("encrypt");
            jobs.push(Box::new(move |table| bench.encrypted(table)));
        }
        for refusal in REFUSALS.iter().filter(|refusal| wanted.includes(refusal.name, refusal.quick)) {
            let bench = bench(refusal.name);
            jobs.push(Box::new(move |table| {
                table.check(&format!("read {} (refused)", refusal.name), || bench.refusal(refusal));
                bench.clean_up();
            }));
        }
    }
    table.run(jobs);
    if oracle.has_zpfix() {
        received::run(&base, &exec, oracle, wanted, table);
    }
    if wanted.includes("old", true) {
        crate::old::run(&base, &exec, table);
    }
    if wanted.includes("kplain", false) {
        kernel::run(&base, root, table);
    }
    if wanted.includes("kzil", true) {
        logs::kernel(&base, root, oracle, table);
    }
}

impl Bench<'_> {
    /// Encrypted datasets: those of the fixture read and written, with their keys and without, and some of our own.
    fn encrypted(&self, table: &Table) {
        let Some(expected) = table.check("read encrypt, with its keys", || {
            let expected = self.make("encrypt")?;
            locked::read(&self.exec, &self.made, &expected)?;
            Ok(expected)
        }) else {
            return;
        };
        table.check("read encrypt, written with its keys", || {
            copy_pool(&self.made, &self.work)?;
            locked::write(&self.exec, self.oracle, &self.work)
        });
        table.check("encrypted datasets of ours", || {
            let _ = std::fs::remove_dir_all(&self.work);
            std::fs::create_dir_all(&self.work)?;
            locked::make(&self.exec, self.oracle, &self.work)
        });
        table.check("encrypted datasets of ours, sent raw", || {
            locked::send_raw(&self.exec, self.oracle, (&self.work, &self.work.join("raw")))
        });
        table.check("encrypted datasets, received raw", || {
            locked::receive_raw(&self.exec, self.oracle, [&self.made, &self.work], &self.work.join("back"))
        });
        table.check("encrypted datasets of ours, their logs claimed and replayed", || {
            let folder = self.work.join("logs");
            std::fs::create_dir_all(&folder)?;
            locked::logged(&self.exec, self.oracle, (&folder, &self.work.join("claimed")))
        });
        table.check("read encrypt, changed without its keys", || locked::change(&self.exec, self.oracle, &self.made, &expected));
        self.clean_up();
    }

    /// Makes the fixture anew or takes it from `$ZIRCONIA_FIXTURES`; returns its manifest.
    fn make(&self, name: &str) -> Result<Lines, Failure> {
        Ok(manifest::parse(&self.make_text(name)?))
    }

    /// Does [`Bench::make`], and returns the manifest with its comments.
    fn make_text(&self, name: &str) -> Result<String, Failure> {
        let _ = std::fs::remove_dir_all(&self.made);
        let kept = std::env::var_os("ZIRCONIA_FIXTURES").map(|folder| PathBuf::from(folder).join(name)).filter(|folder| folder.is_dir());
        let text = match &kept {
            Some(folder) => {
                copy_pool(folder, &self.made)?;
                std::fs::read(folder.join("MANIFEST"))?
            }
            None => {
                if let Some(folder) = self.made.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                self.oracle.make(name, &self.made)?;
                std::fs::read(self.made.join("MANIFEST"))?
            }
        };
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn fixture(&self, fixture: &Fixture, wanted: &Wanted, table: &Table) {
        let (all, by_name) = (wanted.all, !wanted.names.is_empty());
        let name = fixture.name;
        let pool = format!("fx_{name}");
        let Some(expected) = table.check(&format!("read {name}"), || {
            let expected = self.make(name)?;
            self.list(&self.made, &pool, &expected)?;
            Ok(expected)
        }) else {
            return;
        };
        for count in (1..=fixture.parity).filter(|count| all || *count == fixture.parity) {
            for (how, from_end) in [(Damage::Missing, false), (Damage::Noise, true), (Damage::Missing, true), (Damage::Noise, false)] {
                let quick = from_end == (how == Damage::Noise);
                if all || quick {
                    let place = if from_end { "last" } else { "first" };
                    let what = format!("read {name}, {place} {count} {}", if how == Damage::Noise { "noise" } else { "missing" });
                    table.check(&what, || self.damaged(&pool, &expected, count, from_end, how));
                }
            }
        }
        table.check(&format!("read {name}, then written by us"), || self.written(&pool, all));
        let heals = fixture.parity > 0 && (all || HEALED_QUICKLY.contains(&name) || by_name);
        if heals {
            let count = fixture.parity;
            table.check(&format!("read {name}, {count} noise, healed by our scrub"), || self.healed(&pool, &expected, count));
            table.check(&format!("read {name}, written with {count} missing"), || self.written_degraded(&pool, count));
        }
        self.clean_up();
    }

    fn clean_up(&self) {
        if let Some(folder) = self.made.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }

    fn list(&self, folder: &Path, pool: &str, expected: &Lines) -> Result<(), Failure> {
        let pool = driver::import(&self.exec, folder, pool, true)?;
        let found = manifest::of_pool(&pool)?;
        pool.export()?;
        manifest::compare("ours", expected, &found)
    }

    fn damaged(&self, pool: &str, expected: &Lines, count: usize, from_end: bool, how: Damage) -> Result<(), Failure> {
        copy_pool(&self.made, &self.work)?;
        damage(&self.work, count, from_end, how)?;
        self.list(&self.work, pool, expected)
    }

    /// Writes to it, and the real engine finds it clean and lists it as we do; so do we after the real engine wrote to it.
    fn written(&self, name: &str, to_its_end: bool) -> Result<(), Failure> {
        copy_pool(&self.made, &self.work)?;
        let pool = driver::import(&self.exec, &self.work, name, false)?;
        touch::touch(&pool)?;
        let ours = manifest::of_pool(&pool)?;
        pool.export()?;
        self.list(&self.work, name, &ours).map_err(|error| format!("after our export: {error}"))?;
        match to_its_end {
            true => self.oracle.zdb_clean_to_its_end(&self.work, name)?,
            false => self.oracle.zdb_clean(&self.work, name)?,
        }
        if let Some(theirs) = self.oracle.check(&self.work, name)? {
            manifest::compare("the real engine's", &ours, &theirs)?;
        }
        self.list(&self.work, name, &ours).map_err(|error| format!("after the real engine had it: {error}"))?;
        Ok(())
    }

    /// Repairs devices full of noise by our scrub; the real engine's finds nothing left to repair.
    fn healed(&self, name: &str, expected: &Lines, count: usize) -> Result<(), Failure> {
        copy_pool(&self.made, &self.work)?;
        damage(&self.work, count, true, Damage::Noise)?;
        let pool = driver::import(&self.exec, &self.work, name, false)?;
        pool.scrub_start()?;
        pool.scrub_wait()?;
        let status = pool.scan_status().ok_or("no scrub")?;
        pool.export()?;
        if status.errors != 0 || status.repaired == 0 {
            return Err(format!("our scrub: {} errors, {} bytes repaired", status.errors, status.repaired).into());
        }
        self.oracle.zdb_clean(&self.work, name)?;
        match self.oracle.check(&self.work, name)? {
            Some(theirs) => manifest::compare("the real engine's", expected, &theirs),
            None => Ok(()),
        }
    }

    /// Writes while devices are away. The pool is clean without them; when they come back, stale, the real engine knows what
    /// they missed.
    fn written_degraded(&self, name: &str, count: usize) -> Result<(), Failure> {
        // The configuration remembers where the missing devices were: there must be nothing at that place any more.
        let (born, aside) = (self.made.with_extension("born"), self.made.with_extension("aside"));
        for folder in [&born, &aside] {
            let _ = std::fs::remove_dir_all(folder);
        }
        self.oracle.make(name.trim_start_matches("fx_"), &born)?;
        std::fs::rename(&born, &aside)?;
        copy_pool(&aside, &self.work)?;
        damage(&self.work, count, false, Damage::Missing)?;
        let pool = driver::import(&self.exec, &self.work, name, false)?;
        touch::touch(&pool)?;
        let ours = manifest::of_pool(&pool)?;
        pool.export()?;
        self.oracle.zdb_clean(&self.work, name)?;
        if let Some(theirs) = self.oracle.check(&self.work, name)? {
            manifest::compare("without the devices, the real engine's", &ours, &theirs)?;
        }
        bring_back(&aside, &self.work, count)?;
        self.list(&self.work, name, &ours).map_err(|error| format!("with stale devices: {error}"))?;
        if let Some(theirs) = self.oracle.resilver(&self.work, name)? {
            manifest::compare("with stale devices, the real engine's", &ours, &theirs)?;
        }
        if let Some(theirs) = self.oracle.check(&self.work, name)? {
            manifest::compare("after its resilver, the real engine's", &ours, &theirs)?;
        }
        self.list(&self.work, name, &ours)
    }

    fn refusal(&self, refusal: &Refusal) -> Result<(), Failure> {
        let expected = self.make(refusal.name)?;
        let name = format!("fx_{}", refusal.name);
        let said = match driver::import(&self.exec, &self.made, &name, false) {
            Ok(_) => return Err("it was imported".into()),
            Err(ImportError::Pool(error)) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        if said != refusal.says {
            return Err(format!("the message is: {said}").into());
        }
        match (driver::import(&self.exec, &self.made, &name, true), refusal.readable) {
            (Ok(pool), true) => {
                let found = manifest::of_pool(&pool)?;
                pool.export()?;
                // A fixture whose maker "crashed" has no manifest.
                if expected.is_empty() { Ok(()) } else { manifest::compare("ours", &expected, &found) }
            }
            (Ok(_), false) => Err("it was imported read-only".into()),
            (Err(error), true) => Err(format!("read-only: {error}").into()),
            (Err(_), false) => Ok(()),
        }
    }
}
