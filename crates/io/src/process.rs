//! Values that belong to one process and are re-created after a fork.
//!
//! Problem: threads do not survive a fork, and a lock that another thread held at that moment stays
//! locked in the child for ever.
//!
//! Idea: one atomic pointer to a value marked with the process id. A child finds a foreign id,
//! makes its own value and leaks the old one: it cannot be dropped, because its threads do not
//! exist in the child and its locks may be held.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Returns the id of this process.
///
/// Each access needs it several times, and a system call takes as long as a small copy. Therefore
/// the id is cached in a page that the kernel clears in the child of a fork, however the fork was
/// made.
pub fn id() -> u32 {
    static KEPT: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
    let mut page = KEPT.load(Ordering::Acquire);
    if page.is_null() {
        let Some(fresh) = emptied_by_forks() else { return std::process::id() };
        let null = std::ptr::null_mut();
        // If two threads come first, the second leaks its page.
        page = match KEPT.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(theirs) => theirs,
        };
    }
    // SAFETY: a whole page, which is never unmapped; it holds zeros or the id stored below.
    let kept = unsafe { &*page };
    match kept.load(Ordering::Relaxed) {
        0 => {
            let own = std::process::id();
            kept.store(own, Ordering::Relaxed);
            own
        }
        own => own,
    }
}

/// Maps a page of zeros that the kernel clears again in a forked child.
#[cfg(target_os = "linux")]
fn emptied_by_forks() -> Option<*mut AtomicU32> {
    let size = crate::page::PAGE;
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, at no address in particular.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping made above; no other code has its address.
    unsafe {
        if libc::madvise(page, size, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, size); // before Linux 4.14
            return None;
        }
    }
    Some(page.cast())
}

/// Other systems do not have it.
#[cfg(not(target_os = "linux"))]
fn emptied_by_forks() -> Option<*mut AtomicU32> {
    None
}

/// A lazily made value, one for each process; for statics.
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
        let pid = id();
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
                    // SAFETY: no other thread has seen `fresh`.
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
    fn the_number_is_that_of_each_process() {
        assert_eq!((std::process::id(), std::process::id()), (id(), id()));
        // SAFETY: the child and its own child compare two numbers each and leave.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let grandchild = libc::fork();
                let own = id() == std::process::id() && id() == std::process::id();
                if grandchild == 0 {
                    libc::_exit(i32::from(!own));
                }
                let mut status = -1;
                libc::waitpid(grandchild, &raw mut status, 0);
                libc::_exit(i32::from(!(own && status == 0)));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0);
            assert_eq!(0, status);
        }
        assert_eq!(std::process::id(), id());
    }

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
