//! Files mapped into memory, safely.
//!
//! Problem: a copy out of a mapping is the fastest way to cached bytes. But a file that shrinks in
//! the meantime, a failing disk or (on writing) a full one causes SIGBUS, and mapped pages count as
//! resident memory of the process.
//!
//! Idea: a handler for SIGBUS looks the address up in a lock-free list of our mappings. If the
//! address is in one of them, the handler marks the mapping as failed and maps zero pages over the
//! rest of it, so the copy continues; afterwards the caller of the copy calls [`Mapping::check`]
//! and gets an error. For other addresses, the handlers of other code stay in force. `resident.rs`
//! bounds the resident pages.
//!
//! An entry of the list may be reused for another mapping while the handler of another thread reads
//! it. So it has a number that changes before and after its words do: words read between two equal,
//! even numbers belong to one mapping. Any other entry is skipped: the mapping that the handler
//! looks for is in use, so its entry does not change in the meantime.
//!
//! Invariants: a mapping is in the list before any code has its address, and leaves it before it is
//! unmapped; the failure mark is set before zero pages appear, so data copied from them is never
//! taken for the file's; the handler calls only async-signal-safe functions, never waits, and uses
//! no word of an entry that does not belong to the mapping it found.
//!
//! Measured (2 cores, ext4 with large folios, warm, one thread, 1 GiB into huge pages): memcpy out
//! of a fresh mapping with page faults 5.05 GB/s, populated in one call 5.14, populated and
//! unmapped in pieces of 2 MiB 4.5, `pread` of 1 MiB pieces 4.66; already resident 5.19. So pages
//! are simply faulted in and stay mapped while they may. Mappings begin at a multiple of 2 MiB: the
//! kernel can then map whole huge pages, and unmapping 1 GiB takes 0.5 ms instead of 12.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{fence, AtomicBool, AtomicPtr, AtomicU32, AtomicU8, AtomicUsize, Ordering};

use crate::backend::sys;
use crate::error::{errno, StorageError};
use crate::page::PAGE;
use crate::pinned::Pinned;
use crate::pool::Arena;
use crate::segment;
use crate::stamp::Stamp;

/// A whole file, mapped shared; writable if the file is.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    len: usize,
    reserved: usize,
    path: PathBuf,
    arena: Arena,
    entry: &'static Entry,
    writable: bool,
    /// State of the file before it was mapped, if any later change of it must make another stamp.
    before: Option<Stamp>,
}

