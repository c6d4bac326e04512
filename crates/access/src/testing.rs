//! Shared helpers of the tests of this crate: folders, arrays, interrupts, and the budget for one test at a
//! time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outcore_io::exec::User;
use outcore_io::{Arena, Pipeline};
use outcore_plan::collective::{self, Agreed, ArrayDescriptor, Collective, Cut, Job, Share};
use outcore_plan::{Chunked, Direction, Layout, Order, Part, Section, Strided};

use crate::described::{packed, Described, Source};
use crate::hints::Hints;
use crate::interrupt::Interrupts;
use crate::open::Open;
use crate::step::{reach, Access};

/// A folder that is removed at the end of the test.
pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new(name: &str) -> TestDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("outcore-access-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&path).unwrap();
        TestDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sets the budget. While a test holds the result, no other test uses the budget, the turns and the loops of
/// the process.
pub fn budget(bytes: u64) -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    Arena::global().set_limit(bytes);
    one
}

/// Never interrupts.
pub struct Never;

impl Interrupts for Never {
    fn check(&self) -> bool {
        false
    }

    fn raised(&self) -> bool {
        false
    }
}

/// Interrupts on request; counts how often it was asked.
#[derive(Default)]
pub struct Button {
    pressed: AtomicBool,
    asked: AtomicU32,
}

impl Button {
    pub fn press(&self) {
        self.pressed.store(true, Ordering::SeqCst);
    }

    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Interrupts for Button {
    fn check(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.raised()
    }

    fn raised(&self) -> bool {
        self.pressed.load(Ordering::SeqCst)
    }
}

/// Returns an array in one file, with elements in C order and without gaps.
pub fn dense(file: &Path, shape: &[i64], item: i64) -> Described {
    let strides = packed(shape, item, false);
    let len = shape.iter().product::<i64>() * item;
    let parts = vec![Part { file: 0, offset: 0, len }];
    let layout = Strided::new(shape.to_vec(), item, strides, parts).unwrap();
    Described {
        path: "a.raw".to_owned(),
        layout: Layout::Strided(layout),
        fortran: false,
        fill: vec![],
        fill_held: None,
        files: vec![file.to_path_buf()],
        originals: Box::new(Vec::new),
        plain: true,
        guard: None,
        source: None,
        pipeline: Pipeline::new(&[], 0).unwrap(),
        strings: vec![],
    }
}

/// Returns an array of chunks that are stored without encoding, one file per chunk.
pub fn chunked(folder: &Path, shape: &[i64], chunk: &[i64], fill: u8) -> Described {
    let strides = Order::C.strides(chunk, 1).unwrap();
    let layout = Chunked::new(shape.to_vec(), 1, chunk.to_vec(), strides, false, 0).unwrap();
    let lock = folder.join("lock");
    std::fs::write(&lock, b"").unwrap();
    let source = Source::Files {
        root: folder.to_path_buf(),
        prefix: "c/".to_owned(),
        separator: "/".to_owned(),
        lock,
        identity: None,
        shard: None,
    };
    Described {
        path: "a.zarr".to_owned(),
        layout: Layout::Chunked(layout),
        fortran: false,
        fill: vec![fill],
        fill_held: None,
        files: vec![],
        originals: Box::new(Vec::new),
        plain: false,
        guard: None,
        source: Some(source),
        pipeline: Pipeline::new(&[], 0).unwrap(),
        strings: vec![],
    }
}

/// Opens an array for writing.
pub fn open(described: Described) -> Open {
    Open::new(Arc::new(described), true).unwrap()
}

/// Returns a section with start, count and step of each axis.
pub fn section(axes: &[(i64, i64, i64)]) -> Section {
    let range = |(start, count, step): &(i64, i64, i64)| {
        outcore_plan::Range::new(*start, *count, *step).unwrap()
    };
    Section::new(axes.iter().map(range).collect())
}

/// Returns an access to a section that is packed in memory, with elements of `item` bytes.
pub fn access<'a>(
    direction: Direction,
    section: &'a Section,
    (strides, item): (&'a [i64], i64),
    memory: &'a mut [u8],
    hints: &'a Hints,
) -> Access<'a> {
    let (low, high) = reach(section, strides, item);
    assert!(low == 0 && high <= memory.len() as i64, "the memory of a test is too small");
    Access { direction, section, strides, data: User::of(memory, 0), hints }
}

/// Returns the plan of a collective of ranks that make these accesses to one array; each of them owns a part
/// of it.
pub fn collective(
    descriptor: ArrayDescriptor,
    ranks: u32,
    accesses: Vec<collective::Access>,
    slot: i64,
    write: bool,
) -> Collective {
    let shares = (0..ranks).map(|rank| Share { rank, part: 1 }).collect();
    let (gap, align, least, cut) = (1 << 20, 1, 1, Cut::Requested);
    let agreed = Agreed { ranks, slot, gap, align, least, cut, write };
    let plan = Collective::new(vec![Job { descriptor, accesses, shares }], &agreed).unwrap();
    assert!(plan.rounds() > 1 && plan.owners().count() == ranks as usize);
    plan
}
