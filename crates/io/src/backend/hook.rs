//! What is asked before a call that touches a file: the border between `sys` and fault plans.

/// An error number of the system.
pub type Errno = i32;

/// What a call is about to do: what a fault plan decides upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes from a file.
    Read,
    /// Bytes to a file.
    Write,
    /// `fsync`, `fdatasync`, of files and folders.
    Sync,
    /// `open` that may create.
    Create,
    /// `rename`.
    Rename,
    /// Within a rename that must not replace: the system's own (`renameat2`).
    RenameNew,
    /// Within a rename that must not replace: a second name (`link`), where the system has no own.
    Link,
    /// A rename by which two names change places (`renameat2`).
    Exchange,
    /// `unlink`.
    Unlink,
    /// `ftruncate`.
    Truncate,
    /// `fallocate`.
    Allocate,
    /// `fstatat`: what a name leads to now.
    Look,
}

/// What a fault plan says to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only fault plans say no"))]
pub(crate) enum Hook {
    /// Go on.
    Go,
    /// Transfer at most so many bytes in this call.
    Short(usize),
    /// Behave as if the file ended after so many bytes.
    End(usize),
    /// Fail.
    Fail(Errno),
}