// SAFETY: the pointer is to shared memory whose content other processes may change at any time; all
// access goes through raw copies, never through references.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps an open file with its current length; `path` is for errors.
    pub(crate) fn new(
        fd: RawFd,
        path: &Path,
        writable: bool,
        arena: &Arena,
    ) -> Result<Mapping, StorageError> {
        install();
        let found = sys::stat(fd).map_err(|number| StorageError::io("stat", path, number))?;
        let len = usize::try_from(found.st_size).unwrap_or(0);
        let refused = |number| StorageError::io("mmap", path, number);
        let (start, reserved) = segment::reserve(len).map_err(refused)?;
        let entry = register(start as usize, reserved, writable);
        let mapping = Mapping {
            start,
            len,
            reserved,
            path: path.to_path_buf(),
            arena: arena.clone(),
            entry,
            writable,
            before: Some(Stamp::of(&found)).filter(Stamp::is_settled),
        };
        if len > 0 {
            mapping.fill(fd)?;
        }
        Ok(mapping)
    }

    /// Maps the file at the reserved addresses.
    fn fill(&self, fd: RawFd) -> Result<(), StorageError> {
        let write = if self.writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: replaces our own reservation, which is at least `len` long and has no users yet.
        let mapped = unsafe {
            libc::mmap(
                self.start.cast(),
                self.len,
                libc::PROT_READ | write,
                libc::MAP_SHARED | libc::MAP_FIXED,
                fd,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(StorageError::io("mmap", &self.path, errno()));
        }
        // Read-ahead of a random access would load megabytes that are not needed.
        // SAFETY: advice on our own mapping.
        unsafe { libc::madvise(mapped, self.len, libc::MADV_RANDOM) };
        Ok(())
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Mapped bytes: the length of the file when it was mapped.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether this mapping can be used for the first `needed` bytes, with this arena.
    pub(crate) fn serves(&self, needed: i64, arena: &Arena) -> bool {
        let long_enough = usize::try_from(needed).is_ok_and(|needed| needed <= self.len);
        long_enough && !self.failed() && self.arena.same(arena)
    }

    /// Counts the pages of bytes `first..end` as resident, and keeps them resident while the result
    /// lives. Other pages are unmapped if the budget requires it.
    pub fn pin(&self, first: usize, end: usize) -> Pinned<'_> {
        let end = end.min(self.len);
        let first = first.min(end);
        self.arena.pin(self.start as usize + first, self.start as usize + end)
    }

    /// Makes the pages of bytes `first..end` dirty without changing any byte; returns their number.
    ///
    /// Concurrent stores of other processes are preserved. The file must be writable; call `check`
    /// afterwards.
    pub(crate) fn touch(&self, first: usize, end: usize) -> u64 {
        if !self.writable {
            return 0;
        }
        let end = end.min(self.len);
        let _pinned = self.pin(first, end);
        let mut pages = 0;
        for at in (first..end).step_by(PAGE_BYTES.load(Ordering::Relaxed)) {
            // SAFETY: the byte is in our mapping, which is writable. It is shared memory, to which
            // others may store at any time; the access is atomic, so it undoes nothing
            // (`SAFETY.md`, 19).
            let byte = unsafe { AtomicU8::from_ptr(self.start.add(at)) };
            // The compiler must not see that nothing changes, because it would generate a load.
            byte.fetch_or(std::hint::black_box(0), Ordering::Relaxed);
            pages += 1;
        }
        pages
    }

    /// Faults in the page of a byte, as a read does; call `check` before relying on it.
    pub(crate) fn enter(&self, at: usize) {
        if at < self.len {
            let _pinned = self.pin(at, at + 1);
            // SAFETY: the byte is in our mapping; others may store to it, and the value is not
            // used.
            unsafe { self.start.add(at).read_volatile() };
        }
    }

    fn failed(&self) -> bool {
        self.entry.failed.load(Ordering::Acquire)
    }

    /// Checks that all data copied from and to the mapping so far belongs to the file; otherwise
    /// returns the reason. `file` is the mapped file.
    pub fn check(&self, file: &dyn AsRawFd) -> Result<(), StorageError> {
        match self.failed() {
            true => Err(self.why(file.as_raw_fd())),
            false => Ok(()),
        }
    }

    /// Returns the reason of a failed access.
    ///
    /// The signal only shows that a page could not be had. If the file is now too short for the
    /// page, that is the reason. Otherwise the page is requested again with calls that report
    /// errors: its block on the disk, if it was to be written, and its bytes. If both succeed,
    /// either the file was cut off and restored, as its times show, or the disk failed temporarily.
    fn why(&self, fd: RawFd) -> StorageError {
        let offset = self.entry.fault.load(Ordering::Relaxed).saturating_sub(self.start as usize);
        let shrunk = StorageError::Shrunk { path: self.path.clone() };
        let (Ok(now), Ok(at)) = (sys::stat(fd), i64::try_from(offset)) else { return shrunk };
        let len = (now.st_size - at).min(PAGE_BYTES.load(Ordering::Relaxed) as i64);
        if len <= 0 || usize::try_from(now.st_size).is_ok_and(|size| size < self.len) {
            return shrunk;
        }
        let refused = match self.writable {
            true => sys::reserve_range(fd, at, len).err(),
            false => None,
        };
        let refused = refused.or_else(|| sys::read_at(fd, &mut [0], at).err());
        // Our own writes change the times as well: then the reason is unknown.
        if refused.is_none() && self.before != Some(Stamp::of(&now)) {
            return shrunk;
        }
        let doing =
            if self.writable { "write through a mapping" } else { "read through a mapping" };
        StorageError::io_at(doing, &self.path, at, len, refused.unwrap_or(libc::EIO))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.arena.forget_pages(self.start as usize, self.start as usize + self.reserved);
        self.entry.set(0, 0, 0);
        // SAFETY: our own mapping, no longer in the list, and no borrow of it exists.
        unsafe { libc::munmap(self.start.cast(), self.reserved) };
        self.entry.taken.store(false, Ordering::Release);
    }
}

/// A mapping as the signal handler sees it: free when not `taken`; only the thread that took it
/// changes it.
#[derive(Debug)]
struct Entry {
    taken: AtomicBool,
    /// Odd while the next three words change.
    number: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    protection: AtomicU32,
    failed: AtomicBool,
    /// Page of the last fault; valid when `failed`.
    fault: AtomicUsize,
}

