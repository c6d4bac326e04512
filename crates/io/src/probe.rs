//! Abilities of the system, and contents of the page cache.
//!
//! They are queried at run time, never at compile time: containers forbid io_uring, file systems do
//! not support direct I/O, old kernels lack calls. Every query has a safe answer if the system
//! gives none.

#![allow(unsafe_code)]

use std::fs;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// Alignment that direct I/O requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectAlignment {
    /// Alignment of memory addresses, bytes.
    pub memory: u32,
    /// Alignment of file offsets and lengths, bytes.
    pub offset: u32,
}

/// Alignment that every current disk accepts; used if the system reports none.
const COMMON_BLOCK: u32 = 4096;

/// Returns the alignment that direct I/O on this file requires; `None` if it is not supported
/// (tmpfs, some network file systems, encrypted or compressed files).
#[cfg(target_os = "linux")]
pub fn direct_alignment(path: &Path) -> Option<DirectAlignment> {
    // SAFETY: all zeroes is a valid `statx`.
    let mut info: libc::statx = unsafe { std::mem::zeroed() };
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: the name ends with a zero; `info` is valid for writing.
    let failed =
        unsafe { libc::statx(libc::AT_FDCWD, name.as_ptr(), 0, libc::STATX_DIOALIGN, &mut info) }
            != 0;
    if failed || info.stx_mask & libc::STATX_DIOALIGN == 0 {
        // The kernel or file system reports nothing: try to open the file for direct I/O.
        let flags = libc::O_RDONLY | libc::O_DIRECT | libc::O_NONBLOCK;
        crate::backend::sys::open(path, flags, 0).ok()?;
        return Some(DirectAlignment { memory: COMMON_BLOCK, offset: COMMON_BLOCK });
    }
    // The kernel reports zero if a file does not support direct I/O although it could be opened.
    (info.stx_dio_mem_align > 0 && info.stx_dio_offset_align > 0).then_some(DirectAlignment {
        memory: info.stx_dio_mem_align,
        offset: info.stx_dio_offset_align,
    })
}

/// Returns `None`: the alignment is unknown on this system, so direct I/O is not used.
#[cfg(not(target_os = "linux"))]
pub fn direct_alignment(_path: &Path) -> Option<DirectAlignment> {
    None
}

/// Returns whether an open file can be mapped and shared with other processes.
pub fn can_be_mapped(fd: RawFd, writable: bool) -> bool {
    let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    let bytes = usize::try_from(page_size()).unwrap_or(COMMON_BLOCK as usize);
    // SAFETY: a fresh mapping that is never touched, and removed below.
    unsafe {
        let map = libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd, 0);
        if map == libc::MAP_FAILED {
            // Lack of memory, or too many mappings, is not a property of the file.
            return matches!(crate::error::errno(), libc::ENOMEM | libc::EAGAIN);
        }
        libc::munmap(map, bytes);
    }
    true
}

/// Returns how much of `offset..offset + len` is in the page cache, in thousandths; `None` if the
/// system does not report it.
///
/// Bytes past the end of the file count as not cached. An empty range is cached.
///
/// `cachestat(2)` (Linux 6.5), else `mincore` on a short-lived mapping.
pub fn cached(fd: RawFd, offset: i64, len: i64) -> Option<u32> {
    if len <= 0 {
        return Some(1000);
    }
    let page = page_size();
    let first = offset.max(0) / page;
    let end = offset.checked_add(len)?.checked_add(page - 1)? / page;
    let pages = (end - first).max(1);
    let resident = resident_pages(fd, first * page, pages, page)?;
    Some((resident.min(pages) as i128 * 1000 / pages as i128) as u32)
}

/// Returns whether a range of a file is a hole; false if the system does not report it.
///
/// A partial write to a page of a hole need not read the page from the disk. Reserved space without
/// data is a hole, too.
pub fn hole(fd: RawFd, offset: i64, len: i64) -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: changes only the position of the descriptor, which this code does not use.
        let data = unsafe { libc::lseek(fd, offset, libc::SEEK_DATA) };
        let none = data < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO);
        none || data >= offset.saturating_add(len.max(1))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, offset, len);
        false
    }
}

/// Returns whether any part of a range of a file is a hole; true if the system does not report it.
pub fn has_hole(fd: RawFd, offset: i64, len: i64) -> bool {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: changes only the position of the descriptor, which this code does not use.
        let hole = unsafe { libc::lseek(fd, offset, libc::SEEK_HOLE) };
        hole < offset.saturating_add(len)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, offset, len);
        true
    }
}

