//! NumPy's sort order as an order of unsigned integers (words).
//!
//! Problem: sorting and merging need a single comparison of plain integers; NumPy has floats with
//! NaNs and two zeros, complex numbers, dates.
//!
//! Approach: a number is replaced by a word of its width whose order as an unsigned integer is the
//! order of the numbers (`encode`). Each word corresponds to one bit pattern, so it can be
//! converted back (`decode`). Sorting, merging and selecting use only words, and so do sorted runs
//! on disk. Words with their original positions (`Words`), for `argsort`, need not be converted
//! back: there, all NaNs are one word, and both zeros are one word.
//!
//! Invariants: if NumPy's order distinguishes two elements, this order is the same: NaN last, NaT
//! last, complex numbers by real part, then imaginary part, those with a NaN after the others as
//! NumPy documents. Elements that NumPy considers equal, but that differ in their bits, have a
//! fixed order: -0.0 before 0.0, NaNs by their bits. A sorted array therefore depends on the
//! elements alone, not on the budget, nor on the rank that sorted each part.

use std::fmt::Debug;

use crate::simd::widest;

/// Comparison of elements.
pub trait Order: Send + Sync + 'static {
    /// The integer type of which an element consists.
    type Word: Word;
    /// An element.
    type Item: Copy + Send + Sync + Default + Debug;
    /// Integers as elements; an incomplete element at the end is omitted.
    fn items(words: &mut [Self::Word]) -> &mut [Self::Item];
    /// Elements as integers.
    fn words(items: &mut [Self::Item]) -> &mut [Self::Word];
    /// Returns whether `a` comes before `b` in a total order; equal elements have equal bits.
    fn before(a: Self::Item, b: Self::Item) -> bool;
    /// Returns `a` if `first`, else `b`, without a branch.
    fn choose(first: bool, a: Self::Item, b: Self::Item) -> Self::Item;
}

/// An unsigned integer that replaces an element.
pub trait Word: Copy + Send + Sync + Default + Debug + Ord + 'static {
    /// The sign bit.
    const SIGN: Self;
    /// Number of bit patterns of negative NaNs, for a float.
    const NANS: Self;
    /// The word of infinity.
    const INFINITY: Self;
    /// All ones.
    const LAST: Self;
    /// 1.
    const ONE: Self;
    /// The word as a number.
    fn wide(self) -> u64;
    /// All bits inverted.
    fn not(self) -> Self;
    /// Exclusive or.
    fn xor(self, other: Self) -> Self;
    /// Bitwise and.
    fn and(self, other: Self) -> Self;
    /// Addition, modulo the width.
    fn plus(self, other: Self) -> Self;
    /// Subtraction, modulo the width.
    fn minus(self, other: Self) -> Self;
}

macro_rules! word {
    ($word:ty, $fraction:expr) => {
        impl Word for $word {
            const SIGN: $word = 1 << (<$word>::BITS - 1);
            const NANS: $word = (1 << $fraction) - 1;
            const INFINITY: $word = <$word>::MAX - 2 * ((1 << $fraction) - 1);
            const LAST: $word = <$word>::MAX;
            const ONE: $word = 1;
            #[inline(always)]
            fn wide(self) -> u64 {
                u64::from(self)
            }
            #[inline(always)]
            fn not(self) -> $word {
                !self
            }
            #[inline(always)]
            fn xor(self, other: $word) -> $word {
                self ^ other
            }
            #[inline(always)]
            fn and(self, other: $word) -> $word {
                self & other
            }
            #[inline(always)]
            fn plus(self, other: $word) -> $word {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: $word) -> $word {
                self.wrapping_sub(other)
            }
        }
    };
}

/// Elements of one word, in the order of the words.
pub struct Plain<W>(std::marker::PhantomData<fn() -> W>);

impl<W: Word> Order for Plain<W> {
    type Word = W;
    type Item = W;
    fn items(words: &mut [W]) -> &mut [W] {
        words
    }
    fn words(items: &mut [W]) -> &mut [W] {
        items
    }
    #[inline(always)]
    fn before(a: W, b: W) -> bool {
        a < b
    }
    #[inline(always)]
    fn choose(first: bool, a: W, b: W) -> W {
        if first {
            a
        } else {
            b
        }
    }
}

// There are no floats of 8 bits; the constants, for three bits of fraction, are never used.
word!(u8, 3);
word!(u16, 10);
word!(u32, 23);
word!(u64, 52);