impl Entry {
    const fn free() -> Entry {
        Entry {
            taken: AtomicBool::new(false),
            number: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            protection: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            fault: AtomicUsize::new(0),
        }
    }

    /// Assigns the entry to another mapping, or to none if `start` is 0; only for the thread that
    /// took it.
    fn set(&self, start: usize, end: usize, protection: u32) {
        let number = self.number.load(Ordering::Relaxed);
        self.number.store(number.wrapping_add(1), Ordering::Relaxed);
        // A thread that sees any of the new words also sees the odd number.
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.protection.store(protection, Ordering::Relaxed);
        self.number.store(number.wrapping_add(2), Ordering::Release);
    }

    /// Returns the extent of the mapping, or `None` while the entry changes. Async-signal-safe;
    /// `between` is called between the reads.
    fn extent(&self, between: &impl Fn()) -> Option<Extent> {
        let number = self.number.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        between();
        let end = self.end.load(Ordering::Relaxed);
        let protection = self.protection.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let same = number.is_multiple_of(2) && self.number.load(Ordering::Relaxed) == number;
        (same && start != 0).then_some(Extent { start, end, protection })
    }
}

/// Data of a mapping for the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    start: usize,
    end: usize,
    protection: u32,
}

/// Entries come in blocks that are never freed, so the handler may walk them at any time.
struct Block {
    entries: [Entry; 64],
    next: AtomicPtr<Block>,
}

