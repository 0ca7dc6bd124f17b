//! The options of `zinject`, and what they mean: one request to the daemon, or what is wrong with them (OpenZFS: `zinject.c`).

use clap::{ArgAction, Parser};
use control_api::{InjectAdd, InjectFault};

/// Number that is the whole of a frequency.
const ALWAYS: f64 = 4_294_967_295.0;
/// Seconds for which writes are lost unless told otherwise.
const LOST_SECONDS: u64 = 30;
const META: [&str; 7] = ["mos", "mosdir", "metaslab", "config", "bpobj", "spacemap", "errlog"];
const LABELS: [&str; 4] = ["nvlist", "uber", "pad1", "pad2"];
const ERRORS: [&str; 8] = ["io", "checksum", "decompress", "decrypt", "nxio", "dtl", "corrupt", "noop"];
const IO_TYPES: [&str; 9] = ["null", "read", "write", "free", "claim", "flush", "trim", "all", "probe"];

/// Simulated faults: without arguments, the handlers that there are.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "zinject", version, disable_help_flag = true, disable_version_flag = true)]
pub struct Arguments {
    /// Empty the cache.
    #[arg(short = 'a')]
    pub flush: bool,
    /// Declare the device degraded or faulted.
    #[arg(short = 'A', value_name = "degrade|fault")]
    pub action: Option<String>,
    /// Fail reads of one block; numbers are hexadecimal.
    #[arg(short = 'b', value_name = "objset:object:level:blkid")]
    pub block: Option<String>,
    /// Remove a handler, or all.
    #[arg(short = 'c', value_name = "id|all")]
    pub clear: Option<String>,
    /// Only these copies, counted from 0, separated by commas.
    #[arg(short = 'C', value_name = "dvas")]
    pub copies: Option<String>,
    /// Faults of a device, by path or guid.
    #[arg(short = 'd', value_name = "device")]
    pub device: Option<String>,
    /// Each I/O of the device takes so many milliseconds, and so many are served at once.
    #[arg(short = 'D', value_name = "latency:lanes")]
    pub delay: Option<String>,
    /// The error: io (the default for data), checksum, decompress, decrypt, nxio (the default for devices), dtl, corrupt or noop.
    #[arg(short = 'e', value_name = "error")]
    pub error: Option<String>,
    /// How often, in percent: 0.0001 to 100.
    #[arg(short = 'f', value_name = "frequency")]
    pub frequency: Option<String>,
    /// Only I/O that is not a retry; here none is, so it changes nothing.
    #[arg(short = 'F')]
    pub fail_fast: bool,
    /// With -I: for so many transaction groups.
    #[arg(short = 'g', value_name = "txgs")]
    pub txgs: Option<String>,
    /// Print the usage.
    #[arg(short = 'h', action = ArgAction::SetTrue)]
    pub help: bool,
    /// Lose most writes for a while, and report success.
    #[arg(short = 'I')]
    pub lost_writes: bool,
    /// The level of the blocks; 0 unless given.
    #[arg(short = 'l', value_name = "level", allow_hyphen_values = true)]
    pub level: Option<String>,
    /// Only this part of the device's labels: nvlist, uber, pad1 or pad2.
    #[arg(short = 'L', value_name = "part")]
    pub label: Option<String>,
    /// Mount the file system anew.
    #[arg(short = 'm')]
    pub remount: bool,
    /// Panic in a function: refused, there is none to panic.
    #[arg(short = 'p', value_name = "function")]
    pub panic: Option<String>,
    /// Make the pool's next import or export take at least the seconds of -s.
    #[arg(short = 'P', value_name = "import|export")]
    pub pool_delay: Option<String>,
    /// Print only the handler's number.
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Only these bytes of the object.
    #[arg(short = 'r', value_name = "start[,end]")]
    pub range: Option<String>,
    /// With -I and -P: seconds.
    #[arg(short = 's', value_name = "seconds", allow_hyphen_values = true)]
    pub seconds: Option<String>,
    /// What is read with an error: data or dnode of a file; mos, mosdir, metaslab, config, bpobj, spacemap or errlog of a pool.
    #[arg(short = 't', value_name = "type")]
    pub kind: Option<String>,
    /// Only I/O of this type: read, write, free, claim, flush, trim, all, or probe: what tells whether the device works. Before reads
    /// fail, what was written is brought to the devices.
    #[arg(short = 'T', value_name = "type")]
    pub io: Option<String>,
    /// Close the pool and open it again first.
    #[arg(short = 'u')]
    pub unload: bool,
    /// A pool, or with -t data and -t dnode the absolute path of a file.
    pub object: Vec<String>,
}

