//! Writes of a value of another type.
//!
//! Problem. The caller (NumPy) casts whole arrays; a copy of the whole value would exceed the memory budget.
//! A buffer that each thread takes before its write waits for a turn is held during the wait: together such
//! buffers fill the budget, and no thread can continue.
//!
//! Idea. The value is cast part by part: into a buffer, and written from there. A part is one turn at the
//! memory (`admission.rs`), and its buffer is taken and released inside the turn. Parts consist of whole
//! shards, or otherwise whole chunks, if the buffer and the write of one of them fit the budget: a chunk that
//! is cut is read, decoded, encoded and stored once for each part.
//!
//! Invariants. The buffer and the buffers of the write itself together stay within the budget. If the turn of
//! a part begins again, it continues after the pieces that are written; a piece that is written twice gets
//! the same bytes.

use outcore_io::exec::User;
use outcore_io::pool::PAGE;
use outcore_io::Arena;
use outcore_plan::{Chunked, Direction, Layout, Order, PlanError, Section, Slab, Slabs};

use crate::admission::{self, Mode};
use crate::error::Fault;
use crate::hints::Hints;
use crate::interrupt::Interrupts;
use crate::loops::{self, Promise};
use crate::open::Open;
use crate::step::Access;
use crate::terms;

/// Bytes that are cast before they are written: they should still be in the processor's cache at the write.
const AT_ONCE: i64 = 4 << 20;

/// Amount of a part that was written before its turn had to begin again.
#[derive(Default)]
struct Written {
    /// Elements of the buffer.
    limit: i64,
    pieces: usize,
}

/// Casts a box of the value into memory that begins with the box's first element.
pub type Assign<'a> = dyn Fn(&Piece<'_>, &mut [u8]) -> Result<(), Fault> + 'a;

/// A box of elements of a value, and the layout of the memory into which it is cast.
pub struct Piece<'a> {
    /// Bytes from the value's element for the first index of the section to the first element of the box.
    pub shift: i64,
    /// Elements per axis.
    pub count: &'a [i64],
    /// Byte strides of the cast elements.
    pub strides: &'a [i64],
}

/// A write of a value into an array of another type.
pub struct Cast<'a> {
    /// The array.
    pub open: &'a Open,
    /// Its hints.
    pub hints: &'a Hints,
    /// Byte strides of the value along the axes of the section.
    pub strides: &'a [i64],
    /// Casts a part of the value.
    pub assign: &'a Assign<'a>,
}