impl Block {
    const fn new() -> Block {
        Block { entries: [const { Entry::free() }; 64], next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Block> {
        // SAFETY: null, or leaked by `register` and never freed.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

static MAPPINGS: Block = Block::new();

/// Bytes of a page of this machine, a power of two; read before any mapping is in the list, because
/// a signal handler must not call `sysconf`.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(PAGE);

fn ask_page_size() {
    // SAFETY: a plain number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    match usize::try_from(bytes) {
        Ok(bytes) if bytes.is_power_of_two() => PAGE_BYTES.store(bytes, Ordering::Relaxed),
        _ => {}
    }
}

/// Adds a mapping to the list.
fn register(start: usize, len: usize, writable: bool) -> &'static Entry {
    let mut block: &'static Block = &MAPPINGS;
    loop {
        for entry in &block.entries {
            if !entry.taken.swap(true, Ordering::AcqRel) {
                let write = if writable { libc::PROT_WRITE } else { 0 };
                entry.failed.store(false, Ordering::Relaxed);
                entry.set(start, start + len, (libc::PROT_READ | write) as u32);
                return entry;
            }
        }
        block = match block.next() {
            Some(next) => next,
            None => {
                let fresh = Box::into_raw(Box::new(Block::new()));
                let null = std::ptr::null_mut();
                if block
                    .next
                    .compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire)
                    .is_err()
                {
                    // SAFETY: another thread was first; ours was never published.
                    drop(unsafe { Box::from_raw(fresh) });
                }
                block.next().unwrap_or(block)
            }
        };
    }
}

/// Returns the entry and extent of the mapping that contains an address. Async-signal-safe.
fn find(address: usize) -> Option<(&'static Entry, Extent)> {
    find_while(address, &|| ())
}

/// Does the same as `find`; `between` is called between the reads of each entry.
fn find_while(address: usize, between: &impl Fn()) -> Option<(&'static Entry, Extent)> {
    let mut block = Some(&MAPPINGS);
    while let Some(now) = block {
        for entry in &now.entries {
            let extent = entry.extent(between);
            if let Some(extent) = extent.filter(|found| (found.start..found.end).contains(&address))
            {
                return Some((entry, extent));
            }
        }
        block = now.next();
    }
    None
}

/// The action for SIGBUS before ours, and earlier ones; never freed, because the handler may be
/// reading it.
struct Previous {
    action: libc::sigaction,
    earlier: *const Previous,
}

static PREVIOUS: AtomicPtr<Previous> = AtomicPtr::new(std::ptr::null_mut());

/// Handler that got the last forwarded signal.
///
/// Handlers such as Python's faulthandler report, restore the handler before them (which may be
/// ours again) and raise the signal again. The raised signal goes to the handler before them,
/// because otherwise they would be called for ever.
static PASSED_TO: AtomicPtr<Previous> = AtomicPtr::new(std::ptr::null_mut());

/// Makes our handler the first one, also if other code (Python's faulthandler) has installed its
/// own since; that one is then called for addresses outside our mappings.
fn install() {
    ask_page_size();
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads the current action; the memory is large enough and zeroed.
    let now = unsafe {
        libc::sigaction(libc::SIGBUS, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    if now.sa_sigaction != on_sigbus as *const () as usize {
        set_handler();
    }
}

fn set_handler() {
    // SAFETY: plain data, zero is a valid start; the handler has the type that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut previous: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous);
        if previous.sa_sigaction != action.sa_sigaction {
            let earlier = PREVIOUS.load(Ordering::Acquire);
            let node = Box::into_raw(Box::new(Previous { action: previous, earlier }));
            PREVIOUS.store(node, Ordering::Release);
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let kept = errno();
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    if code > 0 {
        if let Some((entry, Extent { end, protection, .. })) = find(address) {
            let page = address & !(PAGE_BYTES.load(Ordering::Relaxed) - 1);
            entry.fault.store(page, Ordering::Relaxed);
            entry.failed.store(true, Ordering::Release);
            let protection = protection as libc::c_int;
            let flags =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            // SAFETY: replaces pages of one of our live mappings, which the faulting copy keeps
            // alive; mmap is a plain system call and safe in a signal handler.
            let zeros = unsafe {
                libc::mmap(page as *mut libc::c_void, end - page, protection, flags, -1, 0)
            };
            if zeros != libc::MAP_FAILED {
                set_errno(kept);
                return;
            }
        }
    }
    set_errno(kept);
    pass_on(signal, info, context, code);
}

/// Calls the previous handler, or takes the default action.
fn pass_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    code: libc::c_int,
) {
    // SAFETY: null, or leaked by `set_handler` and never freed; handlers are called with the
    // arguments that their flags require.
    unsafe {
        let last = PASSED_TO.load(Ordering::Acquire).as_ref();
        let node = match last.filter(|_| raised_here(info, code)) {
            Some(last) => last.earlier,
            None => PREVIOUS.load(Ordering::Acquire).cast_const(),
        };
        PASSED_TO.store(node.cast_mut(), Ordering::Release);
        let previous = node.as_ref().map(|node| &node.action);
        let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
        let with_info = previous.is_some_and(|action| action.sa_flags & libc::SA_SIGINFO != 0);
        if handler == libc::SIG_IGN && code <= 0 {
            return;
        }
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
            // A fault happens again when the handler returns, and then ends the process; a sent
            // signal must be sent again.
            if code <= 0 {
                libc::raise(signal);
            }
        } else if with_info {
            type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            let call = std::mem::transmute::<usize, WithInfo>(handler);
            call(signal, info, context);
        } else {
            let call = std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler);
            call(signal);
        }
    }
}

/// Returns whether the signal comes from `raise` in this process.
#[cfg(target_os = "linux")]
fn raised_here(info: *mut libc::siginfo_t, code: libc::c_int) -> bool {
    const SI_TKILL: libc::c_int = -6;
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler; with this code it
    // contains the process id of the sender.
    code == SI_TKILL && unsafe { (*info).si_pid() } == std::process::id() as libc::pid_t
}

#[cfg(not(target_os = "linux"))]
fn raised_here(_: *mut libc::siginfo_t, code: libc::c_int) -> bool {
    code <= 0
}

fn set_errno(number: i32) {
    #[cfg(target_os = "linux")]
    // SAFETY: the address of this thread's error number.
    unsafe {
        *libc::__errno_location() = number;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = number;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_file::OpenFile;
    use crate::page::GRANULE;
    use crate::testdir::TestDir;

    #[test]
    fn a_file_that_shrinks_is_an_error_not_a_crash() {
        let dir = TestDir::new("shrink");
        let path = dir.file("a", &[5u8; 100_000]);
        let arena = Arena::new(64 << 20);
        let file = OpenFile::open(&path, true).unwrap();
        let mapping = file.mapping(100_000, &arena).unwrap();
        let mut memory = vec![0u8; 100_000];
        // SAFETY: both are 100000 bytes long.
        let copy = |memory: &mut [u8]| unsafe {
            std::ptr::copy_nonoverlapping(mapping.as_ptr(), memory.as_mut_ptr(), 100_000);
        };
        copy(&mut memory);
        mapping.check(&file).unwrap();
        assert!(memory.iter().all(|byte| *byte == 5));
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        copy(&mut memory);
        assert_eq!("file-changed", mapping.check(&file).unwrap_err().code());
        // Making removed pages dirty is an error, too.
        let other = OpenFile::open(&path, true).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100_000).unwrap();
        let longer = other.mapping(100_000, &arena).unwrap();
        assert_eq!(
            100_000_u64.div_ceil(PAGE_BYTES.load(Ordering::Relaxed) as u64),
            longer.touch(0, 100_000)
        );
        longer.check(&other).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
        longer.touch(0, 100_000);
        assert_eq!("file-changed", longer.check(&other).unwrap_err().code());
        // The next mapping is a new one with the current length of the file.
        assert_eq!(10, file.mapping(100_000, &arena).unwrap().len());
    }

    /// Acts like Python's faulthandler: reports, restores the handler before it, and raises the
    /// signal again.
    extern "C" fn tells_and_raises(signal: libc::c_int) {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        // SAFETY: plain calls that are safe in a handler; a second visit ends the child.
        unsafe {
            if CALLS.fetch_add(1, Ordering::SeqCst) > 0 {
                libc::_exit(99);
            }
            let mut before: libc::sigaction = std::mem::zeroed();
            before.sa_sigaction = on_sigbus as *const () as usize;
            before.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const before, std::ptr::null_mut());
            libc::raise(signal);
        }
    }