/// Task that the options ask for.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Print the handlers.
    List,
    /// Print the usage.
    Help,
    /// Remove one handler by its number, or all.
    Clear(Option<u64>),
    /// Add a handler, or flush the cache.
    Add(Box<InjectAdd>),
}

/// Message about what is wrong, the exit code, and whether the usage follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Message in one line.
    pub why: String,
    /// Exit code of the program.
    pub code: u8,
    /// True when the usage is printed too.
    pub usage: bool,
}

fn wrong(code: u8, why: impl Into<String>) -> Wrong {
    Wrong { why: why.into(), code, usage: true }
}

/// Makes the message about a wrong value, without the usage.
fn refused(why: impl Into<String>) -> Wrong {
    Wrong { why: why.into(), code: 1, usage: false }
}

/// Milliseconds and lanes of `10:2`.
fn delay_of(word: &str) -> Option<(u64, u64)> {
    let (delay, lanes) = word.split_once(':')?;
    Some((delay.parse().ok().filter(|delay| *delay > 0)?, lanes.parse().ok()?))
}

/// Share of 2^32 for a percentage.
fn frequency_of(word: &str) -> Result<u32, Wrong> {
    let range = "frequency value must be in the range [0.0001, 100.0]";
    let percent: f64 = word.trim().parse().map_err(|_| refused(format!("invalid value: {range}")))?;
    let share = percent / 100.0;
    if !(0.000_001..=1.0).contains(&share) {
        return Err(refused(format!("out of range: {range}")));
    }
    Ok((share * ALWAYS) as u32)
}

/// Mask of bits for `0,2`.
fn copies_of(word: &str) -> Option<u32> {
    let mut bits = 0;
    for digit in word.split(',') {
        let bit = 1 << digit.parse::<u32>().ok().filter(|copy| *copy < 3 && digit.len() == 1)?;
        if bits & bit != 0 {
            return None;
        }
        bits |= bit;
    }
    Some(bits)
}

fn range_of(word: &str) -> Option<(u64, u64)> {
    match word.split_once(',') {
        None => word.parse().ok().map(|start: u64| (start, start.saturating_add(1))),
        Some((start, end)) => Some((start.parse().ok()?, end.parse().ok()?)),
    }
}

impl Arguments {
    /// Task that the options mean.
    pub fn task(&self, is_alone: bool) -> Result<Task, Wrong> {
        if is_alone {
            return Ok(Task::List);
        }
        if self.help {
            return Ok(Task::Help);
        }
        self.check_words()?;
        if let Some(word) = &self.clear {
            return self.clear(word);
        }
        let fault = self.fault()?;
        let pool = match &fault {
            Some(InjectFault::File { .. }) => None,
            _ => self.object.first().cloned(),
        };
        let frequency = self.frequency.as_deref().map_or(Ok(0), frequency_of)?;
        Ok(Task::Add(Box::new(InjectAdd { pool, fault, frequency, flush_cache: self.flush, reopen: self.unload })))
    }

