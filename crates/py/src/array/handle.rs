//! The open state of an array, and its writes that no flush has covered yet.
//!
//! The metadata may change while other threads access the array (`append`, `resize`). The open state is then
//! replaced ([`Handle::adopt`]) and, if accesses still run on it or a flush is due, retired: it is flushed
//! with the rest, and dropped once it is idle. So a flush covers every write that returned before, in the
//! current or in a retired state.
//!
//! Invariants. `state` is locked only for short sections that hold the GIL, so a fork (which holds the GIL as
//! well) never finds it locked. After a fork the child opens the files again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outcore_access::{Hints, InParts};
use outcore_io::process;
use outcore_plan::Method;
use pyo3::prelude::*;

use crate::errors::{Class, Fault};
use crate::layout::describe;
use crate::open::{Held, Open};

/// An array as it was opened. A copy shares the open state, and the writes that are not flushed yet.
#[derive(Clone)]
pub struct Handle {
    pub(super) path: String,
    pub(super) writable: bool,
    pub(super) hints: Hints,
    state: Arc<Mutex<State>>,
    /// Number of writes that ended.
    pub(super) written: Arc<AtomicU64>,
    /// Number of these writes that are on the disk.
    safe: Arc<AtomicU64>,
}

enum State {
    Open {
        current: Arc<Open>,
        /// States from before the metadata changed. Only a flush still uses them.
        retired: Vec<Arc<Open>>,
    },
    Closed,
}

impl Handle {
    pub(super) fn new(open: Open, path: String, writable: bool, hints: Hints) -> Handle {
        let state = State::Open { current: Arc::new(open), retired: Vec::new() };
        let (state, written, safe) = (Arc::new(Mutex::new(state)), Arc::default(), Arc::default());
        Handle { path, writable, hints, state, written, safe }
    }

    /// See `Array.sieving`.
    pub(super) fn sieving(&self) -> Handle {
        Handle { hints: self.sieving_hints(), ..self.clone() }
    }

    /// See `Array.adopt`.
    pub(super) fn adopt(&self, info: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.closed() {
            return Ok(()); // Closed by another thread.
        }
        let described = Arc::new(describe(info)?);
        let fresh = Arc::new(self.open()?.beside(described, self.writable)?);
        // Dropped after the lock is released: the drop may run Python code.
        let mut gone = Vec::new();
        if let State::Open { current, retired } = &mut *self.lock() {
            retired.push(std::mem::replace(current, fresh));
            if !self.owes() {
                gone.extend(retired.extract_if(.., |open| is_idle(open)));
            }
        }
        drop(gone);
        Ok(())
    }

    /// See `Array.before_flush`.
    pub(super) fn before_flush(
        &self,
        py: Python<'_>,
        send: bool,
    ) -> PyResult<(u64, Option<(i64, i64)>)> {
        if self.closed() {
            return Ok((0, None)); // The flush will report that.
        }
        let written = self.written.load(Ordering::SeqCst);
        let file = self.open_for_writing()?.before_flush(py, send)?;
        let lone = matches!(&*self.lock(), State::Open { retired, .. } if retired.is_empty());
        let words = |(device, inode): (u64, u64)| (device.cast_signed(), inode.cast_signed());
        Ok((written, file.filter(|_| lone).map(words)))
    }

    /// See `Array.flushed_by_another`.
    pub(super) fn flushed_by_another(&self, written: u64) -> PyResult<()> {
        if !self.closed() {
            self.open()?.flushed_by_another();
        }
        self.safe.fetch_max(written, Ordering::SeqCst);
        Ok(())
    }