    #[test]
    fn a_handler_that_raises_again_is_not_called_again() {
        let dir = TestDir::new("raises");
        let path = dir.file("a", &[5u8; 8192]);
        install();
        for fault in [true, false] {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            // SAFETY: the child sets handlers, maps a file outside the list of mappings, and dies.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe {
                    let mut theirs: libc::sigaction = std::mem::zeroed();
                    theirs.sa_sigaction = tells_and_raises as *const () as usize;
                    theirs.sa_flags = libc::SA_NODEFER;
                    libc::sigaction(libc::SIGBUS, &raw const theirs, std::ptr::null_mut());
                    install();
                    if fault {
                        libc::ftruncate(std::os::fd::AsRawFd::as_raw_fd(&file), 0);
                        let read = OpenFile::open(&path, false).map_or(-1, |file| {
                            let fd = file.fd();
                            std::mem::forget(file);
                            fd
                        });
                        let flags = libc::MAP_SHARED;
                        let map =
                            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, read, 0);
                        map.cast::<u8>().read_volatile();
                    } else {
                        // The handler that Rust's runtime set before ours only restores the
                        // default.
                        libc::raise(libc::SIGBUS);
                        libc::raise(libc::SIGBUS);
                    }
                    libc::_exit(98);
                }
            }
            let mut status = 0;
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            let ended = (libc::WIFSIGNALED(status), libc::WTERMSIG(status));
            assert_eq!((true, libc::SIGBUS), ended, "fault {fault}: {status:#x}");
        }
    }

    #[test]
    fn resident_pages_stay_within_the_arena() {
        let dir = TestDir::new("resident");
        let path = dir.path("a");
        let sparse = std::fs::File::create(&path).unwrap();
        sparse.set_len(64 << 20).unwrap();
        let arena = Arena::new(16 << 20);
        let file = OpenFile::open(&path, false).unwrap();
        let mapping = file.mapping(64 << 20, &arena).unwrap();
        for piece in 0..32usize {
            let first = piece * GRANULE;
            let pinned = mapping.pin(first, first + GRANULE);
            // SAFETY: a byte inside the mapping.
            assert_eq!(0, unsafe { mapping.as_ptr().add(first).read_volatile() });
            drop(pinned);
            assert!(arena.mapped() <= 14 << 20, "{}", arena.mapped());
        }
        assert_eq!(14 << 20, arena.mapped());
        // A buffer that needs the memory gets it.
        let buffer = arena.buffer("a test", 15 << 20).unwrap();
        assert!(arena.mapped() <= 1 << 20);
        drop((buffer, mapping, file));
        assert_eq!(0, arena.mapped());
    }

    #[test]
    fn zeros_are_put_under_whole_pages_of_the_machine() {
        let dir = TestDir::new("pages");
        let path = dir.file("a", &[5u8; 100_000]);
        let arena = Arena::new(64 << 20);
        let file = OpenFile::open(&path, false).unwrap();
        let mapping = file.mapping(100_000, &arena).unwrap();
        // SAFETY: returns a number.
        let system = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        assert_eq!(system, PAGE_BYTES.load(Ordering::Relaxed));
        let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        // SAFETY: the child simulates larger pages, reads a byte that no longer exists, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            PAGE_BYTES.store(16 * system, Ordering::Relaxed);
            // SAFETY: as above; the byte is in the mapping.
            unsafe {
                libc::ftruncate(std::os::fd::AsRawFd::as_raw_fd(&writer), 0);
                let byte = mapping.as_ptr().add(17 * system).read_volatile();
                let fault = mapping.entry.fault.load(Ordering::Relaxed);
                let right = byte == 0 && fault == mapping.start as usize + 16 * system;
                libc::_exit(i32::from(!right));
            }
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(0, status);
    }

    #[test]
    fn many_mappings_are_found() {
        let starts: Vec<_> =
            (1..200usize).map(|k| (k << 40, register(k << 40, 4096, false))).collect();
        for (start, entry) in &starts {
            assert!(std::ptr::eq(*entry, find(start + 4095).unwrap().0));
            assert!(find(start + 4096).is_none());
        }
        starts.into_iter().for_each(|(_, entry)| give_back(entry));
    }

    fn give_back(entry: &Entry) {
        entry.set(0, 0, 0);
        entry.taken.store(false, Ordering::Release);
    }

    #[test]
    fn an_entry_that_is_used_again_meanwhile_is_no_mixture_of_both() {
        let (low, high) = (3usize << 50, 5usize << 50);
        let (own, nobodys) = (register(6 << 50, 4096, false), 4usize << 50);
        let entry = register(low, 4096, false);
        // Between the reads of two of its words, another mapping takes the entry over: the start of
        // the first and the end of the second would contain addresses that are in neither.
        let turn = std::cell::Cell::new(false);
        let other = || {
            let now = turn.replace(!turn.get());
            entry.set(if now { low } else { high }, if now { low } else { high } + 4096, 1);
        };
        for _ in 0..4 {
            assert!(find_while(nobodys, &other).is_none());
            // An entry that does not change is found nevertheless, whole.
            let (found, extent) = find_while((6 << 50) + 4095, &other).unwrap();
            assert!(std::ptr::eq(own, found));
            let read = libc::PROT_READ as u32;
            assert_eq!(Extent { start: 6 << 50, end: (6 << 50) + 4096, protection: read }, extent);
        }
        // During a change, an entry belongs to no mapping.
        entry.number.fetch_add(1, Ordering::Relaxed);
        entry.start.store(low, Ordering::Relaxed);
        entry.end.store(low + 4096, Ordering::Relaxed);
        assert!(find(low).is_none());
        entry.number.fetch_add(1, Ordering::Relaxed);
        assert!(find(low).is_some());
        give_back(entry);
        give_back(own);
    }

    #[test]
    fn a_file_that_was_cut_off_and_restored_did_not_fail_on_the_disk() {
        for writable in [false, true] {
            let dir = TestDir::new("restored");
            let path = dir.file("a", &[5u8; 100_000]);
            let arena = Arena::new(64 << 20);
            let file = OpenFile::open(&path, writable).unwrap();
            let mapping = file.mapping(100_000, &arena).unwrap();
            let other = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            other.set_len(10).unwrap();
            // SAFETY: a byte inside the mapping.
            assert_eq!(0, unsafe { mapping.as_ptr().add(50_000).read_volatile() });
            std::fs::write(&path, [6u8; 100_000]).unwrap();
            assert_eq!("file-changed", mapping.check(&file).unwrap_err().code());
            // Also if its name now leads to another file.
            std::fs::rename(dir.file("b", &[7u8; 100_000]), &path).unwrap();
            assert_eq!("file-changed", mapping.check(&file).unwrap_err().code());
        }
    }

    #[test]
    fn a_page_that_could_not_be_had_of_a_file_that_nobody_changed_is_the_disks_fault() {
        let dir = TestDir::new("momentary");
        let path = dir.file("a", &[5u8; 100_000]);
        let file = OpenFile::open(&path, false).unwrap();
        let mut mapping = Mapping::new(file.fd(), &path, false, &Arena::new(64 << 20)).unwrap();
        mapping.entry.fault.store(mapping.start as usize, Ordering::Relaxed);
        mapping.entry.failed.store(true, Ordering::Release);
        // The file was written a moment ago: an immediate further change would not show.
        assert_eq!("file-changed", mapping.check(&file).unwrap_err().code());
        mapping.before = Some(Stamp::of(&file.stat().unwrap()));
        assert_eq!("disk-failure", mapping.check(&file).unwrap_err().code());
    }
}
