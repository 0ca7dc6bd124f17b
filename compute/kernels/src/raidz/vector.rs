//! RAID-Z for instruction sets with byte shuffles, written once over [`Vector`]: doubling by shift and reduction, products by two lookups of
//! half a byte. A file for each instruction set says how its vectors do that.
//!
//! Everything here is inlined into one function per instruction set that enables its features: only there do the methods become instructions.
#![allow(unsafe_code, reason = "vector loads and stores, and instructions of one instruction set")]
#![allow(clippy::needless_range_loop, reason = "vectors are numbered across several accumulators")]

use super::gf::NIBBLES;
use super::implementation::Combine;
use std::array::from_fn;
use std::ops::Range;

/// Vectors per column and step.
const VECTORS: usize = 2;

/// Bytes as one instruction set takes them at a time.
///
/// # Safety
/// Every method needs a machine that has the instruction set.
pub(super) unsafe trait Vector: Copy {
    /// Bytes of a vector.
    const BYTES: usize;

    /// Zeros.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn zero() -> Self;

    /// The bytes at `from`, however they are aligned.
    ///
    /// # Safety
    /// See the trait; `BYTES` bytes must be readable there.
    unsafe fn load(from: *const u8) -> Self;

    /// Writes the bytes to `to`, however it is aligned.
    ///
    /// # Safety
    /// See the trait; `BYTES` bytes must be writable there.
    unsafe fn store(self, to: *mut u8);

    /// The sum of both.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn xor(self, other: Self) -> Self;

    /// Each byte times 2.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn double(self) -> Self;

    /// Tables that [`times`](Vector::times) looks up: `table`'s products of low and of high half bytes, as often as a vector takes them.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn tables(table: &[u8; 32]) -> [Self; 2];

    /// Each byte times the constant of the tables.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn times(self, tables: [Self; 2]) -> Self;
}

/// The part of `range` that whole steps cover.
pub(super) const fn steps<V: Vector>(range: &Range<usize>) -> Range<usize> {
    let step = V::BYTES * VECTORS;
    range.start..range.start + (range.end - range.start) / step * step
}

/// Parity of the columns over `range`, whole steps; see [`generate`](super::generate).
///
/// # Safety
/// The machine must have the instruction set; columns and parity must reach over `range`.
#[inline(always)]
pub(super) unsafe fn generate<V: Vector>(data: &[&[u8]], parity: &mut [&mut [u8]], range: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe {
        match parity {
            [p] => generate_steps::<V, 1>(data, [p.as_mut_ptr()], range),
            [p, q] => generate_steps::<V, 2>(data, [p.as_mut_ptr(), q.as_mut_ptr()], range),
            [p, q, r] => generate_steps::<V, 3>(data, [p.as_mut_ptr(), q.as_mut_ptr(), r.as_mut_ptr()], range),
            _ => {}
        }
    }
}

/// # Safety
/// The machine must have the instruction set; columns and targets must reach over `range`, whose length is a multiple of the step.
#[inline(always)]
unsafe fn generate_steps<V: Vector, const PARITY: usize>(data: &[&[u8]], targets: [*mut u8; PARITY], range: Range<usize>) {
    for at in range.step_by(V::BYTES * VECTORS) {
        // SAFETY: the machine has the instruction set.
        let mut sums = [[unsafe { V::zero() }; VECTORS]; PARITY];
        for column in data {
            for vector in 0..VECTORS {
                // SAFETY: the column reaches over this step.
                let bytes = unsafe { V::load(column.as_ptr().add(at + V::BYTES * vector)) };
                for (power, sum) in sums.iter_mut().enumerate() {
                    let mut value = sum[vector];
                    for _ in 0..power {
                        // SAFETY: the machine has the instruction set.
                        value = unsafe { value.double() };
                    }
                    // SAFETY: as before.
                    sum[vector] = unsafe { value.xor(bytes) };
                }
            }
        }
        for (sum, target) in sums.iter().zip(targets) {
            for (vector, value) in sum.iter().enumerate() {
                // SAFETY: the target reaches over this step.
                unsafe { value.store(target.add(at + V::BYTES * vector)) };
            }
        }
    }
}

/// Computes what `job` asks for over `range`, whole steps.
///
/// # Safety
/// The machine must have the instruction set; [`Combine::check`] must have accepted the columns and the range.
#[inline(always)]
pub(super) unsafe fn combine<V: Vector>(job: &Combine, xor: Option<&mut [u8]>, products: &mut [&mut [u8]], range: Range<usize>) {
    let plain = xor.map(|target| target.as_mut_ptr());
    // SAFETY: the caller's promise.
    unsafe {
        match products {
            [] => combine_steps::<V, 0>(job, plain, [], range),
            [one] => combine_steps::<V, 1>(job, plain, [one.as_mut_ptr()], range),
            [one, two, ..] => combine_steps::<V, 2>(job, plain, [one.as_mut_ptr(), two.as_mut_ptr()], range),
        }
    }
}

/// # Safety
/// The machine must have the instruction set; sources and targets must reach over `range`, whose length is a multiple of the step.
#[inline(always)]
unsafe fn combine_steps<V: Vector, const ROWS: usize>(
    job: &Combine,
    plain: Option<*mut u8>,
    targets: [*mut u8; ROWS],
    range: Range<usize>,
) {
    for at in range.step_by(V::BYTES * VECTORS) {
        // SAFETY: the machine has the instruction set.
        let zero = unsafe { V::zero() };
        let (mut sum, mut sums) = ([zero; VECTORS], [[zero; VECTORS]; ROWS]);
        for (n, source) in job.sources.iter().enumerate() {
            // SAFETY: the source reaches over this step.
            let bytes: [V; VECTORS] = from_fn(|vector| unsafe { V::load(source.as_ptr().add(at + V::BYTES * vector)) });
            if n < job.xor_sources {
                // SAFETY: the machine has the instruction set.
                sum = from_fn(|vector| unsafe { sum[vector].xor(bytes[vector]) });
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: as before.
                let tables = unsafe { V::tables(&NIBBLES[usize::from(job.rows[row][n])]) };
                // SAFETY: as before.
                *sums = from_fn(|vector| unsafe { sums[vector].xor(bytes[vector].times(tables)) });
            }
        }
        for vector in 0..VECTORS {
            for (sums, target) in sums.iter().zip(targets) {
                // SAFETY: the target reaches over this step.
                unsafe { sums[vector].store(target.add(at + V::BYTES * vector)) };
                if job.fold {
                    // SAFETY: the machine has the instruction set.
                    sum[vector] = unsafe { sum[vector].xor(sums[vector]) };
                }
            }
            if let Some(target) = plain {
                // SAFETY: the target reaches over this step.
                unsafe { sum[vector].store(target.add(at + V::BYTES * vector)) };
            }
        }
    }
}