impl Cast<'_> {
    /// Writes a section of `size` elements.
    ///
    /// # Errors
    /// The errors of a write of the section; a refusal of memory comes before the first byte is written.
    pub fn write(
        &self,
        section: &Section,
        size: i64,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        let done = self.write_parts(section, size, interrupts);
        done.map_err(|fault| {
            let cast = self.open.described.item().max(PAGE as i64);
            fault.at_least(self.open.enough(Direction::Write, self.hints, cast))
        })
    }

    fn write_parts(
        &self,
        section: &Section,
        size: i64,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        let mut limit = self.elements(section, Arena::global().limit()).min(size);
        self.open.write_in_parts(|| {
            let most = limit;
            let _promise = self.assure(section, (most, size), interrupts)?;
            self.each_part(section, most, &mut |part| {
                let mut written = Written::default();
                admission::in_turn(interrupts, || {
                    limit = self.part(part, limit, &mut written, Mode::Nested, interrupts)?;
                    Ok(())
                })?;
                interrupts.stop()
            })
        })
    }

    /// Makes sure, before the first byte is written, that no part is refused memory for good. Usually enough
    /// memory is free for any part; otherwise all parts are checked first.
    fn assure(
        &self,
        section: &Section,
        (most, size): (i64, i64),
        interrupts: &dyn Interrupts,
    ) -> Result<Promise, Fault> {
        let free = || terms::budget(self.hints);
        let item = terms::pages(self.open.described.item());
        let one = self.open.least(Direction::Write).saturating_add(item);
        let promise = loops::promise(one);
        if size <= most && free() >= one {
            return Ok(promise);
        }
        drop(promise);
        let mut promise = loops::promise(0);
        admission::in_turn(interrupts, || {
            let least = self.open.least_to_cast(size)?;
            promise = loops::promise(least.min(free()));
            let mut limit = most;
            match free() >= least {
                true => Ok(()),
                false => self.each_part(section, most, &mut |part| {
                    let mut written = Written::default();
                    limit = self.part(part, limit, &mut written, Mode::Look, interrupts)?;
                    Ok(())
                }),
            }
        })?;
        Ok(promise)
    }

    /// Returns the grids whose cells should not be cut, the coarse one first.
    fn grids(&self) -> impl Iterator<Item = &Chunked> {
        let chunks = match &self.open.described.layout {
            Layout::Chunked(chunked) => Some(chunked),
            Layout::Strided(_) => None,
        };
        let shards = self.open.shards();
        let encoded = chunks.filter(|chunked| chunked.encoded || shards.is_some());
        shards.into_iter().chain(encoded)
    }

    /// Returns the number of elements of the section in a cell of each grid, the coarse grid first.
    fn cells<'a>(&'a self, section: &'a Section) -> impl Iterator<Item = (&'a Chunked, i64)> + 'a {
        self.grids().map(|grid| {
            let along = section.ranges().iter().zip(&grid.chunk);
            let held = along.map(|(range, n)| range.count.min((n - 1) / range.step + 1).max(1));
            (grid, held.fold(1, i64::saturating_mul))
        })
    }

    /// Returns how many elements are cast in one piece if `free` bytes are free: the cast gets a quarter at
    /// most, the write the rest. A chunk, or a shard, should not be cut.
    fn elements(&self, section: &Section, free: u64) -> i64 {
        let item = self.open.described.item().max(1);
        let free = self.hints.memory.map_or(free, |hint| hint.min(free));
        let free = i64::try_from(free).unwrap_or(i64::MAX);
        let usual = ((free / 4).min(AT_ONCE) / item).max(1);
        // If the write needs more than that, the write reports it.
        let most = (free - self.open.least(Direction::Write)).max(free / 4 * 3) / item;
        let mut whole = self.cells(section).map(|(_, cell)| cell);
        whole.find(|cell| *cell <= most).map_or(usual, |cell| cell.max(usual))
    }

    /// Returns the next smaller number of elements to try.
    fn fewer(&self, section: &Section, limit: i64) -> i64 {
        let least = (PAGE as i64 / self.open.described.item().max(1)).max(1);
        let mut whole = self.cells(section).map(|(_, cell)| cell);
        whole.find(|cell| *cell < limit).map_or(limit / 4, |cell| cell.max(limit / 4)).max(least)
    }

    /// Calls `work` for parts of at most `limit` elements. Parts consist of whole shards or chunks, if one of
    /// these has no more elements than that.
    fn each_part(
        &self,
        section: &Section,
        limit: i64,
        work: &mut dyn FnMut(&Slab) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let fortran = self.open.described.fortran;
        let Some((grid, cell)) = self.cells(section).find(|(_, cell)| *cell <= limit) else {
            let order = if fortran { Order::F } else { Order::C };
            let axes = order.fastest_first(section.ndim());
            return Slabs::of_elements(section, axes, limit).try_for_each(|slab| work(&slab));
        };
        grid.batches(section, limit / cell)?.try_for_each(|slab| work(&slab))
    }

    /// Casts and writes one part, in smaller parts if other accesses hold much of the memory for long, or if
    /// the write leaves little memory for the cast. Returns the number of elements to begin with next time.
    fn part(
        &self,
        part: &Slab,
        most: i64,
        written: &mut Written,
        mode: Mode,
        interrupts: &dyn Interrupts,
    ) -> Result<i64, Fault> {
        admission::refuse_crumbs(self.hints)?;
        let page = PAGE as i64;
        let now = self.elements(&part.section, Arena::global().available());
        let cuts = self.cells(&part.section).any(|(_, cell)| now < cell && cell <= most);
        if cuts && !admission::is_alone() {
            return Err(admission::crumbs());
        }
        let mut limit = most.min(now);
        loop {
            let bytes = limit.saturating_mul(self.open.described.item());
            if written.limit != limit {
                *written = Written { limit, pieces: 0 };
            }
            match self.pieces(part, written, mode, interrupts) {
                Err(refused) if refused.is_about_memory() => {
                    if bytes <= page || limit == 1 {
                        let whole = bytes.saturating_add(page - 1) & -page;
                        // Another part may need more memory: this amount is enough for all of them.
                        let refused = self.admits(&self.beside(bytes), 0).err().unwrap_or(refused);
                        return Err(refused.beside("the cast", whole));
                    }
                    if !admission::is_alone() {
                        return Err(refused);
                    }
                }
                // Other accesses may have released their memory before the next part.
                other => return other.map(|()| if now < most { most } else { limit }),
            }
            limit = self.fewer(&part.section, limit);
        }
    }

    /// Casts and writes the rest of one part, or checks whether its buffer would be enough.
    fn pieces(
        &self,
        slab: &Slab,
        written: &mut Written,
        mode: Mode,
        interrupts: &dyn Interrupts,
    ) -> Result<(), Fault> {
        let limit = written.limit;
        let bytes = limit.min(slab.section.shape().iter().product::<i64>());
        let bytes = bytes.saturating_mul(self.open.described.item());
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut buffer = Arena::global().buffer("casting a value", length).map_err(|refused| {
            Fault::from(refused).beside("the write", self.open.least(Direction::Write))
        })?;
        let hints = self.beside(bytes);
        let cut = self.cells(&slab.section).any(|(_, cell)| limit < cell);
        if mode == Mode::Look && cut {
            // If a chunk is missing now, the first piece creates it, and the second piece finds it.
            return self.admits(&hints, terms::pages(bytes));
        }
        let mut number = 0;
        self.each_part(&slab.section, limit, &mut |piece| {
            number += 1;
            if number <= written.pieces {
                return Ok(());
            }
            let first = |at: &[i64]| -> i64 {
                at.iter().zip(self.strides).map(|(n, stride)| n * stride).sum()
            };
            let shift = first(&slab.at) + first(&piece.at);
            let count = piece.section.shape();
            let strides = self.open.described.packed(&count);
            if mode != Mode::Look {
                let part = Piece { shift, count: &count, strides: &strides };
                (self.assign)(&part, buffer.as_mut_slice())?;
            }
            let access = Access {
                direction: Direction::Write,
                section: &piece.section,
                strides: &strides,
                data: User::of(buffer.as_mut_slice(), 0),
                hints: &hints,
            };
            if mode == Mode::Look {
                return self.open.look(&access, interrupts);
            }
            self.open.run_nested(&access, interrupts)?;
            written.pieces = number;
            Ok(())
        })
    }

    /// Returns the hints of a write that runs while a buffer is held: the limit of one operation covers the
    /// cast and the write.
    fn beside(&self, bytes: i64) -> Hints {
        let rounded = u64::try_from(terms::pages(bytes)).unwrap_or(u64::MAX);
        let memory = self.hints.memory.map(|hint| hint.saturating_sub(rounded));
        Hints { memory, ..self.hints.clone() }
    }

    /// Returns an error if a write of any part of a chunk would; `ours` is the number of bytes that the cast
    /// holds.
    fn admits(&self, hints: &Hints, ours: i64) -> Result<(), Fault> {
        let (needed, budget) = (self.open.least(Direction::Write), terms::budget(hints));
        if needed <= budget {
            return Ok(());
        }
        let error = PlanError::BudgetTooSmall { what: "a part of a chunk", needed, budget };
        Err(terms::refused(error, hints, ours).into())
    }
}

#[cfg(test)]
mod tests;
