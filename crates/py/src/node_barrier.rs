//! A node barrier at which the ranks of a node synchronise: steps that complete, or report the reason.
//!
//! A step is one call from Python, so that nothing comes between its parts. While it waits it checks for
//! Ctrl-C and periodically calls `watch(seconds, interrupts)`, which may warn, or stop the node barrier and
//! raise. Ctrl-C does not end a step: the other ranks would wait forever. It is recorded, and raised when the
//! step is complete.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use outcore_io::node_barrier::{self, Shape, Ticket, Wait};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::errors::{Class, Fault};

/// Interval between two checks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(100);

/// One rank's handle of a node barrier.
#[pyclass(module = "outcore._core", frozen)]
pub struct NodeBarrier {
    node_barrier: node_barrier::NodeBarrier,
    /// Microseconds between two calls of `watch`.
    tick: AtomicU64,
    busy: AtomicBool,
    last: Mutex<Option<Ticket>>,
    pid: u32,
    /// Keeps the memory in its place.
    _memory: PyBuffer<u8>,
}

fn usage(text: &str) -> PyErr {
    Fault::new(Class::Internal, "internal", format!("{text}; please report this")).into()
}

/// Ends the turn of a thread.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[pymethods]
impl NodeBarrier {
    /// Attach to `memory`, which starts out as zeros; `first` if this rank made it.
    #[new]
    #[pyo3(signature = (memory, rank, ranks, cell, result, first))]
    fn new(
        memory: PyBuffer<u8>,
        rank: usize,
        ranks: usize,
        cell: usize,
        result: usize,
        first: bool,
    ) -> PyResult<NodeBarrier> {
        if memory.readonly() || !memory.is_c_contiguous() {
            return Err(usage("a node barrier needs writable memory"));
        }
        let shape = Shape { ranks, cell, result };
        let base = memory.buf_ptr().cast::<u8>();
        // SAFETY: the buffer is held as long as the node barrier, so its memory stays. It belongs to a
        // transport, which passes it only to barriers of different ranks.
        let node_barrier = unsafe {
            node_barrier::NodeBarrier::attach(base, memory.len_bytes(), rank, shape, first)
        };
        let node_barrier =
            node_barrier.ok_or_else(|| usage("the memory is not a node barrier of this shape"))?;
        Ok(NodeBarrier {
            node_barrier,
            tick: AtomicU64::new(1_000_000),
            busy: AtomicBool::new(false),
            last: Mutex::new(None),
            pid: std::process::id(),
            _memory: memory,
        })
    }

    /// Return the bytes of memory that a node barrier needs.
    #[staticmethod]
    fn nbytes(ranks: usize, cell: usize, result: usize) -> PyResult<usize> {
        Shape { ranks, cell, result }.bytes().ok_or_else(|| usage("the node barrier is too large"))
    }