/// Several words, the first of which is most significant: a key, and its original position.
pub struct Words<W, const N: usize>(std::marker::PhantomData<fn() -> W>);

impl<W: Word, const N: usize> Order for Words<W, N>
where
    [W; N]: Default,
{
    type Word = W;
    type Item = [W; N];
    fn items(words: &mut [W]) -> &mut [[W; N]] {
        words.as_chunks_mut().0
    }
    fn words(items: &mut [[W; N]]) -> &mut [W] {
        items.as_flattened_mut()
    }
    #[inline(always)]
    fn before(a: [W; N], b: [W; N]) -> bool {
        // Without branches, which would not be predictable here.
        (0..N).rev().fold(false, |less, n| (a[n] < b[n]) | ((a[n] == b[n]) & less))
    }
    #[inline(always)]
    fn choose(first: bool, a: [W; N], b: [W; N]) -> [W; N] {
        let mask = if first { W::LAST } else { W::default() };
        std::array::from_fn(|n| b[n].xor(a[n].xor(b[n]).and(mask)))
    }
}

/// Complex numbers, both parts encoded as floats.
pub struct Complex<W>(std::marker::PhantomData<fn() -> W>);

/// The same word for all bit patterns of one number: one for both zeros, one for all NaNs.
#[inline(always)]
fn one_word<W: Word>(word: W) -> W {
    // Zero follows its negative.
    let zero = W::SIGN.minus(W::NANS);
    if word == zero.minus(W::ONE) {
        zero
    } else if word > W::INFINITY {
        W::LAST
    } else {
        word
    }
}

impl<W: Word> Complex<W> {
    /// The sort key of a complex number.
    ///
    /// Numbers without a NaN come first; among the others, those with a real part that is a number.
    #[inline(always)]
    fn key(item: [W; 2]) -> (bool, W, W) {
        let (re, im) = (one_word(item[0]), one_word(item[1]));
        (re == W::LAST || im == W::LAST, re, im)
    }
}

impl<W: Word> Order for Complex<W> {
    type Word = W;
    type Item = [W; 2];
    fn items(words: &mut [W]) -> &mut [[W; 2]] {
        words.as_chunks_mut().0
    }
    fn words(items: &mut [[W; 2]]) -> &mut [W] {
        items.as_flattened_mut()
    }
    #[inline(always)]
    fn before(a: [W; 2], b: [W; 2]) -> bool {
        (Self::key(a), a) < (Self::key(b), b)
    }
    #[inline(always)]
    fn choose(first: bool, a: [W; 2], b: [W; 2]) -> [W; 2] {
        if first {
            a
        } else {
            b
        }
    }
}

/// Interpretation of an element's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An unsigned integer, or a boolean.
    Unsigned,
    /// A signed integer.
    Signed,
    /// A float, or one part of a complex number.
    Float,
    /// A date or a duration: a signed integer, the smallest of which (NaT) comes last.
    Date,
}

/// Replaces elements by their words, in place.
pub fn encode<W: Word>(elements: &mut [W], kind: Kind) {
    if kind != Kind::Unsigned {
        widest(|| elements.iter_mut().for_each(|one| *one = word(*one, kind)));
    }
}

/// Replaces words by their elements, in place.
pub fn decode<W: Word>(words: &mut [W], kind: Kind) {
    if kind != Kind::Unsigned {
        widest(|| words.iter_mut().for_each(|one| *one = bits(*one, kind)));
    }
}

/// The word of an element.
#[inline(always)]
pub fn word<W: Word>(bits: W, kind: Kind) -> W {
    match kind {
        Kind::Unsigned => bits,
        Kind::Signed => bits.xor(W::SIGN),
        Kind::Date => bits.xor(W::SIGN).minus(W::ONE),
        // Negative numbers are reversed and come before the others; negative NaNs then move from
        // the front to the end.
        Kind::Float if bits >= W::SIGN => bits.not().minus(W::NANS),
        Kind::Float => bits.xor(W::SIGN).minus(W::NANS),
    }
}

/// The element of a word.
#[inline(always)]
pub fn bits<W: Word>(word: W, kind: Kind) -> W {
    match kind {
        Kind::Unsigned => word,
        Kind::Signed => word.xor(W::SIGN),
        Kind::Date => word.plus(W::ONE).xor(W::SIGN),
        Kind::Float => {
            let word = word.plus(W::NANS);
            if word >= W::SIGN {
                word.xor(W::SIGN)
            } else {
                word.not()
            }
        }
    }
}