    /// See `Array.flush`.
    pub(super) fn flush(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        if self.closed() && !self.owes() {
            return Ok(());
        }
        let current = self.open_for_writing().map_err(|fault| match self.closed() {
            true => self.closed_too_early(),
            false => fault,
        })?;
        let written = self.written.load(Ordering::SeqCst);
        // States that are idle now will not be written to any more.
        let retired: Vec<(bool, Arc<Open>)> = match &*self.lock() {
            State::Open { retired, .. } => {
                retired.iter().map(|open| (is_idle(open), open.clone())).collect()
            }
            State::Closed => return Err(self.closed_too_early().into()),
        };
        let mut result = current.flush(py, durable);
        for (_, open) in &retired {
            result = result.and(open.flush(py, durable));
        }
        result?;
        if durable {
            self.safe.fetch_max(written, Ordering::SeqCst);
            // They are dropped with `retired`, after the lock is released.
            if let State::Open { retired: kept, .. } = &mut *self.lock() {
                let gone = |open: &Arc<Open>| {
                    retired.iter().any(|(idle, other)| *idle && Arc::ptr_eq(open, other))
                };
                kept.retain(|open| !gone(open));
            }
        }
        Ok(())
    }

    /// See `Array.close`.
    pub(super) fn close(&self) {
        let open = std::mem::replace(&mut *self.lock(), State::Closed);
        drop(open); // After the lock is released: the drop may run Python code.
    }

    /// See `Array.closed`.
    pub(super) fn closed(&self) -> bool {
        matches!(*self.lock(), State::Closed)
    }

    /// Returns whether a write ended that no flush has covered.
    fn owes(&self) -> bool {
        self.safe.load(Ordering::SeqCst) < self.written.load(Ordering::SeqCst)
    }

    fn closed_too_early(&self) -> Fault {
        let path = &self.path;
        let text = format!(
            "'{path}' was closed, perhaps by another thread, before its writes were flushed; they \
             may not be on the disk yet. Call flush() before close(); if a crash of the machine \
             must not lose the data, open the array again with outcore.open() and write the data \
             again."
        );
        Fault::new(Class::Usage, "closed", text).at(path)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self) -> Result<Arc<Open>, Fault> {
        let mut state = self.lock();
        let State::Open { current, retired } = &mut *state else {
            let path = &self.path;
            let text = format!("'{path}' is closed; open it again with outcore.open()");
            return Err(Fault::new(Class::Usage, "closed", text).at(path));
        };
        if current.pid == process::id() {
            return Ok(current.clone());
        }
        // In a forked child, locks inside the parent's tables may have been held at the fork, and dropping
        // the tables could use these locks. So the tables are kept: a few descriptors for the child's
        // lifetime.
        let fresh = Arc::new(Open::new(current.described.clone(), self.writable)?);
        std::mem::forget(std::mem::replace(current, fresh.clone()));
        std::mem::forget(std::mem::take(retired));
        Ok(fresh)
    }

    pub(super) fn open_for_writing(&self) -> Result<Arc<Open>, Fault> {
        if self.writable {
            return self.open();
        }
        let path = &self.path;
        let text = format!("'{path}' was opened with mode 'r'; use 'r+' to write");
        Err(Fault::new(Class::Usage, "read-only", text).at(path))
    }

    /// Changes the open state; the change counts as a write.
    pub fn changed(&self, work: impl FnOnce(&Open, &Hints) -> PyResult<()>) -> PyResult<()> {
        let open = self.open_for_writing()?;
        let done = work(&open, &self.hints);
        // Before `open` is released, so that a write to an idle state is counted.
        self.written.fetch_add(1, Ordering::SeqCst);
        done
    }

    /// Returns the data that an owner uses in other threads; `exclusive` as specified for this array alone.
    pub fn held(&self) -> Result<Held, Fault> {
        let (hints, written) = (self.hints.clone(), self.written.clone());
        let exclusive = hints.exclusive;
        Ok(Held { open: self.open()?, hints, exclusive, written, whole: InParts::default() })
    }

    /// Returns the path of the array.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the hints of reads through windows.
    pub fn sieving_hints(&self) -> Hints {
        Hints { method: Some(Method::Window), ..self.hints.clone() }
    }

    /// Returns the hints of the user for this array.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }
}

/// Returns whether nothing uses a retired state; then nothing will use it again.
fn is_idle(open: &Arc<Open>) -> bool {
    Arc::strong_count(open) == 1
}
