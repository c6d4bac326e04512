//! Values that belong to one process and are made anew after a fork.
//!
//! Problem: threads do not survive a fork, and a lock that another thread held at that moment stays
//! locked in the child for ever.
//!
//! Idea: one atomic pointer to a value marked with the process id. A child sees a foreign id, makes
//! its own value and leaks the old one: it cannot be dropped, since its threads are gone and its
//! locks may be held.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A lazily made value, one for each process. For statics.
pub struct PerProcess<T: Send + Sync + 'static> {
    current: AtomicPtr<Owned<T>>,
    make: fn() -> T,
}

struct Owned<T> {
    pid: u32,
    value: T,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// A cell whose value is made by `make` at first use in each process.
    pub const fn new(make: fn() -> T) -> PerProcess<T> {
        PerProcess { current: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// The value of this process.
    pub fn get(&self) -> &'static T {
        let pid = std::process::id();
        let mut seen = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null or came from `Box::leak` below and is never freed while
            // it can be seen here.
            if let Some(owned) = unsafe { seen.as_ref() } {
                if owned.pid == pid {
                    return &owned.value;
                }
            }
            let fresh = Box::into_raw(Box::new(Owned { pid, value: (self.make)() }));
            match self.current.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: just leaked, never freed.
                Ok(_) => return unsafe { &(*fresh).value },
                Err(winner) => {
                    // SAFETY: nobody else has seen `fresh`.
                    drop(unsafe { Box::from_raw(fresh) });
                    seen = winner;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_gets_its_own_value() {
        static PID: PerProcess<u32> = PerProcess::new(std::process::id);
        assert_eq!(std::process::id(), *PID.get());
        // SAFETY: the child only compares two numbers and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = *PID.get() == std::process::id();
            // SAFETY: ends the child without running the test harness's exit handlers.
            unsafe { libc::_exit(if own { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(child, unsafe { libc::waitpid(child, &mut status, 0) });
        assert_eq!(0, status);
        assert_eq!(std::process::id(), *PID.get());
    }
}