/// The word of an element, equal for all bit patterns that NumPy considers equal.
#[inline(always)]
pub fn key<W: Word>(bits: W, kind: Kind) -> W {
    let word = word(bits, kind);
    match kind {
        Kind::Float => one_word(word),
        _ => word,
    }
}

/// Two words that order complex numbers as NumPy does.
///
/// They are equal for all bit patterns that NumPy considers equal.
#[inline(always)]
pub fn complex_key<W: Word>(re: W, im: W) -> [W; 2] {
    let (re, im) = (key(re, Kind::Float), key(im, Kind::Float));
    // Words above infinity are unused, except that of NaN.
    let behind = W::INFINITY.plus(W::ONE);
    match (re == W::LAST, im == W::LAST) {
        (false, false) => [re, im],
        (false, true) => [behind, re],
        (true, false) => [behind.plus(W::ONE), im],
        (true, true) => [W::LAST, W::LAST],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in NumPy's order; equal numbers in the order of their words.
    const NUMBERS: [f64; 9] =
        [f64::NEG_INFINITY, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, f64::INFINITY, f64::NAN];

    #[test]
    fn words_have_the_order_of_floats_and_turn_back() {
        let words = NUMBERS.map(|x| word(x.to_bits(), Kind::Float));
        assert!(words.is_sorted_by(|a, b| a < b));
        assert_eq!(NUMBERS.map(f64::to_bits), words.map(|one| bits(one, Kind::Float)));
        let negative = word((-f64::NAN).to_bits(), Kind::Float);
        assert!(negative > words[8]);
        assert_eq!((-f64::NAN).to_bits(), bits(negative, Kind::Float));
        for one in 0..=u16::MAX {
            assert_eq!(one, bits(word(one, Kind::Float), Kind::Float));
        }
    }

    #[test]
    fn all_patterns_of_16_bits_are_in_the_order_of_the_numbers() {
        // Converted to 32 bits, because Rust has no 16-bit floats.
        let number = |half: u16| {
            let sign = if half >> 15 == 1 { -1.0 } else { 1.0 };
            let (exponent, fraction) = (i32::from(half >> 10 & 31), f32::from(half & 1023));
            sign * match exponent {
                31 if fraction > 0.0 => f32::NAN,
                31 => f32::INFINITY,
                0 => fraction * 2f32.powi(-24),
                _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
            }
        };
        let mut all: Vec<u16> = (0..=u16::MAX).collect();
        all.sort_by_key(|half| word(*half, Kind::Float));
        let first_nan = all.iter().position(|half| number(*half).is_nan()).unwrap();
        assert!(all[..first_nan].is_sorted_by(|a, b| number(*a) <= number(*b)));
        assert!(all[first_nan..].iter().all(|half| number(*half).is_nan()));
        let keys: Vec<u16> = all.iter().map(|half| key(*half, Kind::Float)).collect();
        assert!(keys.is_sorted());
        assert_eq!(65536 - 2046 - 1 + 1, {
            let mut k = keys;
            k.dedup();
            k.len()
        });
    }

    #[test]
    fn integers_and_dates() {
        let order = |kind: Kind, all: [i64; 4]| {
            let mut words = all.map(|one| word(one as u64, kind));
            words.sort();
            words.map(|one| bits(one, kind) as i64)
        };
        assert_eq!([i64::MIN, -1, 0, 7], order(Kind::Signed, [7, 0, i64::MIN, -1]));
        // NaT is the smallest integer.
        assert_eq!(
            [i64::MIN + 1, -1, 7, i64::MIN],
            order(Kind::Date, [7, i64::MIN, i64::MIN + 1, -1])
        );
    }

    #[test]
    fn complex_numbers_are_in_the_order_of_numpy() {
        let all = [
            (-1.0, 5.0),
            (-0.0, -1.0),
            (0.0, 0.0),
            (-0.0, 1.0),
            (1.0, 0.0),
            (0.0, f64::NAN),
            (1.0, f64::NAN),
            (f64::NAN, -1.0),
            (-f64::NAN, 2.0),
            (f64::NAN, 3.0),
            (f64::NAN, f64::NAN),
        ];
        let words = all.map(|(re, im)| [re, im].map(|x: f64| word(x.to_bits(), Kind::Float)));
        assert!(words.is_sorted_by(|a, b| Complex::<u64>::before(*a, *b)));
        let keys = all.map(|(re, im): (f64, f64)| complex_key(re.to_bits(), im.to_bits()));
        assert!(keys.is_sorted_by(|a, b| a < b));
    }
}
