//! Pools whose stages run on a provider: OpenZFS must find in them what it finds in all others.

use crate::Failure;
use dpusm::{FallbackReason, OpKind, RegisterOptions, Registry, Tally};
use exec::Exec;
use offload::{Accelerator, ZiaMode, ZiaPolicy};
use pool::Pool;
use provider_software::{Software, SoftwareOptions};

/// Bytes of the largest block of the provider's tests.
const TEST_BYTES_MAX: usize = 4096;
/// Percent of the results that are verified.
const VERIFY_PERCENT: f64 = 10.0;

/// Gives every stage of the pool to a provider.
pub fn begin(exec: &Exec, pool: &Pool, mode: ZiaMode) -> Result<Registry, Failure> {
    let registry = Registry::new(exec);
    let options = RegisterOptions { test_bytes_max: TEST_BYTES_MAX, ..RegisterOptions::default() };
    registry.register(Software::new(exec, SoftwareOptions::default()), &options)?;
    let policy = ZiaPolicy {
        compress: true,
        decompress: true,
        checksum: true,
        raidz_gen: [true; 3],
        raidz_rec: [true; 3],
        file_write: true,
        mode,
        verify_percent: VERIFY_PERCENT,
        bytes_min: 4096,
        // A busy machine is no failure of the provider.
        deadline_ns: 60_000_000_000,
        ..ZiaPolicy::default()
    };
    pool.zio().set_stage(Some(Accelerator::new(registry.get("software")?, policy).into_stage()));
    pool.zio().open_stores();
    Ok(registry)
}

/// Checks that blocks went there, none of them came back wrong, and no stage failed.
pub fn check(registry: &Registry, has_parity: bool) -> Result<(), Failure> {
    let session = registry.get("software")?;
    let stats = session.stats();
    for kind in [OpKind::Compress, OpKind::Checksum, OpKind::RaidGenerate] {
        if stats.get(kind, Tally::Blocks) == 0 && (has_parity || kind != OpKind::RaidGenerate) {
            return Err(format!("{} never went to the provider", kind.name()).into());
        }
    }
    if stats.total(Tally::Verified) == 0 {
        return Err("nothing was verified".into());
    }
    // A block whose parity finds the queue full, after its compression did not, begins again in software: that is no failure.
    let by_full_queue = stats.get(OpKind::CopyOut, Tally::Fallback(FallbackReason::Full));
    match (stats.total(Tally::VerifyFailures), stats.total(Tally::Restarts).saturating_sub(by_full_queue)) {
        (0, 0) => Ok(()),
        (wrong, restarts) => {
            let why = OpKind::ALL.iter().flat_map(|kind| FallbackReason::ALL.iter().map(move |reason| (kind, reason)));
            let why = why.map(|(kind, reason)| (kind, reason, stats.get(*kind, Tally::Fallback(*reason))));
            let why =
                why.filter(|(_, _, count)| *count > 0).map(|(kind, reason, count)| format!("; {} {} {count}", kind.name(), reason.name()));
            Err(format!("{wrong} results were wrong, {restarts} blocks began again{}", why.collect::<String>()).into())
        }
    }
}
