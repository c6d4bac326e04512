//! The planner's input about the machine, the file and the user's hints.
//!
//! All values are integers, so two ranks with equal input make equal choices. The default rates
//! were measured on a two-core machine with one NVMe-like disk; `outcore bench` replaces [`Rates`]
//! by measured values of this machine.

use crate::plan::Method;

/// The largest block of direct I/O; a file that needs a larger one uses the page cache.
const LARGEST_BLOCK: i64 = 64 << 10;

/// The terms of one operation. All sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Total bytes of buffers that the operation may hold.
    pub budget: i64,
    /// Number of rounds that may be in flight concurrently (each with a slot), at least 1.
    pub lanes: i64,
    /// Share of the needed pages that is in the page cache, in thousandths.
    pub cached_permille: i64,
    /// Block size for direct I/O (memory and file alignment), a power of two up to 64 KiB.
    ///
    /// With any other value, there is no direct I/O.
    pub block: i64,
    /// Gaps between two runs below this many bytes are cheaper to read than to skip (cold data).
    pub gap: i64,
    /// The same gap for data in the page cache: the cost of a system call, in bytes copied.
    pub cached_gap: i64,
    /// Runs of at least this many bytes are transferred directly.
    pub straight: i64,
    /// Largest single request.
    pub request: i64,
    /// Window for sieving cached data (about the size of the L2 cache).
    pub window: i64,
    /// Minimum number of bytes of a round, if the access has that many.
    ///
    /// Smaller rounds are not worth passing to another thread.
    pub share: i64,
    /// Number of threads that copy concurrently.
    pub threads: i64,
    /// True if a flush follows a write, so that the time until the data is on the disk counts.
    pub flushed: bool,
    /// True if uncached pages must be read from the disk before a part of them can be written.
    ///
    /// False for files with holes.
    pub stored: bool,
    /// True if files may be mapped.
    pub mapping: bool,
    /// True if direct I/O may be used.
    pub direct: bool,
    /// Address of the caller's array in memory, if direct I/O may use it in place.
    ///
    /// The disk may then write what it reads there, and take data from there for writes that bypass
    /// the page cache.
    pub home: Option<Home>,
    /// True if no other process writes the file.
    ///
    /// A window may then be read, changed and written back.
    pub exclusive: bool,
    /// True if the page cache is too small for the array.
    ///
    /// Written data must then be on the disk before its neighbours are written (`block` is then a
    /// multiple of a page of the page cache), and data read ahead is evicted before it is used.
    pub scarce: bool,
    /// Method forced by a hint; with `None` the planner chooses.
    pub method: Option<Method>,
    /// Measured rates of the machine.
    pub rates: Rates,
    /// Memory that encoded chunks need in addition to themselves.
    pub coding: Coding,
    /// Page faults of a read through a mapping; None, which counts as no page faults, if unknown.
    pub faults: Option<Faults>,
}

/// Known properties of the page faults of a read.
///
/// Page faults enter pages into a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Share of the read's pages that is not in the mapping yet, in thousandths.
    pub absent: i64,
    /// Share of the absent pages for which a page fault enters a folio of 2 MiB, in thousandths.
    ///
    /// Other page faults enter 64 KiB.
    pub large: i64,
    /// Number of chunks for which the access uses a new mapping; 0 if the mapping is reused later.
    pub chunks: i64,
    /// Extra cost of earlier reads by calls, nanoseconds.
    ///
    /// Extra means: compared with reads through a mapping that has all pages.
    pub rent: i64,
}

impl Faults {
    /// Page faults of files that are mapped for one access, with `chunks` chunks in each.
    pub fn of_new(chunks: i64) -> Faults {
        Faults { absent: 1000, large: 0, chunks: chunks.max(1), rent: 0 }
    }
}

/// Address of the caller's array in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// Address of its element `[0, ..., 0]`; only its value modulo a page is used.
    pub at: i64,
    /// Bytes of a page of memory, a power of two.
    pub page: i64,
}

