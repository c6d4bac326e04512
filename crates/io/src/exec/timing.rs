//! Rates of the drivers on this machine; prints, asserts nothing.
//!
//! `OUTCORE_BENCH_FILE=/path/to/1GiB cargo test --release -p outcore-io timing -- --ignored
//! --nocapture`; `OUTCORE_BENCH_COLD=1` drops the file from the page cache before each run.

#![allow(unsafe_code)]
#![cfg(target_os = "linux")]

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use outcore_plan::{Layout, Part, Range, Request, Section, Strided, Terms};

use super::*;

const N: i64 = 16384;

fn drop_cache(path: &Path) {
    let file = crate::OpenFile::open(path, false).unwrap();
    // SAFETY: advice on an open descriptor.
    unsafe { libc::posix_fadvise(file.fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Returns the file, made if necessary: 16384 x 16384 elements of 4 bytes.
fn the_file() -> PathBuf {
    let path = PathBuf::from(std::env::var_os("OUTCORE_BENCH_FILE").unwrap());
    if std::fs::metadata(&path).map_or(0, |meta| meta.len()) < (N * N * 4) as u64 {
        let row: Vec<u8> = (0..N * 4 * 64).map(|k| (k >> 2) as u8).collect();
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
        for _ in 0..N / 64 {
            std::io::Write::write_all(&mut file, &row).unwrap();
        }
        file.into_inner().unwrap().sync_all().unwrap();
    }
    path
}

#[test]
#[ignore = "prints rates, asserts nothing"]
fn timing() {
    let path = the_file();
    let cold = std::env::var_os("OUTCORE_BENCH_COLD").is_some();
    let write = std::env::var_os("OUTCORE_BENCH_WRITE").is_some();
    let direction = if write { Direction::Write } else { Direction::Read };
    let parts = vec![Part { file: 0, offset: 0, len: N * N * 4 }];
    let strides = vec![N * 4, 4];
    let layout = Layout::Strided(Strided { shape: vec![N, N], item: 4, strides, parts });
    let sections = [
        ("1000 elements", [(5, 1, 1), (0, 1000, 1)]),
        ("1 MB rows", [(100, 16, 1), (0, N, 1)]),
        ("16 MB rows", [(100, 256, 1), (0, N, 1)]),
        ("256 MB rows", [(100, 4096, 1), (0, N, 1)]),
        ("64 MB window", [(100, 4096, 1), (1000, 4096, 1)]),
        ("[::7, ::5]", [(0, N / 7, 7), (0, N / 5, 5)]),
        ("[::2, ::2] 64 MB", [(0, N / 4, 2), (0, N / 2, 2)]),
        ("one column", [(0, N, 1), (77, 1, 1)]),
        ("ten columns", [(0, N, 1), (77, 10, 1)]),
        ("strided window", [(1000, 2000, 4), (1000, 2000, 4)]),
    ];
    let files = crate::FileTable::new(vec![path.clone()], write);
    let arena = Arena::new(5 << 30);
    let mut memory = vec![1u8; 300 << 20];
    let uring = crate::backend::uring::Uring;
    for (name, ranges) in sections {
        let range = |(start, count, step)| Range::new(start, count, step).unwrap();
        let section = Section::new(ranges.into_iter().map(range).collect());
        for transposed in [false, true] {
            if transposed && (cold || write || name != "64 MB window") {
                continue;
            }
            let (n0, n1) = (ranges[0].1, ranges[1].1);
            let user_stride = if transposed { [4, n0 * 4] } else { [n1 * 4, 4] };
            let user_stride = &user_stride;
            let request =
                Request { layout: &layout, table: None, section: &section, user_stride, direction };
            print!("{name:18}{}", if transposed { "T" } else { " " });
            for method in [
                None,
                Some(Method::Straight),
                Some(Method::Window),
                Some(Method::Mapped),
                Some(Method::List),
            ] {
                let runs = n1 < 1000 || ranges[1].2 > 1 || transposed;
                if method == Some(Method::Straight) && runs {
                    continue; // one system call for each element: known to be slow
                }
                let terms = Terms {
                    lanes: if method == Some(Method::List) { 4 } else { 2 },
                    cached_permille: if cold { 0 } else { 1000 },
                    mapping: true,
                    direct: cold,
                    method,
                    ..Terms::new(256 << 20)
                };
                let Ok(plan) = Plan::new(&request, &terms) else { continue };
                for threads in [1, 2] {
                    let mut times = Vec::new();
                    for _ in 0..if cold { 3 } else { 15 } {
                        if cold {
                            drop_cache(&path);
                        }
                        let user = User::of(&mut memory[..], 0);
                        let job = Job {
                            plan: &plan,
                            direction,
                            files: &files,
                            user,
                            fill: &[],
                            pipeline: None,
                            sink: None,
                            engine: &uring,
                            arena: &arena,
                            chunk_cache: CacheUse::Never,
                            threads,
                            cached: !cold,
                            flushed: false,
                            interrupted: &|| false,
                        };
                        let start = Instant::now();
                        run(&job).unwrap();
                        times.push(start.elapsed().as_secs_f64() * 1e3);
                    }
                    times.sort_by(f64::total_cmp);
                    let chosen = method.unwrap_or(plan.method());
                    let mark = if method.is_none() { "chosen " } else { "" };
                    print!("  {mark}{chosen:?}/{threads} {:.3}", times[0]);
                }
            }
            println!();
        }
    }
}

/// Measures the disk without other work: the reference of the driver for cold reads.
#[test]
#[ignore = "prints rates, asserts nothing"]
fn raw_device() {
    let path = the_file();
    let file = crate::OpenFile::open(&path, false).unwrap();
    let direct = file.direct().unwrap();
    let fd = direct.as_raw_fd();
    let arena = Arena::new(1 << 30);
    let buffer = arena.buffer("a test", 32 << 20).unwrap();
    for (len, total) in [(1usize << 20, 256usize << 20), (256 << 10, 256 << 20), (4096, 64 << 20)] {
        for depth in [8usize, 32, 128] {
            let mut best = f64::MAX;
            for _ in 0..5 {
                let start = Instant::now();
                let mut session = crate::backend::uring::Uring.session(128).unwrap();
                let (mut sent, mut done) = (0, Vec::new());
                let spread = (1usize << 30) / (total / len);
                while sent < total / len || session.pending() > 0 {
                    while sent < total / len && session.pending() < depth.min((32 << 20) / len) {
                        let at = (sent * len) % (32 << 20);
                        let request = crate::backend::Request {
                            tag: 0,
                            fd,
                            offset: (sent * spread / len * len) as i64,
                            len,
                            memory: buffer.as_ptr().wrapping_add(at),
                            write: false,
                            dontcache: false,
                        };
                        // SAFETY: inside the buffer, which outlives the session.
                        unsafe { session.submit(request) };
                        sent += 1;
                    }
                    session.wait(1, &mut done).unwrap();
                    done.clear();
                }
                best = best.min(start.elapsed().as_secs_f64());
            }
            let (rate, count) = (total as f64 / best / 1e9, (total / len) as f64 / best / 1e3);
            println!("raw {len:8} bytes, depth {depth:3}: {rate:.2} GB/s, {count:.0} K/s");
        }
    }
}