/// Returns the bytes of `offset..offset + len` that the page cache marks as dirty, in whole pages;
/// `None` if the system does not report it.
///
/// A large folio is marked as a whole, even if only a part of it was written.
pub fn dirty(fd: RawFd, offset: i64, len: i64) -> Option<i64> {
    #[cfg(target_os = "linux")]
    {
        let stat = cachestat(fd, CacheRange { offset: offset as u64, len: len as u64 })?;
        i64::try_from(stat.dirty).ok()?.checked_mul(page_size())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, offset, len);
        None
    }
}

/// Returns how much of the given ranges is in the page cache, in thousandths, from at most `calls`
/// samples at regular distances (including the first and the last range).
///
/// `range(i)` gives offset and length of range `i` of `count`.
pub fn cached_sample(
    fd: RawFd,
    count: u64,
    calls: u64,
    mut range: impl FnMut(u64) -> (i64, i64),
) -> Option<u32> {
    let looks = count.min(calls.max(1));
    if looks == 0 {
        return Some(1000);
    }
    let (mut weighted, mut total) = (0i128, 0i128);
    for look in 0..looks {
        let index = if looks == 1 {
            count / 2
        } else {
            (look as u128 * (count as u128 - 1) / (looks as u128 - 1)) as u64
        };
        let (offset, len) = range(index);
        let permille = cached(fd, offset, len)?;
        weighted += i128::from(permille) * i128::from(len.max(0));
        total += i128::from(len.max(0));
    }
    Some(if total == 0 { 1000 } else { (weighted / total) as u32 })
}