    /// Refuses values that no form of the command has.
    fn check_words(&self) -> Result<(), Wrong> {
        let known = |word: &Option<String>, list: &[&str]| word.as_ref().is_none_or(|word| list.contains(&word.to_lowercase().as_str()));
        let given = |word: &Option<String>| word.clone().unwrap_or_default();
        if !known(&self.action, &["degrade", "fault"]) {
            return Err(wrong(1, format!("invalid action '{}': must be 'degrade' or 'fault'", given(&self.action))));
        }
        if self.copies.as_ref().is_some_and(|word| copies_of(word).is_none()) {
            return Err(wrong(1, format!("invalid DVA list '{}': DVAs should be 0 indexed and separated by commas.", given(&self.copies))));
        }
        if self.delay.as_ref().is_some_and(|word| delay_of(word).is_none()) {
            return Err(wrong(1, format!("invalid i/o delay value: '{}'", given(&self.delay))));
        }
        if !known(&self.error, &ERRORS) {
            let list = "io decompress decrypt nxio dtl corrupt noop";
            return Err(wrong(1, format!("invalid error type '{}': must be one of: {list}", given(&self.error))));
        }
        self.frequency.as_deref().map_or(Ok(0), frequency_of)?;
        if self.level.as_ref().is_some_and(|word| word.parse::<u32>().is_err()) {
            return Err(wrong(1, format!("invalid level '{}': must be an integer", given(&self.level))));
        }
        for word in [&self.txgs, &self.seconds] {
            if word.as_ref().is_some_and(|word| !matches!(word.parse::<i32>(), Ok(1..))) {
                return Err(wrong(1, format!("invalid duration '{}': must be a positive integer", given(word))));
            }
        }
        if !known(&self.pool_delay, &["import", "export"]) {
            return Err(wrong(1, format!("invalid command '{}': must be 'import' or 'export'", given(&self.pool_delay))));
        }
        if !known(&self.io, &IO_TYPES) {
            let list = "'read', 'write', 'free', 'claim', 'flush' or 'all'";
            return Err(wrong(1, format!("invalid I/O type '{}': must be {list}", given(&self.io))));
        }
        if self.kind.as_ref().is_some_and(|kind| !["data", "dnode"].contains(&kind.as_str()) && !META.contains(&kind.as_str())) {
            return Err(wrong(1, format!("invalid type '{}'", given(&self.kind))));
        }
        if self.label.as_ref().is_some_and(|label| !LABELS.contains(&label.as_str())) {
            return Err(wrong(1, format!("invalid label type '{}'", given(&self.label))));
        }
        Ok(())
    }

    /// True when options of data faults are given.
    fn is_about_data(&self) -> bool {
        self.block.is_some() || self.range.is_some() || self.kind.is_some() || self.level() != 0 || self.copies.is_some()
    }

    /// True when a duration or another command is given.
    fn is_command(&self) -> bool {
        self.panic.is_some() || self.pool_delay.is_some() || self.lost_writes || self.seconds.is_some() || self.txgs.is_some()
    }

    fn level(&self) -> u32 {
        self.level.as_deref().and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    fn error(&self) -> Option<String> {
        self.error.as_ref().map(|word| word.to_lowercase())
    }

    fn clear(&self, word: &str) -> Result<Task, Wrong> {
        if self.is_about_data() || self.is_command() || self.frequency.is_some() {
            return Err(wrong(2, "cancel (-c) incompatible with any other options"));
        }
        if !self.object.is_empty() {
            return Err(wrong(2, "extraneous argument to '-c'"));
        }
        match word {
            "all" => Ok(Task::Clear(None)),
            number => match number.parse() {
                Ok(id) => Ok(Task::Clear(Some(id))),
                Err(_) => Err(wrong(1, format!("invalid handle id '{number}': must be an integer or 'all'"))),
            },
        }
    }

    fn fault(&self) -> Result<Option<InjectFault>, Wrong> {
        if let Some(device) = &self.device {
            return self.of_device(device).map(Some);
        }
        if let Some(spec) = &self.block {
            return self.of_block(spec).map(Some);
        }
        if self.panic.is_some() {
            return Err(refused("failed to add handler: panics cannot be injected, there is no kernel to panic"));
        }
        if let Some(command) = &self.pool_delay {
            let (Some(seconds), 1, false) = (self.whole_seconds(), self.object.len(), self.is_about_data() || self.frequency.is_some())
            else {
                return Err(wrong(2, "import|export delay (-P) injection requires a duration (-s) and a single pool name"));
            };
            return Ok(Some(InjectFault::PoolDelay { import: command.to_lowercase() == "import", seconds }));
        }
        if self.is_command() {
            return self.of_lost_writes().map(Some);
        }
        match &self.kind {
            Some(kind) => self.of_object(kind).map(Some),
            None if !self.flush && !self.unload && self.range.is_none() => {
                Err(wrong(2, "at least one of '-b', '-d', '-t', '-a', '-p', '-I' or '-u' must be specified"))
            }
            None if self.object.len() > usize::from(self.unload) => Err(wrong(2, "extraneous argument for '-f'")),
            None => Ok(None),
        }
    }

    fn whole_seconds(&self) -> Option<u64> {
        self.seconds.as_deref().and_then(|word| word.parse().ok())
    }

    fn of_device(&self, device: &str) -> Result<InjectFault, Wrong> {
        if self.is_about_data() || self.is_command() {
            return Err(wrong(2, "device (-d) incompatible with data error injection"));
        }
        if self.object.len() != 1 {
            return Err(wrong(2, "device (-d) injection requires a single pool name"));
        }
        let (error, device) = (self.error(), device.to_string());
        let io = self.io.as_ref().map_or("all".to_string(), |word| word.to_lowercase());
        match error.as_deref() {
            Some("checksum") => return Err(refused("device error type must be 'io', 'nxio' or 'corrupt'")),
            Some("corrupt") if self.frequency.is_none() || io != "read" => {
                return Err(refused("device corrupt errors require io type read and a frequency value"));
            }
            _ => {}
        }
        if let Some(action) = &self.action {
            return Ok(InjectFault::State { device, faulted: action.to_lowercase() == "fault" });
        }
        if let Some((delay_ms, lanes)) = self.delay.as_deref().and_then(delay_of) {
            if !["read", "write", "all"].contains(&io.as_str()) {
                return Err(wrong(1, "I/O type for a delay must be 'read' or 'write'"));
            }
            return Ok(InjectFault::Delay { device, delay_ms, lanes, io });
        }
        Ok(InjectFault::Device { device, error: error.unwrap_or_else(|| "nxio".to_string()), io, label: self.label.clone() })
    }

    fn of_block(&self, spec: &str) -> Result<InjectFault, Wrong> {
        if self.range.is_some() || self.kind.is_some() || self.level() != 0 || self.is_command() || self.copies.is_some() {
            return Err(wrong(2, "raw (-b) format with any other options"));
        }
        if self.object.len() != 1 {
            return Err(wrong(2, "raw (-b) format expects a single pool name"));
        }
        let error = self.data_error()?;
        let numbers: Option<Vec<u64>> = spec.split(':').map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()).collect();
        match numbers.as_deref() {
            Some(&[objset, object, level, block]) if level <= u64::from(u32::MAX) => {
                Ok(InjectFault::Block { objset, object, level: level as u32, block, error })
            }
            _ => Err(refused(format!("bad raw spec '{spec}': must be of the form 'objset:object:level:blkid'"))),
        }
    }

