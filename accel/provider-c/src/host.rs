//! What C calls: the functions of `struct zp_host`. They trust nothing but the lengths that C gives for its own lists.

use crate::ffi::{CHost, CResult, VERSION};
use crate::pending;
use std::ffi::{c_int, c_void};

/// The host's table; C may keep its address.
pub(crate) static HOST: CHost = CHost { version: VERSION, size: size_of::<CHost>() as u32, complete, started, given_up };

/// Clock by which the begin of work on a program is told: the one that it was submitted on.
static CLOCK: std::sync::OnceLock<exec::Exec> = std::sync::OnceLock::new();

/// Sets the clock of queue times; the first one stays.
pub(crate) fn set_clock(exec: &exec::Exec) {
    let _ = CLOCK.set(exec.clone());
}

unsafe extern "C" fn complete(cookie: *mut c_void, results: *const CResult, count: u64) {
    let Some(pending) = pending::take(pending::number_of(cookie)) else { return };
    let answers: &[CResult] = if results.is_null() || count == 0 {
        &[]
    } else {
        // SAFETY: the header demands that `results` points to `count` results, which stay during the call.
        unsafe { std::slice::from_raw_parts(results, count as usize) }
    };
    pending.answer(answers);
}

unsafe extern "C" fn started(cookie: *mut c_void) {
    if let Some(clock) = CLOCK.get() {
        let now = clock.now_ns();
        pending::look(pending::number_of(cookie), |program| program.start(now));
    }
}

unsafe extern "C" fn given_up(cookie: *mut c_void) -> c_int {
    c_int::from(pending::look(pending::number_of(cookie), |program| program.is_given_up()).unwrap_or(true))
}
