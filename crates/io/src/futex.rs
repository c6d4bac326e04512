//! Sleeping on a word in memory shared with other processes.

#![allow(unsafe_code)]

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word is `expected`, for at most `patience`.
#[cfg(target_os = "linux")]
pub(crate) fn wait(word: &AtomicU32, expected: u32, patience: Duration, _waited: Duration) {
    let time = libc::timespec {
        tv_sec: patience.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: patience.subsec_nanos() as _,
    };
    // SAFETY: the word is a live, aligned futex word and the kernel only reads the time. Without
    // FUTEX_PRIVATE_FLAG the kernel identifies it by its page, so that all processes use the same
    // futex. The caller handles an early return (another value, a signal).
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const time)
    };
}

/// Wakes all threads that sleep on the word.
#[cfg(target_os = "linux")]
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: as above; the kernel only uses the address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Without futexes: sleeps, longer the longer the caller has waited.
#[cfg(not(target_os = "linux"))]
pub(crate) fn wait(_word: &AtomicU32, _expected: u32, patience: Duration, waited: Duration) {
    let nap = (waited / 4).clamp(Duration::from_micros(20), Duration::from_millis(1));
    std::thread::sleep(nap.min(patience));
}

/// Without futexes: does nothing, because every sleep is short.
#[cfg(not(target_os = "linux"))]
pub(crate) fn wake_all(_word: &AtomicU32) {}
