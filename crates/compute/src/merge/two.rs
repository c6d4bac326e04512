//! A merge of two runs at four places concurrently.
//!
//! The next element is known only after the last comparison. The result is therefore cut in the
//! middle, and each half is merged from both ends: four independent chains of comparisons.

use crate::order::Order;

/// Minimum number of elements for which this pays off.
const SHORT: usize = 64;

/// Two runs, and their target.
struct Merge<'a, 'b, T> {
    a: &'a [T],
    b: &'a [T],
    to: &'b mut [T],
}

/// Merges `a` and `b`; among equal elements, those of `a` come first.
pub fn two<O: Order>(a: &[O::Item], b: &[O::Item], to: &mut [O::Item]) {
    if to.len() < SHORT {
        return Merge { a, b, to }.one_end::<O>();
    }
    let half = to.len() / 2;
    let (i, j) = cut::<O>(a, b, half);
    let (first, second) = to.split_at_mut(half);
    let mut first = Merge { a: &a[..i], b: &b[..j], to: first };
    let mut second = Merge { a: &a[i..], b: &b[j..], to: second };
    loop {
        let steps = first.steps().min(second.steps());
        if steps == 0 {
            break;
        }
        let mut one = Ends::new(&first);
        let mut other = Ends::new(&second);
        for step in 0..steps {
            one.step::<O>(&mut first, step);
            other.step::<O>(&mut second, step);
        }
        first.used(&one, steps);
        second.used(&other, steps);
    }
    first.both_ends::<O>();
    second.both_ends::<O>();
}

/// Number of elements of `a`, and of `b`, among the first `rank` elements.
fn cut<O: Order>(a: &[O::Item], b: &[O::Item], rank: usize) -> (usize, usize) {
    let (mut least, mut most) = (rank.saturating_sub(b.len()), rank.min(a.len()));
    while least < most {
        let middle = least + (most - least) / 2;
        // a[middle] is among them if fewer than rank - middle elements of b come before it.
        if O::before(b[rank - middle - 1], a[middle]) {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    (least, rank - least)
}

/// Number of elements taken from the front and from the back of the first run.
struct Ends {
    front: usize,
    back: usize,
    a: usize,
    b: usize,
    to: usize,
}

impl Ends {
    #[inline(always)]
    fn new<T>(merge: &Merge<'_, '_, T>) -> Ends {
        Ends { front: 0, back: 0, a: merge.a.len(), b: merge.b.len(), to: merge.to.len() }
    }

    /// Places the next element at the front, and the next one at the back.
    #[inline(always)]
    fn step<O: Order>(&mut self, merge: &mut Merge<'_, '_, O::Item>, step: usize) {
        let (a, b) = (merge.a[self.front], merge.b[step - self.front]);
        let is_b = O::before(b, a);
        merge.to[step] = O::choose(is_b, b, a);
        self.front += usize::from(!is_b);
        let (a, b) = (merge.a[self.a - 1 - self.back], merge.b[self.b - 1 - (step - self.back)]);
        let is_a = O::before(b, a);
        merge.to[self.to - 1 - step] = O::choose(is_a, a, b);
        self.back += usize::from(is_a);
    }
}

impl<T: Copy> Merge<'_, '_, T> {
    /// Number of steps from both ends during which neither run can be used up.
    #[inline(always)]
    fn steps(&self) -> usize {
        self.a.len().min(self.b.len()) / 2
    }

    fn used(&mut self, ends: &Ends, steps: usize) {
        self.a = &self.a[ends.front..self.a.len() - ends.back];
        self.b = &self.b[steps - ends.front..self.b.len() - (steps - ends.back)];
        let to = std::mem::take(&mut self.to);
        let len = to.len();
        self.to = &mut to[steps..len - steps];
    }

    fn both_ends<O: Order<Item = T>>(mut self) {
        loop {
            let steps = self.steps();
            if steps < 4 {
                break;
            }
            let mut ends = Ends::new(&self);
            for step in 0..steps {
                ends.step::<O>(&mut self, step);
            }
            self.used(&ends, steps);
        }
        self.one_end::<O>();
    }

    fn one_end<O: Order<Item = T>>(self) {
        let (mut i, mut j) = (0, 0);
        while i < self.a.len() && j < self.b.len() {
            let (a, b) = (self.a[i], self.b[j]);
            let is_b = O::before(b, a);
            self.to[i + j] = O::choose(is_b, b, a);
            i += usize::from(!is_b);
            j += usize::from(is_b);
        }
        let (a, b) = (&self.a[i..], &self.b[j..]);
        let rest = &mut self.to[i + j..];
        rest[..a.len()].copy_from_slice(a);
        rest[a.len()..].copy_from_slice(b);
    }
}
