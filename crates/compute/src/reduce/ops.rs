//! Operations on two values.

/// An operation on two values.
pub trait Op: Sync {
    /// Type of elements.
    type In: Copy + Sync;
    /// Type of intermediate values.
    type Acc: Copy + Send + Sync;
    /// Type of results.
    type Out: Copy + Send;
    /// The neutral value.
    const IDENTITY: Self::Acc;
    /// Converts an element to a value.
    fn lift(x: Self::In) -> Self::Acc;
    /// Combines two values; the left one has the lower indices.
    fn merge(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// Converts a value to a result.
    fn seal(value: Self::Acc) -> Self::Out;
}

use std::marker::PhantomData;

/// Sum of elements, as values of type `A`.
#[derive(Debug)]
pub struct Sum<I, A>(PhantomData<(I, A)>);
/// Sum of the elements that are not NaN.
#[derive(Debug)]
pub struct NanSum<I, A>(PhantomData<(I, A)>);
/// Product.
#[derive(Debug)]
pub struct Prod<I, A>(PhantomData<(I, A)>);
/// Sum of squares, as values of type `A`.
#[derive(Debug)]
pub struct SumSquares<I, A>(PhantomData<(I, A)>);
/// The smallest element; NaN if any is NaN.
#[derive(Debug)]
pub struct Min<I>(PhantomData<I>);
/// The largest element; NaN if any is NaN.
#[derive(Debug)]
pub struct Max<I>(PhantomData<I>);
/// The smallest element that is not NaN; NaN if all are NaN.
#[derive(Debug)]
pub struct NanMin<I>(PhantomData<I>);
/// The largest element that is not NaN; NaN if all are NaN.
#[derive(Debug)]
pub struct NanMax<I>(PhantomData<I>);
/// Number of elements that are not zero.
#[derive(Debug)]
pub struct Nonzero<I>(PhantomData<I>);
/// Number of elements that are not NaN.
#[derive(Debug)]
pub struct Numbers<I>(PhantomData<I>);

/// Replaces every NaN by the same NaN, whatever its bits.
#[inline(always)]
pub(super) fn one_nan<T: Real>(x: T) -> T {
    if x.is_number() {
        x
    } else {
        T::NAN
    }
}

/// A floating type.
pub trait Real: Copy + Send + Sync {
    /// Not a number.
    const NAN: Self;
    /// Returns whether the value is not NaN.
    fn is_number(self) -> bool;
}

macro_rules! floating {
    ($($input:ty => $acc:ty),*) => {$(
        impl Op for Sum<$input, $acc> {
            type In = $input;
            type Acc = $acc;
            type Out = $acc;
            // -0.0 + x is x for any x; 0.0 + -0.0 is not.
            const IDENTITY: $acc = -0.0;
            #[inline(always)]
            fn lift(x: $input) -> $acc {
                x as $acc
            }
            #[inline(always)]
            fn merge(a: $acc, b: $acc) -> $acc {
                a + b
            }
            #[inline(always)]
            fn seal(value: $acc) -> $acc {
                // NumPy begins with 0.0, so a sum is never -0.0.
                one_nan(value + 0.0)
            }
        }
        impl Op for SumSquares<$input, $acc> {
            type In = $input;
            type Acc = $acc;
            type Out = $acc;
            const IDENTITY: $acc = -0.0;
            #[inline(always)]
            fn lift(x: $input) -> $acc {
                x as $acc * x as $acc
            }
            #[inline(always)]
            fn merge(a: $acc, b: $acc) -> $acc {
                a + b
            }
            #[inline(always)]
            fn seal(value: $acc) -> $acc {
                one_nan(value)
            }
        }
        impl Op for Prod<$input, $acc> {
            type In = $input;
            type Acc = $acc;
            type Out = $acc;
            const IDENTITY: $acc = 1.0;
            #[inline(always)]
            fn lift(x: $input) -> $acc {
                x as $acc
            }
            #[inline(always)]
            fn merge(a: $acc, b: $acc) -> $acc {
                a * b
            }
            #[inline(always)]
            fn seal(value: $acc) -> $acc {
                one_nan(value)
            }
        }
    )*};
}

floating!(
    f32 => f32, f32 => f64, f64 => f64, u64 => f64, i64 => f64
);

macro_rules! numbers_only {
    ($($input:ty => $acc:ty),*) => {$(
        impl Op for NanSum<$input, $acc> {
            type In = $input;
            type Acc = $acc;
            type Out = $acc;
            // NumPy replaces NaN by 0.0.
            const IDENTITY: $acc = -0.0;
            #[inline(always)]
            fn lift(x: $input) -> $acc {
                if x.is_nan() { 0.0 } else { x as $acc }
            }
            #[inline(always)]
            fn merge(a: $acc, b: $acc) -> $acc {
                a + b
            }
            #[inline(always)]
            fn seal(value: $acc) -> $acc {
                // NumPy begins with 0.0, so a sum is never -0.0.
                one_nan(value + 0.0)
            }
        }
    )*};
}

numbers_only!(f32 => f32, f64 => f64);

macro_rules! real {
    ($float:ty, $key:ty, $bits:ty) => {
        impl Real for $float {
            const NAN: $float = <$float>::NAN;
            #[inline(always)]
            fn is_number(self) -> bool {
                !self.is_nan()
            }
        }

        impl Key for $float {
            type Key = $key;
            const LOW: $key = <$key>::MIN;
            const HIGH: $key = <$key>::MAX;
            /// Integers in the order of the numbers.
            ///
            /// NaN is neither the lowest nor the highest of them.
            #[inline(always)]
            fn key(self) -> $key {
                let bits = self.to_bits() as $key;
                bits ^ ((bits >> (<$key>::BITS - 1)) & <$key>::MAX)
            }
            #[inline(always)]
            fn of(key: $key) -> $float {
                let bits = key ^ ((key >> (<$key>::BITS - 1)) & <$key>::MAX);
                one_nan(<$float>::from_bits(bits as $bits))
            }
            #[inline(always)]
            fn is_number(self) -> bool {
                !self.is_nan()
            }
        }
    };
}

real!(f32, i32, u32);
real!(f64, i64, u64);

/// A type whose values can be mapped to integers in the same order.
pub trait Key: Copy + Sync + Send {
    /// The type of the integers.
    type Key: Copy + Ord + Send + Sync;
    /// An integer below all values.
    const LOW: Self::Key;
    /// An integer above all values.
    const HIGH: Self::Key;
    /// The integer of a value.
    fn key(self) -> Self::Key;
    /// The value of an integer.
    fn of(key: Self::Key) -> Self;
    /// Returns whether the value is not NaN.
    fn is_number(self) -> bool;
}

macro_rules! integers {
    ($($int:ty => $wide:ty),*) => {$(
        impl Key for $int {
            type Key = $int;
            const LOW: $int = <$int>::MIN;
            const HIGH: $int = <$int>::MAX;
            #[inline(always)]
            fn key(self) -> $int {
                self
            }
            #[inline(always)]
            fn of(key: $int) -> $int {
                key
            }
            #[inline(always)]
            fn is_number(self) -> bool {
                true
            }
        }
        impl Op for Sum<$int, $wide> {
            type In = $int;
            type Acc = $wide;
            type Out = $wide;
            const IDENTITY: $wide = 0;
            #[inline(always)]
            fn lift(x: $int) -> $wide {
                x as $wide
            }
            #[inline(always)]
            fn merge(a: $wide, b: $wide) -> $wide {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn seal(value: $wide) -> $wide {
                value
            }
        }
        impl Op for Prod<$int, $wide> {
            type In = $int;
            type Acc = $wide;
            type Out = $wide;
            const IDENTITY: $wide = 1;
            #[inline(always)]
            fn lift(x: $int) -> $wide {
                x as $wide
            }
            #[inline(always)]
            fn merge(a: $wide, b: $wide) -> $wide {
                a.wrapping_mul(b)
            }
            #[inline(always)]
            fn seal(value: $wide) -> $wide {
                value
            }
        }
    )*};
}

integers!(
    u8 => u64, i8 => i64, u16 => u64, i16 => i64, u32 => u64, i32 => i64, u64 => u64, i64 => i64
);

macro_rules! extreme {
    ($name:ident, $start:ident, $nan:ident, $better:ident) => {
        impl<I: Key> Op for $name<I> {
            type In = I;
            type Acc = I::Key;
            type Out = I;
            const IDENTITY: I::Key = I::$start;
            #[inline(always)]
            fn lift(x: I) -> I::Key {
                if x.is_number() {
                    x.key()
                } else {
                    I::$nan
                }
            }
            #[inline(always)]
            fn merge(a: I::Key, b: I::Key) -> I::Key {
                a.$better(b)
            }
            #[inline(always)]
            fn seal(value: I::Key) -> I {
                I::of(value)
            }
        }
    };
}

// No number of a floating type has the keys at the ends: these represent "no number yet" and NaN.
extreme!(Min, HIGH, LOW, min);
extreme!(Max, LOW, HIGH, max);
extreme!(NanMin, HIGH, HIGH, min);
extreme!(NanMax, LOW, LOW, max);

/// A type that has a zero.
pub trait Truth: Copy + Sync {
    /// Returns whether the value is not zero.
    fn is_true(self) -> bool;
    /// Returns whether the value is not NaN.
    fn is_number(self) -> bool;
}

macro_rules! truth {
    ($($type:ty, $zero:expr);*) => {$(
        impl Truth for $type {
            #[inline(always)]
            fn is_true(self) -> bool {
                self != $zero
            }
            #[allow(clippy::eq_op)]
            #[inline(always)]
            fn is_number(self) -> bool {
                self == self
            }
        }
    )*};
}

truth!(u8, 0; u16, 0; u32, 0; u64, 0; f32, 0.0; f64, 0.0);

macro_rules! question {
    ($name:ident, $acc:ty, $identity:expr, $a:ident, $b:ident => $merge:expr, $ask:ident) => {
        impl<I: Truth> Op for $name<I> {
            type In = I;
            type Acc = $acc;
            type Out = $acc;
            const IDENTITY: $acc = $identity;
            #[inline(always)]
            fn lift(x: I) -> $acc {
                <$acc>::from(x.$ask())
            }
            #[inline(always)]
            fn merge($a: $acc, $b: $acc) -> $acc {
                $merge
            }
            #[inline(always)]
            fn seal(value: $acc) -> $acc {
                value
            }
        }
    };
}

question!(Nonzero, i64, 0, a, b => a + b, is_true);
question!(Numbers, i64, 0, a, b => a + b, is_number);