/// `struct cachestat_range` of the kernel.
#[cfg(target_os = "linux")]
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat` of the kernel, all in pages.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

#[cfg(target_os = "linux")]
fn cachestat(fd: RawFd, range: CacheRange) -> Option<CacheStat> {
    const SYS_CACHESTAT: libc::c_long = 451; // the same number on every architecture
    let mut stat = CacheStat::default();
    // SAFETY: both structures have the kernel's layout; the second is valid for writing.
    let failed = unsafe { libc::syscall(SYS_CACHESTAT, fd, &range, &mut stat, 0) } != 0;
    (!failed).then_some(stat)
}

#[cfg(target_os = "linux")]
fn resident_pages(fd: RawFd, offset: i64, pages: i64, page: i64) -> Option<i64> {
    let range = CacheRange { offset: offset as u64, len: (pages as u64).checked_mul(page as u64)? };
    if let Some(stat) = cachestat(fd, range) {
        return i64::try_from(stat.cached).ok();
    }
    resident_by_mincore(fd, offset, pages, page)
}

#[cfg(not(target_os = "linux"))]
fn resident_pages(fd: RawFd, offset: i64, pages: i64, page: i64) -> Option<i64> {
    resident_by_mincore(fd, offset, pages, page)
}

/// Counts resident pages with the older call. Linux answers truthfully only if the caller may write
/// the file; otherwise every page seems cached. So it is used for writable descriptors only.
fn resident_by_mincore(fd: RawFd, offset: i64, pages: i64, page: i64) -> Option<i64> {
    // Bounds the mapping and the table: 64 K pages in each step.
    const STEP: i64 = 1 << 16;
    // SAFETY: plain numbers.
    let access = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if access < 0 || access & libc::O_ACCMODE == libc::O_RDONLY {
        return None;
    }
    let len = crate::backend::sys::regular_len(fd)?;
    let inside = ((len - offset).max(0) + page - 1) / page;
    let mut resident = 0;
    let mut table = vec![0u8; pages.min(inside).clamp(0, STEP) as usize];
    let mut at = 0;
    while at < pages.min(inside) {
        let count = (pages.min(inside) - at).min(STEP);
        let bytes = (count * page) as usize;
        // SAFETY: a fresh mapping that is only queried, never touched, and removed below.
        unsafe {
            let map = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                offset + at * page,
            );
            if map == libc::MAP_FAILED {
                return None;
            }
            let failed = libc::mincore(map, bytes, table.as_mut_ptr().cast()) != 0;
            libc::munmap(map, bytes);
            if failed {
                return None;
            }
        }
        resident += table[..count as usize].iter().filter(|byte| *byte & 1 == 1).count() as i64;
        at += count;
    }
    Some(resident)
}

/// Returns the bytes of a page of memory.
pub fn page_size() -> i64 {
    // SAFETY: a plain number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if size > 0 {
        size
    } else {
        i64::from(COMMON_BLOCK)
    }
}

/// Drops the clean pages of a file range from the page cache.
///
/// This is only advice: if it is not followed, nothing is lost or wrong.
#[cfg(target_os = "linux")]
pub fn forget(fd: RawFd, offset: i64, len: i64) {
    let page = page_size();
    let first = offset / page * page;
    let end = offset.saturating_add(len).saturating_add(page - 1) / page * page;
    // SAFETY: plain numbers.
    unsafe { libc::posix_fadvise(fd, first, end - first, libc::POSIX_FADV_DONTNEED) };
}

/// Does nothing: this system has no such advice.
#[cfg(not(target_os = "linux"))]
pub fn forget(_fd: RawFd, _offset: i64, _len: i64) {}

/// Writes a file range back and drops it from the page cache, for measurements from cold.
///
/// # Errors
/// The error number of the sync or of the advice.
#[cfg(target_os = "linux")]
pub fn evict(fd: RawFd, offset: i64, len: i64) -> Result<(), i32> {
    // SAFETY: plain numbers.
    if unsafe { libc::fsync(fd) } != 0 {
        return Err(crate::error::errno());
    }
    // SAFETY: plain numbers.
    match unsafe { libc::posix_fadvise(fd, offset, len, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

/// Fails: this system cannot drop a file range from the page cache.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn evict(_fd: RawFd, _offset: i64, _len: i64) -> Result<(), i32> {
    Err(libc::EOPNOTSUPP)
}

/// Memory that this process may use, as reported by the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// The smallest limit of the control groups of this process, bytes.
    pub cgroup: Option<u64>,
    /// Memory that the system can provide without swapping, bytes.
    pub available: Option<u64>,
}

/// Smallest default budget: direct I/O and codecs need at least this much memory.
const LEAST_BUDGET: u64 = 64 << 20;

impl MemoryLimits {
    /// Returns a quarter of the smaller of the two, at least 64 MiB.
    pub fn default_budget(self) -> u64 {
        let smaller = match (self.cgroup, self.available) {
            (Some(group), Some(available)) => group.min(available),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => 0,
        };
        (smaller / 4).max(LEAST_BUDGET)
    }

    /// Returns whether the page cache holds `bytes` bytes of a file until all of them are written,
    /// in addition to `held` bytes of other memory.
    ///
    /// Only half of the memory counts: other programs need some, and the system keeps a part clean.
    pub fn caches(self, bytes: u64, held: u64) -> bool {
        let smaller = self.cgroup.into_iter().chain(self.available).min();
        smaller.is_none_or(|smaller| bytes <= smaller.saturating_sub(held) / 2)
    }
}

/// Reads the limits of the control groups (versions 1 and 2) and `/proc/meminfo`.
pub fn memory() -> MemoryLimits {
    MemoryLimits {
        cgroup: cgroup_limit(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup")),
        available: available_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
    }
}

fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the smallest limit of the process's groups and all groups above them.
fn cgroup_limit(membership: &Path, root: &Path) -> Option<u64> {
    let text = fs::read_to_string(membership).ok()?;
    let mut smallest: Option<u64> = None;
    for line in text.lines() {
        // hierarchy:controllers:path
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (base, file) = if controllers.is_empty() {
            (root.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        // A container often sees its own group as the root, under a path that it cannot see.
        let mut group: PathBuf = path.trim_start_matches('/').into();
        loop {
            let limit = fs::read_to_string(base.join(&group).join(file)).ok();
            // "max", or a number close to 2^63 in version 1, means no limit.
            let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
            if let Some(limit) = limit.filter(|limit| *limit < 1 << 60) {
                smallest = Some(smallest.map_or(limit, |other| other.min(limit)));
            }
            if !group.pop() {
                break;
            }
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    const MIB: i64 = 1 << 20;

    fn scratch(name: &str, len: i64) -> (PathBuf, fs::File) {
        let path =
            std::env::temp_dir().join(format!("outcore-probe-{name}-{}", std::process::id()));
        fs::write(&path, vec![1u8; len as usize]).unwrap();
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn the_page_cache_holds_half_of_what_others_leave() {
        let limits = |cgroup, available| MemoryLimits { cgroup, available };
        let group = limits(Some(128), Some(10_000));
        assert!(group.caches(32, 64) && !group.caches(33, 64) && !group.caches(1, 200));
        assert!(limits(None, Some(128)).caches(64, 0) && !limits(None, Some(128)).caches(65, 0));
        assert!(limits(None, None).caches(u64::MAX, 0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn cached_follows_eviction_and_reading() {
        let (path, file) = scratch("cached", 8 * MIB);
        let fd = file.as_raw_fd();
        assert_eq!(Some(1000), cached(fd, 0, 8 * MIB));
        evict(fd, 0, 8 * MIB).unwrap();
        let cold = cached(fd, 0, 8 * MIB);
        if std::env::temp_dir().starts_with("/dev/shm") || cold == Some(1000) {
            return; // a file system in memory cannot evict
        }
        assert_eq!((Some(0), Some(0)), (cold, resident_by_mincore(fd, 0, 2048, page_size())));
        // Read the second half without read-ahead.
        // SAFETY: plain numbers.
        unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_RANDOM) };
        let mut half = vec![0u8; 4 * MIB as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut half, 4 * MIB as u64).unwrap();
        assert_eq!(Some(1000), cached(fd, 4 * MIB, 4 * MIB));
        assert_eq!(Some(0), cached(fd, 0, 4 * MIB));
        assert_eq!(Some(500), cached(fd, 0, 8 * MIB));
        assert_eq!(Some(1024), resident_by_mincore(fd, 0, 2048, page_size()));
        // Past the end nothing is cached; an empty range is.
        assert_eq!(Some(0), cached(fd, 100 * MIB, MIB));
        assert_eq!(Some(1000), cached(fd, 100 * MIB, 0));
        let sampled = cached_sample(fd, 8, 8, |i| (i as i64 * MIB, 4096));
        assert_eq!(Some(500), sampled);
        let mut looks = 0;
        let sampled = cached_sample(fd, 1 << 40, 16, |i| {
            looks += 1;
            assert!(i < 1 << 40);
            (4 * MIB, 4096)
        });
        assert_eq!((Some(1000), 16), (sampled, looks));
        fs::remove_file(path).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn direct_alignment_is_a_power_of_two_that_works() {
        let (path, file) = scratch("direct", MIB);
        if let Some(alignment) = direct_alignment(&path) {
            assert!(alignment.memory.is_power_of_two() && alignment.offset.is_power_of_two());
            assert!(alignment.offset <= 1 << 20);
        }
        drop(file);
        fs::remove_file(path).unwrap();
        assert_eq!(None, direct_alignment(Path::new("/nonexistent")));
        assert_eq!(None, direct_alignment(Path::new("/proc/self/status")));
    }

    #[test]
    fn the_smallest_limit_up_the_tree_counts() {
        let root = std::env::temp_dir().join(format!("outcore-cgroup-{}", std::process::id()));
        let (unified, old) = (root.join("a/b"), root.join("memory/x"));
        fs::create_dir_all(&unified).unwrap();
        fs::create_dir_all(&old).unwrap();
        let membership = root.join("membership");
        fs::write(&membership, "1:name=systemd:/x\n0::/a/b\n").unwrap();
        assert_eq!(None, cgroup_limit(&membership, &root));
        fs::write(unified.join("memory.max"), "max\n").unwrap();
        fs::write(root.join("a/memory.max"), "1073741824\n").unwrap();
        assert_eq!(Some(1 << 30), cgroup_limit(&membership, &root));
        fs::write(&membership, "9:memory,cpu:/x/y\n").unwrap();
        fs::write(old.join("memory.limit_in_bytes"), "268435456\n").unwrap();
        fs::write(root.join("memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(Some(256 << 20), cgroup_limit(&membership, &root));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_default_budget_is_a_quarter_of_what_there_is() {
        let limits = |cgroup, available| MemoryLimits { cgroup, available };
        assert_eq!(1 << 30, limits(Some(4 << 30), Some(16 << 30)).default_budget());
        assert_eq!(64 << 20, limits(Some(100 << 20), None).default_budget());
        assert_eq!(64 << 20, limits(None, None).default_budget());
        assert_eq!(Some(2048), available_memory("MemTotal: 9 kB\nMemAvailable:    2 kB\n"));
        assert!(memory().default_budget() >= 64 << 20);
    }
}
