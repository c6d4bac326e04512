//! Queries before calls that touch files: the border between `sys` and fault plans.

/// An error number of the system.
pub type Errno = i32;

/// Kind of a call, for fault plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reading from a file.
    Read,
    /// Writing to a file.
    Write,
    /// `fsync` or `fdatasync` of files and folders.
    Sync,
    /// `open` that may create.
    Create,
    /// `rename`.
    Rename,
    /// Within a rename that must not replace: the system's own call (`renameat2`).
    RenameNew,
    /// Within a rename that must not replace: a second name (`link`), if the system has no such
    /// call.
    Link,
    /// A rename by which two names are exchanged (`renameat2`).
    Exchange,
    /// `unlink`.
    Unlink,
    /// `ftruncate`.
    Truncate,
    /// `fallocate`.
    Allocate,
    /// `fstatat`: metadata of the file that a name leads to.
    Look,
}

/// Answer of a fault plan to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only fault plans reject requests"))]
pub(crate) enum Hook {
    /// Proceed.
    Go,
    /// Transfer at most this many bytes in this call.
    Short(usize),
    /// Behave as if the file ended after this many bytes.
    End(usize),
    /// Fail with this error number.
    Fail(Errno),
}
