//! Streams that the real engine sends of its pools, received by us: every file of every snapshot is the same, and the real engine finds the
//! pool clean.

use crate::driver::{self, Layout, NewPool};
use crate::manifest::{self, Lines};
use crate::oracle::Oracle;
use crate::report::{Job, Table};
use crate::{Failure, Wanted, accounting};
use exec::Exec;
use pool::Pool;
use receive::{Receiver, Target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stream::{Reader, Record, begin_list};
use vdev::TopKind;

/// Pools whose snapshots are sent, and whether the quick subset has them.
const FIXTURES: [(&str, bool); 5] = [("stripe1", true), ("recsizes", false), ("dnodes", false), ("comps", false), ("bigfile", false)];
/// Ways to send: large blocks always, since they are part of what is compared; compressed and embedded blocks.
const FLAGS: [(&str, bool); 4] = [("L", true), ("Lce", true), ("Lc", false), ("Le", false)];
/// Bytes of the device that is received into.
const DEVICE_BYTES: u64 = 4 << 30;
const TARGET: &str = "rx";

/// Snapshots of a pool by their datasets, oldest first, with what each holds.
type Snapshots = BTreeMap<String, Vec<(String, Lines)>>;

/// Runs the checks.
pub fn run(base: &Path, exec: &Exec, oracle: &Oracle, wanted: &Wanted, table: &Table) {
    let mut jobs: Vec<Job> = Vec::new();
    for (name, quick) in FIXTURES.into_iter().filter(|(name, quick)| wanted.includes(name, *quick)) {
        for (flags, _) in FLAGS.into_iter().filter(|(_, often)| quick && *often || wanted.all) {
            let folder = base.join(format!("stream-{name}-{flags}"));
            jobs.push(Box::new(move |table| {
                let bench = Bench { exec, oracle, made: folder.join("made"), work: folder.join("work") };
                table.check(&format!("receive {name}, sent with {flags}"), || bench.received(name, flags));
                let _ = std::fs::remove_dir_all(&folder);
            }));
        }
    }
    table.run(jobs);
}

/// Bench of one pool.
struct Bench<'a> {
    exec: &'a Exec,
    oracle: &'a Oracle,
    made: PathBuf,
    work: PathBuf,
}

impl Bench<'_> {
    /// Receives every snapshot of the fixture, each on top of the one before.
    fn received(&self, name: &str, flags: &str) -> Result<(), Failure> {
        self.oracle.make(name, &self.made)?;
        std::fs::create_dir_all(&self.work)?;
        let source = format!("fx_{name}");
        let sent = self.snapshots(&source)?;
        let layout = Layout { name: "one disk", kind: TopKind::Leaf, tops: 1, width: 1 };
        let new = NewPool { name: TARGET, layout, ashift: 12, device_bytes: DEVICE_BYTES, no_features: false, small_memory: false };
        let pool = driver::create(self.exec, &self.work, new)?;
        let (mut count, mut all) = (0, Lines::new());
        for (dataset, snapshots) in &sent {
            count += 1;
            let target = format!("{TARGET}/d{count}");
            let mut before: Option<&str> = None;
            for (snapshot, expected) in snapshots {
                let file = self.work.with_extension("stream");
                self.oracle.send(&self.made, &source, (before, snapshot.as_str()), (file.as_path(), flags))?;
                let part = snapshot.split('@').nth(1).unwrap_or_default();
                receive(&pool, &file, &target, part).map_err(|error| format!("{snapshot}: {error}"))?;
                let full = format!("{target}@{part}");
                let mut found = Lines::new();
                manifest::of_dataset(&pool, &full, &mut found)?;
                let expected: Lines = expected.iter().map(|line| line.replacen(dataset, &target, 1)).collect();
                manifest::compare(snapshot, &expected, &found)?;
                accounting::check(&pool.dsl().hold(&full)?.objset()?).map_err(|error| format!("{full}: {error}"))?;
                all.extend(found);
                before = Some(snapshot.as_str());
            }
        }
        pool.export()?;
        if all.is_empty() {
            return Err("nothing was sent".into());
        }
        self.oracle.zdb_clean(&self.work, TARGET)?;
        match self.oracle.check(&self.work, TARGET)? {
            Some(theirs) if all.is_subset(&theirs) => Ok(()),
            Some(theirs) => manifest::compare("the real engine's", &all, &theirs),
            None => Ok(()),
        }
    }

    /// Snapshots of the fixture and what they hold.
    fn snapshots(&self, source: &str) -> Result<Snapshots, Failure> {
        let pool = driver::import(self.exec, &self.made, source, true)?;
        let mut found = Snapshots::new();
        for dataset in driver::datasets(&pool)?.into_iter().filter(|name| !name.contains('@')) {
            for entry in pool.dsl().snapshots(&dataset)? {
                let (full, mut lines) = (format!("{dataset}@{}", entry.name), Lines::new());
                manifest::of_dataset(&pool, &full, &mut lines)?;
                if !lines.is_empty() {
                    found.entry(dataset.clone()).or_default().push((full, lines));
                }
            }
        }
        pool.export()?;
        Ok(found)
    }
}

/// Receives the stream in a file.
pub(crate) fn receive(pool: &Pool, file: &Path, target: &str, snapshot: &str) -> Result<(), Failure> {
    let mut reader = Reader::new(std::io::BufReader::new(std::fs::File::open(file)?));
    let mut payload = Vec::new();
    let Some(Record::Begin(begin)) = reader.read_record(&mut payload)? else { return Err("no stream".into()) };
    let list = begin_list(&payload).map_err(|error| format!("{error:?}"))?;
    let place = Target { name: target.to_string(), snapshot: snapshot.to_string(), ..Target::default() };
    let receiver = Receiver::begin(pool.dsl(), &begin, &list, &place, &|objset| zpl::Accounting::install(objset))?;
    Ok(receiver.run(&mut reader)?)
}