    fn data_error(&self) -> Result<String, Wrong> {
        match self.error().as_deref() {
            None => Ok("io".to_string()),
            Some("nxio" | "corrupt") => Err(refused("data error type must be 'checksum' or 'io'")),
            Some(error) => Ok(error.to_string()),
        }
    }

    fn of_lost_writes(&self) -> Result<InjectFault, Wrong> {
        if self.is_about_data() || self.frequency.is_some() {
            return Err(wrong(2, "hardware failure (-I) incompatible with other options"));
        }
        if !self.lost_writes {
            return Err(wrong(2, "-s or -g meaningless without -I (ignore writes)"));
        }
        if self.seconds.is_some() && self.txgs.is_some() {
            return Err(wrong(2, "choose a duration either in seconds (-s) or a number of txgs (-g) but not both"));
        }
        if self.object.len() != 1 {
            return Err(wrong(2, "ignore writes (-I) injection requires a single pool name"));
        }
        if self.txgs.is_some() {
            return Err(refused("failed to add handler: a number of txgs (-g) is not available in this version, use seconds (-s)"));
        }
        Ok(InjectFault::LostWrites { seconds: self.whole_seconds().unwrap_or(LOST_SECONDS) })
    }

    fn of_object(&self, kind: &str) -> Result<InjectFault, Wrong> {
        let [object] = self.object.as_slice() else { return Err(wrong(2, "missing object")) };
        let error = self.data_error()?;
        if self.copies.is_some() && ["decrypt", "decompress"].contains(&error.as_str()) {
            return Err(refused("the '-C' option may not be used with logical data errors 'decrypt' and 'decompress'"));
        }
        if error == "decrypt" && kind != "data" {
            return Err(refused("decryption errors may only be injected for 'data' types"));
        }
        if META.contains(&kind) {
            return Ok(InjectFault::Meta { kind: kind.to_string(), error });
        }
        if !object.starts_with('/') {
            return Err(wrong(1, format!("invalid object '{object}': must be full path")));
        }
        let range = match &self.range {
            None => None,
            Some(_) if kind == "dnode" => return Err(refused("range cannot be specified when type is 'dnode'")),
            Some(word) => Some(
                range_of(word)
                    .ok_or_else(|| refused(format!("invalid range '{word}': must be a numeric range of the form 'start[,end]'")))?,
            ),
        };
        let copies = self.copies.as_deref().and_then(copies_of).unwrap_or(0);
        Ok(InjectFault::File {
            path: object.clone(),
            dataset: None,
            inode: 0,
            dnode: kind == "dnode",
            level: self.level(),
            range,
            copies,
            error,
        })
    }
}
