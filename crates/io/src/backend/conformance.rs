//! Requirements on every engine: one list of tests, run against each of them.

#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use super::{Completion, Engine, Request, Session};

macro_rules! backend_conformance {
    ($($engine:ident: $make:expr;)*) => { $(
        mod $engine {
            backend_conformance!(@tests $make; reads writes_and_reads_back far_offsets
                short_reads_at_the_end errors_carry_the_errno more_requests_than_depth
                polling_never_blocks limited_waits_bring_all dropping_waits works_in_a_forked_child
                requests_of_length_zero many_sessions_at_once uncached_io);
        }
    )* };
    (@tests $make:expr; $($test:ident)*) => { $(
        #[test]
        fn $test() {
            super::$test(&$make);
        }
    )* };
}

backend_conformance! {
    threads: crate::backend::threads::Threads;
    memory: crate::backend::memory::Memory { seed: 7 };
}

#[cfg(target_os = "linux")]
backend_conformance! {
    uring: super::permitted_uring();
}

#[cfg(feature = "testing")]
backend_conformance! {
    faulty_threads: super::faulty(std::sync::Arc::new(crate::backend::threads::Threads));
    faulty_memory: super::faulty(std::sync::Arc::new(crate::backend::memory::Memory { seed: 3 }));
}

#[cfg(feature = "testing")]
fn faulty(inner: std::sync::Arc<dyn Engine>) -> impl Engine {
    use crate::backend::faulty::{Fault, Faults, Faulty, Rule};
    // Short transfers and delays must not be visible in results.
    let rules = [
        Rule::every(5, Fault::Short(100)),
        Rule::every(7, Fault::Delay(std::time::Duration::from_micros(300))),
    ];
    Faulty::new(inner, Faults::new(rules))
}

/// Returns the engine; on a machine that forbids io_uring, prints that the tests run on its
/// fallback.
#[cfg(target_os = "linux")]
fn permitted_uring() -> crate::backend::uring::Uring {
    if let Err(why) = crate::backend::uring::permitted() {
        eprintln!("io_uring: {why}; testing the fallback");
    }
    crate::backend::uring::Uring
}

/// A file in a temporary folder, removed at the end.
struct Scratch(PathBuf, File);

