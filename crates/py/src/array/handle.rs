//! What of an array is open, and which writes to it no flush has covered.
//!
//! The metadata may change under the accesses of other threads (`append`, `resize`). What is open
//! then is replaced ([`Handle::adopt`]) and, if accesses still run on it or a flush is due, retired: it
//! is flushed with the rest, and goes once it is idle. So a flush covers every write that returned
//! before, whichever of them it went to.
//!
//! Invariants. `state` is locked only for moments in which the GIL is held, so a fork (which holds the GIL
//! as well) never finds it locked. After a fork the child opens the files anew.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outcore_access::{Hints, InParts};
use outcore_io::process;
use outcore_plan::Method;
use pyo3::prelude::*;

use crate::errors::{Class, Fault};
use crate::layout::describe;
use crate::open::{Held, Open};

/// An array as it was opened. A copy shares what is open, and what is owed.
#[derive(Clone)]
pub struct Handle {
    pub(super) path: String,
    pub(super) writable: bool,
    pub(super) hints: Hints,
    state: Arc<Mutex<State>>,
    /// Writes that ended.
    pub(super) written: Arc<AtomicU64>,
    /// Of these, so many are on the disk.
    safe: Arc<AtomicU64>,
}

enum State {
    Open {
        current: Arc<Open>,
        /// From before the metadata changed. Only a flush still uses them.
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

    /// As `Array.sieving` tells.
    pub(super) fn sieving(&self) -> Handle {
        Handle { hints: self.sieving_hints(), ..self.clone() }
    }

    /// As `Array.adopt` tells.
    pub(super) fn adopt(&self, info: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.closed() {
            return Ok(()); // By another thread.
        }
        let described = Arc::new(describe(info)?);
        let fresh = Arc::new(self.open()?.beside(described, self.writable)?);
        // Dropped after the lock: what ends with it may run Python code.
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

    /// As `Array.before_flush` tells.
    pub(super) fn before_flush(
        &self,
        py: Python<'_>,
        send: bool,
    ) -> PyResult<(u64, Option<(i64, i64)>)> {
        if self.closed() {
            return Ok((0, None)); // The flush says what that means.
        }
        let written = self.written.load(Ordering::SeqCst);
        let file = self.open_for_writing()?.before_flush(py, send)?;
        let lone = matches!(&*self.lock(), State::Open { retired, .. } if retired.is_empty());
        let words = |(device, inode): (u64, u64)| (device.cast_signed(), inode.cast_signed());
        Ok((written, file.filter(|_| lone).map(words)))
    }

    /// As `Array.flushed_by_another` tells.
    pub(super) fn flushed_by_another(&self, written: u64) -> PyResult<()> {
        if !self.closed() {
            self.open()?.flushed_by_another();
        }
        self.safe.fetch_max(written, Ordering::SeqCst);
        Ok(())
    }

    /// As `Array.flush` tells.
    pub(super) fn flush(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        if self.closed() && !self.owes() {
            return Ok(());
        }
        let current = self.open_for_writing().map_err(|fault| match self.closed() {
            true => self.closed_too_early(),
            false => fault,
        })?;
        let written = self.written.load(Ordering::SeqCst);
        // Those that are idle by now have been written to for the last time.
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
            // They go with `retired`, after the lock.
            if let State::Open { retired: kept, .. } = &mut *self.lock() {
                let gone = |open: &Arc<Open>| {
                    retired.iter().any(|(idle, other)| *idle && Arc::ptr_eq(open, other))
                };
                kept.retain(|open| !gone(open));
            }
        }
        Ok(())
    }

    /// As `Array.close` tells.
    pub(super) fn close(&self) {
        let open = std::mem::replace(&mut *self.lock(), State::Closed);
        drop(open); // After the lock: it may run Python code.
    }

    /// As `Array.closed` tells.
    pub(super) fn closed(&self) -> bool {
        matches!(*self.lock(), State::Closed)
    }

    /// Whether a write ended that no flush has covered.
    fn owes(&self) -> bool {
        self.safe.load(Ordering::SeqCst) < self.written.load(Ordering::SeqCst)
    }

    fn closed_too_early(&self) -> Fault {
        let path = &self.path;
        let text = format!(
            "'{path}' was closed before a flush of what was written to it, perhaps by another \
             thread: it may not be on the disk yet. Call flush() before close(); if a crash of the \
             machine must not lose it, open it again with outcore.open() and write it again."
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
            let text = format!("'{path}' is closed. Open it again with outcore.open().");
            return Err(Fault::new(Class::Usage, "closed", text).at(path));
        };
        if current.pid == process::id() {
            return Ok(current.clone());
        }
        // A forked child: locks inside the parent's tables may have been held at the fork, and
        // dropping them could touch them. They are left alone, a few descriptors for the child's
        // life.
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
        let text = format!("'{path}' was opened with mode 'r'. Use 'r+' to write.");
        Err(Fault::new(Class::Usage, "read-only", text).at(path))
    }

    /// Makes a change of what is open: it counts as a write.
    pub fn changed(&self, work: impl FnOnce(&Open, &Hints) -> PyResult<()>) -> PyResult<()> {
        let open = self.open_for_writing()?;
        let done = work(&open, &self.hints);
        // Before `open` is released: what was written to something idle is counted.
        self.written.fetch_add(1, Ordering::SeqCst);
        done
    }

    /// What an owner uses in threads of its own; `exclusive` as this array alone has it.
    pub fn held(&self) -> Result<Held, Fault> {
        let (hints, written) = (self.hints.clone(), self.written.clone());
        let exclusive = hints.exclusive;
        Ok(Held { open: self.open()?, hints, exclusive, written, whole: InParts::default() })
    }

    /// The array, as it was opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The hints of who reads through windows.
    pub fn sieving_hints(&self) -> Hints {
        Hints { method: Some(Method::Window), ..self.hints.clone() }
    }

    /// The hints of the user for this array.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }
}

/// Whether nothing uses the retired parts; then nothing ever will again.
fn is_idle(open: &Arc<Open>) -> bool {
    Arc::strong_count(open) == 1
}