impl Home {
    /// Returns whether memory at this address, modulo a page, is aligned for elements of all types.
    pub fn fits(at: i64) -> bool {
        at % 16 == 0
    }
}

/// Memory that coding needs, bytes.
///
/// Scratch is part of slots and is used by the chunks of a round one after another. Contexts are
/// separate from slots, one for each round in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coding {
    /// Scratch for decoding a chunk, in addition to its stored bytes.
    pub decode_scratch: i64,
    /// Scratch for encoding a chunk, including the result.
    pub encode_scratch: i64,
    /// Contexts of a thread that decodes.
    pub decoder: i64,
    /// Contexts of a thread that encodes.
    pub encoder: i64,
    /// Contexts of a thread that does both.
    pub both: i64,
    /// Bytes that the receiver of encoded chunks holds, once, while chunks are encoded.
    pub held: i64,
    /// Bytes that it may hold in addition.
    pub spare: i64,
}

impl Coding {
    /// Bytes of contexts of a round.
    pub(crate) fn contexts(&self, decodes: bool, encodes: bool) -> i64 {
        match (decodes, encodes) {
            (false, false) => 0,
            (true, false) => self.decoder,
            (false, true) => self.encoder,
            (true, true) => self.both,
        }
    }
}

/// Measured rates of the machine, for estimated times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Cost of one more request to a disk with a full queue, nanoseconds.
    pub latency_ns: i64,
    /// Bytes per second of a request beyond its latency.
    pub device: i64,
    /// Maximum bytes per second of the disk.
    pub stream: i64,
    /// One system call on cached data, nanoseconds.
    pub call_ns: i64,
    /// Extra time of a call that is one of many, each in a different page, nanoseconds.
    ///
    /// Neither the page's descriptor nor its bytes are then in the processor's caches (16384 calls
    /// of 4 bytes: 11 to 15 ms).
    pub lone_ns: i64,
    /// One small write into the page cache, nanoseconds.
    ///
    /// ext4 walks all blocks of the folio (2 MiB if the file was read in order), which takes 7 us;
    /// it takes 1 us if folios are pages.
    pub write_call_ns: i64,
    /// Bytes per second of a cached `pread` into a small buffer.
    pub pread: i64,
    /// Bytes per second of a cached `pread` into a large buffer.
    pub pread_large: i64,
    /// Bytes per second of a `pwrite` of cached pages.
    pub write: i64,
    /// Bytes per second of a copy out of a mapping.
    pub mapped: i64,
    /// Bytes per second of a copy between buffers in the processor's cache.
    pub copy: i64,
    /// One contiguous piece of a strided copy, picoseconds.
    pub piece_ps: i64,
    /// First touch of a mapped page, nanoseconds.
    pub touch_ns: i64,
    /// A page fault that enters the cached pages around it into a new mapping, nanoseconds.
    pub fault_ns: i64,
    /// First write to a clean mapped page (it notifies the file system), nanoseconds.
    ///
    /// Measured: 500 in order, 1000 to 1500 for one page in sixteen; 1500 if folios are pages.
    pub dirty_ns: i64,
    /// First write to a clean mapped page while other processes do the same, nanoseconds.
    ///
    /// The other processes write to the same file.
    ///
    /// Measured: 65536 pages took four ranks 355 ms, 32768 calls of 8 KiB 164 ms.
    pub contended_dirty_ns: i64,
    /// First write to a clean mapped page, as an average over ranks, nanoseconds.
    ///
    /// The ranks write concurrently.
    ///
    /// It is used for the estimated times of collectives (record 0019: in 41 of 42 rows, the method
    /// with the lower estimate was the faster one, or within a tenth of it).
    pub ranks_dirty_ns: i64,
    /// Bytes per second of a codec.
    pub codec: i64,
    /// Setup of a mapping for one read, nanoseconds.
    pub map_ns: i64,
    /// The calls that create a mapping of a file and remove it, nanoseconds.
    pub fresh_map_ns: i64,
    /// Setup of a mapping for one write, nanoseconds; a few small writes are therefore plain calls.
    pub map_write_ns: i64,
}

