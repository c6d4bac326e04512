//! Execution of a pass: its bands, on as many lanes as the scratch memory allows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use outcore_io::cpu::side_by_side;

use super::sums::Real;
use super::sweep::{lock, Refused, Shared, Sweep};
use super::tile::Lane;

impl<T: Real> Sweep<T> {
    /// Advances all levels by the positions `[from, to)`.
    ///
    /// `new` has the rows `[from, to)` that are in the array. `out` receives the rows of the last
    /// level that `ready(from, to)` returns. `kept` is the state between calls; the size of
    /// `scratch` determines the number of lanes. `changes` has the largest change of each step so
    /// far, and is updated; it is ignored if the pass is not measured.
    pub fn run(
        &self,
        new: &[T],
        out: &mut [T],
        kept: &mut [T],
        scratch: &mut [T],
        changes: &mut [f64],
        (from, to): (i64, i64),
    ) -> Result<(), Refused> {
        let row = self.strides[0];
        let rows = |from: i64, to: i64| (to - from).max(0) as usize * row;
        let (first, last) = self.ready(from, to);
        let fits = (0..=to).contains(&from)
            && to <= self.positions()
            && new.len() == rows(from, to.min(self.shape[0]))
            && out.len() == rows(first, last)
            && kept.len() >= self.kept()
            && scratch.len() >= self.scratch()
            && (self.measured.is_none() || changes.len() == self.levels);
        if !fits {
            return Err(Refused("blocks do not match the rows of a pass"));
        }
        let bands = ((to - from + self.rows - 1) / self.rows) as usize;
        let cells =
            (0..self.tiles()).flat_map(|tile| (0..self.levels).map(move |level| (tile, level)));
        let lengths = cells.map(|(tile, level)| self.kept_rows() * self.kept_row(tile, level));
        let outs = (0..bands).map(|band| {
            let (first, last) = self.band(band, from, to);
            let (first, last) = self.ready(first, last);
            rows(first, last)
        });
        let shared = Shared {
            new,
            from,
            to,
            cells: divided(kept, lengths),
            out: divided(out, outs),
            done: (0..bands).map(|_| AtomicUsize::new(0)).collect(),
            next: AtomicUsize::new(0),
            changes: Mutex::new(changes),
        };
        let scratches: Mutex<Vec<&mut [T]>> =
            Mutex::new(scratch.chunks_exact_mut(self.scratch()).collect());
        let lanes = lock(&scratches).len().min(bands.max(1));
        side_by_side(lanes, &|_| {
            let Some(scratch) = lock(&scratches).pop() else { return };
            let mut lane = Lane::new(self, scratch);
            loop {
                let band = shared.next.fetch_add(1, Ordering::Relaxed);
                if band >= bands {
                    break;
                }
                lane.band(&shared, band);
            }
            if self.measured.is_some() {
                let mut changes = lock(&shared.changes);
                for (most, bits) in changes.iter_mut().zip(&lane.changes) {
                    let change = self.change_of(*bits);
                    // NaN is preserved.
                    if change.is_nan() || change > *most {
                        *most = change;
                    }
                }
            }
        });
        Ok(())
    }

    fn change_of(&self, bits: i64) -> f64 {
        match self.width {
            1 => T::of_magnitude(bits),
            _ => f64::of_magnitude(bits).sqrt(),
        }
    }
}

/// Divides memory into consecutive parts of these lengths.
fn divided<T>(mut memory: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<Mutex<&mut [T]>> {
    let part = |length: usize| {
        let (part, rest) = std::mem::take(&mut memory).split_at_mut(length);
        memory = rest;
        Mutex::new(part)
    };
    lengths.map(part).collect()
}