    /// Send `said` and receive what all ranks send, one after another; None if ranks made different calls.
    fn gather<'py>(
        &self,
        py: Python<'py>,
        call: u32,
        total: u64,
        said: &[u8],
        watch: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let ticket = self.step(py, call, total, said, watch)?;
        let Some(len) = self.node_barrier.same(&ticket) else { return Ok(None) };
        let rows = len * self.node_barrier.shape().ranks;
        let heard = PyByteArray::new_with(py, rows, |out| {
            self.node_barrier.rows(&ticket, len, out);
            Ok(())
        })?;
        Ok(Some(heard))
    }

    /// Return the largest number of all ranks; None if ranks made different calls.
    fn agree(
        &self,
        py: Python<'_>,
        call: u32,
        code: i64,
        watch: &Bound<'_, PyAny>,
    ) -> PyResult<Option<i64>> {
        let ticket = self.step(py, call, 8, &code.to_le_bytes(), watch)?;
        let Some(8) = self.node_barrier.same(&ticket) else { return Ok(None) };
        let mut rows = vec![0; 8 * self.node_barrier.shape().ranks];
        self.node_barrier.rows(&ticket, 8, &mut rows);
        let codes = rows.chunks_exact(8).map(|row| {
            let mut code = [0; 8];
            code.copy_from_slice(row);
            i64::from_le_bytes(code)
        });
        Ok(codes.max())
    }

    /// Perform the second half of a step between nodes: one rank provides the result, all get it.
    #[pyo3(signature = (call, result, watch))]
    fn share<'py>(
        &self,
        py: Python<'py>,
        call: u32,
        result: Option<&[u8]>,
        watch: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        if result.is_some_and(|bytes| !self.node_barrier.publish(bytes)) {
            return Err(usage("the result is longer than the node barrier can hold"));
        }
        self.step(py, call, 0, &[], watch)?;
        PyByteArray::new_with(py, self.node_barrier.published(), |out| {
            self.node_barrier.read_published(out);
            Ok(())
        })
    }

    /// Return the heads of the last step: for each rank its call and two lengths, 16 bytes.
    fn heads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let len =
            if last.is_some() { node_barrier::HEAD * self.node_barrier.shape().ranks } else { 0 };
        PyBytes::new_with(py, len, |out| {
            if let Some(ticket) = &last {
                self.node_barrier.heads(ticket, out);
            }
            Ok(())
        })
    }

    /// Stop the node barrier permanently; with `waiting`, only if the step in which this rank waits is not
    /// complete. Return whether it is stopped now.
    fn stop(&self, text: &[u8], waiting: bool) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.node_barrier.stop(text, if waiting { last.as_ref() } else { None })
    }

    /// Return why the node barrier was stopped; None if it was not.
    fn stopped(&self) -> Option<Vec<u8>> {
        self.node_barrier.is_stopped().then(|| self.node_barrier.text())
    }

    /// Return for each rank: steps it has arrived at, its last call, its process, whether it has left.
    fn seen(&self) -> Vec<(u64, u32, u32, bool)> {
        let ranks = 0..self.node_barrier.shape().ranks;
        let seen = ranks.map(|rank| self.node_barrier.seen(rank));
        seen.map(|seen| (seen.steps, seen.call, seen.pid, seen.left)).collect()
    }

    /// Number of steps that this rank has arrived at.
    #[getter]
    fn steps(&self) -> u64 {
        self.node_barrier.steps()
    }

    /// Announce that this rank will not arrive again.
    fn leave(&self) {
        self.node_barrier.leave();
    }

    /// Set a note for ranks that wait for this one: a set of numbers below 1024.
    fn note(&self, numbers: Vec<u32>) {
        let mut words = [0; node_barrier::NOTE_WORDS];
        for number in numbers {
            if let Some(word) = words.get_mut(number as usize / 64) {
                *word |= 1_u64 << (number % 64);
            }
        }
        self.node_barrier.set_note(&words);
    }

    /// Return the note.
    fn noted(&self) -> Vec<u32> {
        let words = self.node_barrier.note();
        let all = 0..64 * node_barrier::NOTE_WORDS as u32;
        all.filter(|n| words[*n as usize / 64] >> (n % 64) & 1 == 1).collect()
    }

    /// Set the seconds between two calls of `watch`.
    fn set_tick(&self, seconds: f64) {
        let micros = (seconds * 1e6).clamp(1e3, 1e12) as u64;
        self.tick.store(micros, Ordering::Relaxed);
    }
}

impl NodeBarrier {
    fn enter(&self) -> PyResult<Turn<'_>> {
        if self.pid != std::process::id() {
            return Err(usage("a transport was used in a child of the process that created it"));
        }
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(usage("two threads used one transport at the same time"));
        }
        Ok(Turn(&self.busy))
    }

    fn step(
        &self,
        py: Python<'_>,
        call: u32,
        total: u64,
        said: &[u8],
        watch: &Bound<'_, PyAny>,
    ) -> PyResult<Ticket> {
        let _turn = self.enter()?;
        let over = |elapsed: f64, interrupts: u32| match watch.call1((elapsed, interrupts)) {
            Ok(_) => usage("a node barrier was stopped without a reason"),
            Err(error) => error,
        };
        let Ok(ticket) = self.node_barrier.arrive(call, total, said) else {
            return Err(over(0.0, 0));
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(ticket);
        if self.node_barrier.wait(&ticket, Duration::ZERO) == Wait::Done {
            return Ok(ticket);
        }
        let (mut noted, mut interrupts): (Option<PyErr>, u32) = (None, 0);
        let tick = Duration::from_micros(self.tick.load(Ordering::Relaxed));
        let (began, mut next) = (Instant::now(), tick);
        loop {
            let patience = next.saturating_sub(began.elapsed()).min(GLANCE);
            let state = py.detach(|| self.node_barrier.wait(&ticket, patience));
            let elapsed = began.elapsed();
            match state {
                Wait::Done => break,
                Wait::Stopped => return Err(over(elapsed.as_secs_f64(), interrupts)),
                Wait::NotYet => {}
            }
            let mut looks = elapsed >= next;
            if let Err(raised) = py.check_signals() {
                (interrupts, looks) = (interrupts + 1, true);
                noted.get_or_insert(raised);
            }
            if looks {
                next = elapsed + tick;
                if let Err(raised) = watch.call1((elapsed.as_secs_f64(), interrupts)) {
                    if self.node_barrier.is_stopped() {
                        return Err(raised);
                    }
                    // Ctrl-C while `watch` ran: the step continues.
                    interrupts += 1;
                    noted.get_or_insert(raised);
                }
            }
        }
        noted.map_or(Ok(ticket), Err)
    }
}