impl Scratch {
    fn new(content: &[u8]) -> Scratch {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("outcore-engine-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all_at(content, 0).unwrap();
        Scratch(path, file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn read(file: &File, tag: u64, offset: i64, into: &mut [u8]) -> Request {
    let (fd, memory, len) = (file.as_raw_fd(), into.as_mut_ptr(), into.len());
    Request { tag, fd, offset, len, memory, write: false, dontcache: false }
}

fn write(file: &File, tag: u64, offset: i64, from: &[u8]) -> Request {
    let (fd, memory, len) = (file.as_raw_fd(), from.as_ptr().cast_mut(), from.len());
    Request { tag, fd, offset, len, memory, write: true, dontcache: false }
}

/// Submits a request; the caller keeps the memory until [`all`] has returned.
fn submit(session: &mut dyn Session, request: Request) {
    // SAFETY: every test below keeps its buffers until it has waited or dropped the session.
    unsafe { session.submit(request) };
}

/// Waits for all pending requests; returns completions sorted by tag.
fn all(session: &mut dyn Session) -> Vec<Completion> {
    let mut done = Vec::new();
    while session.pending() > 0 {
        let before = done.len();
        session.wait(1, &mut done).unwrap();
        assert!(done.len() > before, "wait(1) brought nothing");
    }
    done.sort_by_key(|completion| completion.tag);
    done
}

fn ok(tag: u64, count: usize) -> Completion {
    Completion { tag, result: Ok(count) }
}

fn reads(engine: &dyn Engine) {
    let content = pattern(100_000);
    let scratch = Scratch::new(&content);
    let mut session = engine.session(8).unwrap();
    assert_eq!(8, session.room());
    let mut parts = vec![vec![0u8; 1000]; 8];
    for (tag, part) in (0..).zip(&mut parts) {
        submit(&mut *session, read(&scratch.1, tag, tag as i64 * 12_345, part));
    }
    assert_eq!((0, 8), (session.room(), session.pending()));
    session.flush().unwrap();
    let done = all(&mut *session);
    assert_eq!((0..8).map(|tag| ok(tag, 1000)).collect::<Vec<_>>(), done);
    for (tag, part) in parts.iter().enumerate() {
        assert_eq!(&content[tag * 12_345..][..1000], part);
    }
}

fn writes_and_reads_back(engine: &dyn Engine) {
    let content = pattern(3 << 20);
    let scratch = Scratch::new(b"");
    let mut session = engine.session(4).unwrap();
    let step = 300_001;
    for (tag, part) in (0..).zip(content.chunks(step)) {
        submit(&mut *session, write(&scratch.1, tag, tag as i64 * step as i64, part));
    }
    for completion in all(&mut *session) {
        let start = completion.tag as usize * step;
        assert_eq!(Ok(step.min(content.len() - start)), completion.result);
    }
    let mut seen = vec![0; content.len()];
    submit(&mut *session, read(&scratch.1, 9, 0, &mut seen));
    assert_eq!(vec![ok(9, content.len())], all(&mut *session));
    assert!(seen == content);
}

fn far_offsets(engine: &dyn Engine) {
    let scratch = Scratch::new(b"");
    let mut session = engine.session(4).unwrap();
    let offsets = [(1 << 32) - 3, (1 << 33) + 5, 5 << 32];
    let word = *b"beyond";
    for (tag, offset) in (0..).zip(offsets) {
        submit(&mut *session, write(&scratch.1, tag, offset, &word));
    }
    assert!(all(&mut *session).iter().all(|completion| completion.result == Ok(6)));
    let mut seen = [[0u8; 6]; 3];
    for ((tag, offset), into) in (0..).zip(offsets).zip(&mut seen) {
        submit(&mut *session, read(&scratch.1, tag, offset, into));
    }
    let mut hole = [1u8; 16];
    submit(&mut *session, read(&scratch.1, 3, 3 << 32, &mut hole));
    assert_eq!(4, all(&mut *session).len());
    assert_eq!(([word; 3], [0; 16]), (seen, hole));
}

fn short_reads_at_the_end(engine: &dyn Engine) {
    let content = pattern(10_000);
    let scratch = Scratch::new(&content);
    let mut session = engine.session(4).unwrap();
    let (mut across, mut behind, mut exact) = ([0u8; 4096], [7u8; 64], [0u8; 1000]);
    submit(&mut *session, read(&scratch.1, 0, 9_000, &mut across));
    submit(&mut *session, read(&scratch.1, 1, 20_000, &mut behind));
    submit(&mut *session, read(&scratch.1, 2, 9_000, &mut exact));
    assert_eq!(vec![ok(0, 1000), ok(1, 0), ok(2, 1000)], all(&mut *session));
    assert_eq!((&content[9_000..], [7u8; 64]), (&across[..1000], behind));
}

fn errors_carry_the_errno(engine: &dyn Engine) {
    let scratch = Scratch::new(b"0123456789");
    let readable = File::open(&scratch.0).unwrap();
    let folder = File::open(std::env::temp_dir()).unwrap();
    let mut session = engine.session(4).unwrap();
    let (mut a, mut b, mut c) = ([0u8; 4], [0u8; 4], [0u8; 10]);
    submit(&mut *session, write(&readable, 0, 0, &a));
    submit(&mut *session, read(&folder, 1, 0, &mut a));
    submit(&mut *session, read(&scratch.1, 2, -1, &mut b));
    submit(&mut *session, Request { fd: 1 << 20, ..read(&scratch.1, 3, 0, &mut b) });
    submit(&mut *session, read(&scratch.1, 4, 0, &mut c));
    let done = all(&mut *session);
    let results: Vec<_> = done.iter().map(|completion| completion.result).collect();
    let wanted = [libc::EBADF, libc::EISDIR, libc::EINVAL, libc::EBADF];
    assert_eq!(wanted.map(Err).as_slice(), &results[..4]);
    assert_eq!((Ok(10), b"0123456789"), (results[4], &c));
}

fn more_requests_than_depth(engine: &dyn Engine) {
    let content = pattern(1 << 20);
    let scratch = Scratch::new(&content);
    for depth in [1, 3, 128, 100_000] {
        let mut session = engine.session(depth).unwrap();
        let mut parts = vec![[0u8; 512]; 1000];
        for (tag, part) in (0..).zip(&mut parts) {
            submit(&mut *session, read(&scratch.1, tag, tag as i64 * 1000, part));
        }
        assert_eq!(1000, session.pending());
        let mut done = Vec::new();
        session.wait(10, &mut done).unwrap();
        assert!(done.len() >= 10);
        assert_eq!(1000, done.len() + session.pending());
        done.extend(all(&mut *session));
        done.sort_by_key(|completion| completion.tag);
        assert_eq!((0..1000).map(|tag| ok(tag, 512)).collect::<Vec<_>>(), done);
        for (number, part) in parts.iter().enumerate() {
            assert_eq!(&content[number * 1000..][..512], part);
        }
    }
}

fn polling_never_blocks(engine: &dyn Engine) {
    let scratch = Scratch::new(&pattern(4096));
    let mut session = engine.session(2).unwrap();
    let mut done = Vec::new();
    session.wait(0, &mut done).unwrap();
    session.wait(5, &mut done).unwrap(); // nothing is pending, so it returns immediately
    assert!(done.is_empty());
    let mut into = [0u8; 4096];
    submit(&mut *session, read(&scratch.1, 1, 0, &mut into));
    session.wait(0, &mut done).unwrap();
    session.wait(100, &mut done).unwrap();
    assert_eq!(vec![ok(1, 4096)], done);
}

fn limited_waits_bring_all(engine: &dyn Engine) {
    let content = pattern(1 << 20);
    let scratch = Scratch::new(&content);
    for depth in [1, 16] {
        let mut session = engine.session(depth).unwrap();
        let (mut done, moment) = (Vec::new(), Duration::from_micros(20));
        session.wait_for(moment, &mut done).unwrap(); // nothing is pending
        assert!(done.is_empty());
        let mut parts = vec![[0u8; 512]; 200];
        for (tag, part) in (0..).zip(&mut parts) {
            submit(&mut *session, read(&scratch.1, tag, tag as i64 * 1000, part));
        }
        while session.pending() > 0 {
            session.wait_for(moment, &mut done).unwrap();
            assert_eq!(200, done.len() + session.pending());
        }
        done.sort_by_key(|completion| completion.tag);
        assert_eq!((0..200).map(|tag| ok(tag, 512)).collect::<Vec<_>>(), done);
        for (number, part) in parts.iter().enumerate() {
            assert_eq!(&content[number * 1000..][..512], part);
        }
    }
}

fn dropping_waits(engine: &dyn Engine) {
    let content = pattern(8 << 20);
    let scratch = Scratch::new(&content);
    let mut parts = vec![vec![0u8; 1 << 20]; 8];
    let mut session = engine.session(8).unwrap();
    for (tag, part) in (0..).zip(&mut parts) {
        submit(&mut *session, read(&scratch.1, tag, (tag as i64) << 20, part));
    }
    session.flush().unwrap();
    drop(session);
    // From here on the memory is ours: any change now was written too late.
    for part in &mut parts {
        part.fill(0xee);
    }
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(parts.iter().flatten().all(|byte| *byte == 0xee));
    // The previous session does not disturb the next one of this thread.
    let mut session = engine.session(8).unwrap();
    submit(&mut *session, read(&scratch.1, 77, 0, &mut parts[0]));
    assert_eq!(vec![ok(77, 1 << 20)], all(&mut *session));
}

fn works_in_a_forked_child(engine: &dyn Engine) {
    let content = pattern(100_000);
    let scratch = Scratch::new(&content);
    let mut seen = vec![0u8; 100_000];
    // The parent's threads or ring exist before the fork, and a session stays open across it.
    let mut session = engine.session(4).unwrap();
    submit(&mut *session, read(&scratch.1, 1, 0, &mut seen));
    assert_eq!(vec![ok(1, 100_000)], all(&mut *session));
    // SAFETY: the child reads through its own session and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(session);
        seen.fill(0);
        let good = engine.session(4).is_ok_and(|mut own| {
            submit(&mut *own, read(&scratch.1, 2, 0, &mut seen));
            let mut done = Vec::new();
            own.wait(1, &mut done).is_ok() && done == [ok(2, 100_000)] && seen == content
        });
        // SAFETY: ends the child here.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(child, unsafe { libc::waitpid(child, &mut status, 0) });
    assert_eq!(0, status, "the child could not read");
    submit(&mut *session, read(&scratch.1, 3, 0, &mut seen));
    assert_eq!(vec![ok(3, 100_000)], all(&mut *session));
}

fn requests_of_length_zero(engine: &dyn Engine) {
    let scratch = Scratch::new(b"abc");
    let mut session = engine.session(2).unwrap();
    submit(&mut *session, read(&scratch.1, 0, 1, &mut []));
    submit(&mut *session, write(&scratch.1, 1, 1, &[]));
    assert_eq!(vec![ok(0, 0), ok(1, 0)], all(&mut *session));
    assert_eq!(3, scratch.1.metadata().unwrap().len());
}

fn many_sessions_at_once(engine: &dyn Engine) {
    let content = pattern(1 << 20);
    let scratch = Scratch::new(&content);
    std::thread::scope(|scope| {
        for worker in 0..6usize {
            let (content, file) = (&content, &scratch.1);
            scope.spawn(move || {
                let mut sessions: Vec<_> = (0..3).map(|_| engine.session(16).unwrap()).collect();
                let mut parts = vec![[0u8; 700]; 300];
                for (number, part) in parts.iter_mut().enumerate() {
                    let offset = (worker * 40_009 + number * 997) as i64;
                    submit(&mut *sessions[number % 3], read(file, number as u64, offset, part));
                }
                let done: usize =
                    sessions.iter_mut().map(|session| all(&mut **session).len()).sum();
                assert_eq!(300, done);
                for (number, part) in parts.iter().enumerate() {
                    assert_eq!(&content[worker * 40_009 + number * 997..][..700], part);
                }
            });
        }
    });
}

fn uncached_io(engine: &dyn Engine) {
    let content = pattern(1 << 20);
    let scratch = Scratch::new(b"");
    let mut session = engine.session(2).unwrap();
    submit(&mut *session, Request { dontcache: true, ..write(&scratch.1, 0, 0, &content) });
    assert_eq!(vec![ok(0, content.len())], all(&mut *session));
    let mut seen = vec![0u8; content.len()];
    submit(&mut *session, Request { dontcache: true, ..read(&scratch.1, 1, 0, &mut seen) });
    assert_eq!(vec![ok(1, content.len())], all(&mut *session));
    assert!(seen == content);
    // The anonymous files of the memory engine do not support the flag: it is dropped silently.
    let memory = super::memory::file(&content[..5000]).unwrap();
    let mut small = [0u8; 5000];
    let plain = Request { fd: memory.as_raw_fd(), ..read(&scratch.1, 2, 0, &mut small) };
    submit(&mut *session, Request { dontcache: true, ..plain });
    assert_eq!(vec![ok(2, 5000)], all(&mut *session));
    assert_eq!(&content[..5000], &small);
}