impl Rates {
    /// The rates of the first machine that was measured.
    pub const MEASURED: Rates = Rates {
        latency_ns: 9_500,
        device: 2_600_000_000,
        stream: 2_800_000_000,
        call_ns: 300,
        lone_ns: 450,
        write_call_ns: 6_000,
        pread: 9_000_000_000,
        pread_large: 6_900_000_000,
        write: 4_000_000_000,
        mapped: 16_000_000_000,
        copy: 20_000_000_000,
        piece_ps: 700,
        touch_ns: 25,
        fault_ns: 1_500,
        dirty_ns: 750,
        contended_dirty_ns: 5_000,
        ranks_dirty_ns: 1_750,
        codec: 800_000_000,
        map_ns: 1_500,
        fresh_map_ns: 13_000,
        map_write_ns: 12_000,
    };
}

impl Terms {
    /// Default terms for an operation that may hold `budget` bytes.
    ///
    /// They assume cold data, no direct I/O, no mapping, and files shared with other processes.
    /// Callers enable the features of their system and file.
    pub fn new(budget: i64) -> Terms {
        Terms {
            budget,
            lanes: 4,
            cached_permille: 0,
            block: 4096,
            gap: 24 << 10,
            cached_gap: 4096,
            straight: 64 << 10,
            request: 1 << 20,
            window: 512 << 10,
            share: 1 << 20,
            threads: 1,
            flushed: false,
            stored: true,
            mapping: false,
            direct: false,
            home: None,
            exclusive: false,
            scarce: false,
            method: None,
            rates: Rates::MEASURED,
            coding: Coding::default(),
            faults: None,
        }
    }

    /// The same terms with every value limited to the range that planning supports.
    pub(crate) fn sane(&self) -> Terms {
        let mut t = self.clone();
        t.budget = t.budget.clamp(0, 1 << 60);
        t.lanes = t.lanes.clamp(1, 1 << 10);
        t.cached_permille = t.cached_permille.clamp(0, 1000);
        // Direct I/O in larger blocks is not used; the memory for counting its bytes would be
        // proportional to the block.
        if !(1..=LARGEST_BLOCK).contains(&t.block) || t.block & (t.block - 1) != 0 {
            t.block = 4096;
            t.direct = false;
        }
        t.home = t.home.filter(|home| (1..=LARGEST_BLOCK).contains(&home.page)).map(|home| {
            let page = home.page.max(t.block);
            Home { at: home.at.rem_euclid(page), page }
        });
        t.home = t.home.filter(|home| home.page & (home.page - 1) == 0);
        t.gap = t.gap.clamp(0, 1 << 40);
        t.cached_gap = t.cached_gap.clamp(0, 1 << 40);
        t.straight = t.straight.clamp(1, 1 << 40);
        t.request = t.request.clamp(t.block, 1 << 30) / t.block * t.block;
        t.share = t.share.clamp(1, 1 << 24);
        t.threads = t.threads.clamp(1, 1 << 10);
        t.window = t.window.clamp(1, 1 << 28);
        t.faults = t.faults.map(|faults| Faults {
            absent: faults.absent.clamp(0, 1000),
            large: faults.large.clamp(0, 1000),
            chunks: faults.chunks.max(0),
            rent: faults.rent.clamp(0, 1 << 60),
        });
        let coding = &mut t.coding;
        for bytes in [
            &mut coding.decode_scratch,
            &mut coding.encode_scratch,
            &mut coding.decoder,
            &mut coding.encoder,
            &mut coding.both,
            &mut coding.held,
            &mut coding.spare,
        ] {
            *bytes = (*bytes).clamp(0, 1 << 60);
        }
        t
    }
}
