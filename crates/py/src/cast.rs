//! Writing a value of another type.
//!
//! Problem. NumPy casts whole arrays; a copy of the whole value would break the memory promise. And a
//! buffer that is taken before the write waits for its turn is held while it waits, by each thread:
//! together they fill the budget, and nobody can go on.
//!
//! Idea. Slab by slab: cast into a buffer, write from there. A slab is one turn at the memory
//! (`gate.rs`), and its buffer is taken and given back inside of the turn. NumPy lets go of the GIL
//! while it casts numbers, so threads cast side by side.
//!
//! Invariants. The buffer and the buffers of the write itself stay within the budget together. A slab
//! that is done twice writes the same bytes.

use std::sync::Arc;

use numpy::PyArrayDescr;
use outcore_io::pool::PAGE;
use outcore_io::{Arena, StorageError};
use outcore_plan::{Direction, Layout, Section};
use pyo3::prelude::*;

use crate::access::{Access, Open};
use crate::array::packed;
use crate::buffers::{self, Memory};
use crate::errors::Fault;
use crate::gate;
use crate::hints::Wishes;
use crate::interrupt::Interrupts;
use crate::key::Walk;
use crate::layout::Described;
use crate::nesting;
use crate::slabs::{self, Slab};

/// Bytes that are cast before they are written: they should still be in the processor's cache then.
const AT_ONCE: i64 = 4 << 20;

/// A value on its way into an array of another type.
pub struct Cast<'a> {
    /// The array.
    pub described: &'a Described,
    /// Its hints.
    pub wishes: &'a Wishes,
    /// Its files.
    pub open: &'a Arc<Open>,
    /// The value's first element.
    pub data: *mut u8,
    /// How to walk over the value along the axes of the section.
    pub walk: Walk,
    /// The type of the value.
    pub from: Py<PyArrayDescr>,
}

// SAFETY: `data` is an address; the value behind it is referenced by the Python frame that waits.
unsafe impl Send for Cast<'_> {}
// SAFETY: as above; the value is only read.
unsafe impl Sync for Cast<'_> {}

impl Cast<'_> {
    /// Writes a section of `size` elements.
    pub fn write(&self, py: Python<'_>, section: &Section, size: i64) -> Result<(), Fault> {
        let (layout, fortran) = (&self.described.layout, self.described.fortran);
        let limit = self.elements(Arena::global().limit()).min(size);
        self.open.write_in_parts(py, |interrupts| {
            for slab in slabs::cut(section, layout, fortran, limit) {
                let slab = slab?;
                gate::in_turn(interrupts, || self.slab(&slab, limit, interrupts))?;
                if interrupts.check() {
                    return Err(StorageError::Cancelled.into());
                }
            }
            Ok(())
        })
    }

    /// Elements that are cast at once where so many bytes are free: a quarter for the cast, the
    /// rest for the write. But chunks are better not cut.
    fn elements(&self, free: u64) -> i64 {
        let chunk = match &self.described.layout {
            Layout::Strided(_) => 0,
            Layout::Chunked(chunked) => chunked.chunk_bytes(),
        };
        let free = self.wishes.memory.map_or(free, |wish| wish.min(free));
        let quarter = i64::try_from(free / 4).unwrap_or(i64::MAX);
        (quarter.min(AT_ONCE.max(chunk)) / self.described.item().max(1)).max(1)
    }

    /// Casts and writes one slab, in smaller ones if others hold much of the memory for long, or if
    /// the write leaves little room for the cast.
    fn slab(&self, slab: &Slab, limit: i64, interrupts: &Interrupts) -> Result<(), Fault> {
        gate::refuse_crumbs(self.wishes)?;
        let page = PAGE as i64;
        let mut limit = limit.min(self.elements(Arena::global().available()));
        loop {
            let bytes = limit.saturating_mul(self.described.item());
            match self.pieces(slab, limit, interrupts) {
                Err(refused) if refused.is_about_memory() => {
                    if bytes <= page || limit == 1 {
                        let whole = bytes.saturating_add(page - 1) & -page;
                        return Err(refused.beside("the cast", whole));
                    }
                    if !gate::is_alone() {
                        return Err(refused);
                    }
                }
                other => return other,
            }
            limit = (limit / 4).max(page / self.described.item().max(1)).max(1);
        }
    }

    /// Casts and writes one slab with a buffer of `limit` elements.
    fn pieces(&self, slab: &Slab, limit: i64, interrupts: &Interrupts) -> Result<(), Fault> {
        let bytes = limit.min(slab.count.iter().product::<i64>());
        let bytes = bytes.saturating_mul(self.described.item());
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let buffer = Arena::global().buffer("casting a value", bytes).map_err(|refused| {
            Fault::from(refused).beside("the write", self.open.least(Direction::Write))
        })?;
        // What one operation may hold is for both, the cast and the write.
        let mut wishes = self.wishes.clone();
        let rounded = bytes.next_multiple_of(PAGE) as u64;
        wishes.memory = wishes.memory.map(|wish| wish.saturating_sub(rounded));
        let (layout, fortran) = (&self.described.layout, self.described.fortran);
        for piece in slabs::cut(&slab.section, layout, fortran, limit) {
            let piece = piece?;
            let first = |lo: &[i64]| -> i64 {
                lo.iter().zip(&self.walk.strides).map(|(n, stride)| n * stride).sum()
            };
            let shift = self.walk.shift + first(&slab.lo) + first(&piece.lo);
            let strides = packed(&piece.count, self.described.item(), fortran);
            let source = Memory {
                data: self.data.wrapping_offset(shift as isize),
                strides: self.walk.strides.clone(),
            };
            let target = Memory { data: buffer.as_ptr(), strides };
            // SAFETY: `source` walks over elements of the value, which outlives this; `target` is
            // packed into `buffer`, which holds `limit` elements, and no piece has more.
            unsafe { self.assign(&source, &target, &piece.count) }?;
            let access = Access {
                direction: Direction::Write,
                section: &piece.section,
                strides: &target.strides,
                data: target.data,
                wishes: &wishes,
            };
            self.open.run_nested(&access, interrupts)?;
        }
        Ok(())
    }

    /// NumPy's assignment between two pieces of memory.
    ///
    /// # Safety
    /// Both must hold `count` elements, of the value's and the array's type.
    unsafe fn assign(&self, from: &Memory, to: &Memory, count: &[i64]) -> PyResult<()> {
        nesting::python(|py| {
            // SAFETY: the caller's promise; the views end here.
            unsafe {
                let from = buffers::view(py, from, count, self.from.bind(py))?;
                let to = buffers::view(py, to, count, self.described.dtype.bind(py))?;
                buffers::assign(&to, &from)
            }
        })
    }
}
