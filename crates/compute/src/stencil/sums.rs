//! Weighted sums along a run of elements.
//!
//! Problem: the same sum must have the same bits wherever a run begins and ends, and on every
//! processor. Approach: each element is the sum of its products in the order of the taps, each
//! rounded; vectors hold neighbouring elements, so their length does not matter. Sums of few taps
//! stay in registers; longer ones are computed in pieces whose sums stay in registers.

use std::ops::{Add, Mul, Sub};

/// Floating-point numbers.
pub trait Real:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + 'static
{
    /// The number as f64.
    fn wide(self) -> f64;
    /// The bits of `|self|`, ordered by magnitude; NaN is above all numbers.
    fn magnitude(self) -> i64;
    /// The number with these bits.
    fn of_magnitude(bits: i64) -> f64;
}

impl Real for f64 {
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    #[inline(always)]
    fn magnitude(self) -> i64 {
        (self.to_bits() & (u64::MAX >> 1)) as i64
    }
    fn of_magnitude(bits: i64) -> f64 {
        f64::from_bits(bits as u64)
    }
}

impl Real for f32 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn magnitude(self) -> i64 {
        i64::from(self.to_bits() & (u32::MAX >> 1))
    }
    fn of_magnitude(bits: i64) -> f64 {
        f64::from(f32::from_bits(bits as u32))
    }
}

/// The taps of a stencil, for memory with given strides.
#[derive(Debug, Clone)]
pub(super) struct Taps<T> {
    /// Distance in numbers from an element to its neighbour.
    pub offsets: Vec<isize>,
    /// Weights, or their real parts.
    pub weights: Vec<T>,
    /// Imaginary parts; None if all are zero.
    pub imaginary: Option<Vec<T>>,
}

/// Numbers per piece of longer sums.
const PIECE: usize = 64;

/// `out[i] = sum over k of weights[k] * x[at + offsets[k] + i]`.
#[inline(always)]
pub(super) fn weighted<T: Real>(out: &mut [T], x: &[T], at: usize, taps: &Taps<T>) {
    if taps.offsets.is_empty() {
        return out.fill(T::default());
    }
    if let Some(imaginary) = &taps.imaginary {
        return pairs(out, x, at, taps, imaginary);
    }
    match taps.offsets.len() {
        1 => few::<T, 1>(out, x, at, taps),
        2 => few::<T, 2>(out, x, at, taps),
        3 => few::<T, 3>(out, x, at, taps),
        4 => few::<T, 4>(out, x, at, taps),
        5 => few::<T, 5>(out, x, at, taps),
        6 => few::<T, 6>(out, x, at, taps),
        7 => few::<T, 7>(out, x, at, taps),
        8 => few::<T, 8>(out, x, at, taps),
        9 => few::<T, 9>(out, x, at, taps),
        _ => many(out, x, at, taps),
    }
}

#[inline(always)]
fn few<T: Real, const K: usize>(out: &mut [T], x: &[T], at: usize, taps: &Taps<T>) {
    let n = out.len();
    let runs: [&[T]; K] =
        std::array::from_fn(|k| &x[at.wrapping_add_signed(taps.offsets[k])..][..n]);
    let weights: [T; K] = std::array::from_fn(|k| taps.weights[k]);
    for i in 0..n {
        let mut sum = weights[0] * runs[0][i];
        for k in 1..K {
            sum = sum + weights[k] * runs[k][i];
        }
        out[i] = sum;
    }
}

#[inline(always)]
fn many<T: Real>(out: &mut [T], x: &[T], at: usize, taps: &Taps<T>) {
    let mut at = at;
    for out in out.chunks_mut(PIECE) {
        let mut sums = [T::default(); PIECE];
        for (k, (offset, weight)) in taps.offsets.iter().zip(&taps.weights).enumerate() {
            let run = &x[at.wrapping_add_signed(*offset)..][..out.len()];
            match <&[T; PIECE]>::try_from(run) {
                Ok(run) if k == 0 => {
                    for i in 0..PIECE {
                        sums[i] = *weight * run[i];
                    }
                }
                Ok(run) => {
                    for i in 0..PIECE {
                        sums[i] = sums[i] + *weight * run[i];
                    }
                }
                Err(_) => {
                    for (sum, value) in sums.iter_mut().zip(run) {
                        let product = *weight * *value;
                        *sum = if k == 0 { product } else { *sum + product };
                    }
                }
            }
        }
        out.copy_from_slice(&sums[..out.len()]);
        at += out.len();
    }
}

/// Variant for complex numbers as pairs, with complex weights.
#[inline(always)]
fn pairs<T: Real>(out: &mut [T], x: &[T], at: usize, taps: &Taps<T>, imaginary: &[T]) {
    let all = taps.offsets.iter().zip(taps.weights.iter().zip(imaginary));
    for (k, (offset, (re, im))) in all.enumerate() {
        let run = &x[at.wrapping_add_signed(*offset)..][..out.len()];
        for (sum, value) in out.chunks_exact_mut(2).zip(run.chunks_exact(2)) {
            let product = [*re * value[0] - *im * value[1], *re * value[1] + *im * value[0]];
            if k == 0 {
                sum.copy_from_slice(&product);
            } else {
                sum[0] = sum[0] + product[0];
                sum[1] = sum[1] + product[1];
            }
        }
    }
}

/// The largest `|new - old|` of a run of numbers, as `Real::magnitude`.
#[inline(always)]
pub(super) fn change<T: Real>(new: &[T], old: &[T]) -> i64 {
    // An integer maximum can be computed in any order, so vectors compute it; a float maximum has a
    // fixed order.
    let pairs = new.iter().zip(old);
    pairs.fold(0, |most, (new, old)| (*new - *old).magnitude().max(most))
}

/// Variant for complex numbers as pairs: the square of the modulus, with the bits of a float64.
#[inline(always)]
pub(super) fn change_of_pairs<T: Real>(new: &[T], old: &[T]) -> i64 {
    let mut most = 0;
    for (new, old) in new.chunks_exact(2).zip(old.chunks_exact(2)) {
        let (re, im) = ((new[0] - old[0]).wide(), (new[1] - old[1]).wide());
        most = (re * re + im * im).magnitude().max(most);
    }
    most
}
