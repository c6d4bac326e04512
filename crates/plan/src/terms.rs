//! What the planner is told about the machine, the file and the user's hints.
//!
//! Integers only: two ranks that are told the same choose the same. The default figures were
//! measured on a two-core machine with one NVMe-like disk; `outcore bench` replaces [`Rates`] by
//! those of this machine.

use crate::plan::Method;

/// The largest block of direct I/O that is used; a file that asks for more goes through the cache.
const LARGEST_BLOCK: i64 = 64 << 10;

/// The terms of one operation. All sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Bytes of buffer the operation may hold in all.
    pub budget: i64,
    /// Rounds that may be in flight at once (each with its own slot), at least 1.
    pub lanes: i64,
    /// Share of the needed pages that are in the page cache, in thousandths.
    pub cached_permille: i64,
    /// Block size for direct I/O (memory and file alignment), a power of two up to 64 KiB; there is
    /// none with any other.
    pub block: i64,
    /// A gap between two runs below this many bytes is cheaper to read than to skip (cold data).
    pub gap: i64,
    /// The same for data in the page cache: what a system call costs, in bytes copied.
    pub cached_gap: i64,
    /// Runs of at least this many bytes go straight.
    pub straight: i64,
    /// Largest single request.
    pub request: i64,
    /// Window for sieving cached data (about the size of the L2 cache).
    pub window: i64,
    /// Rounds have at least this many bytes where there are so many; smaller ones are not worth
    /// handing to another thread.
    pub share: i64,
    /// Threads that copy side by side.
    pub threads: i64,
    /// Whether a flush will follow a write, so that what counts is when it is on the disk.
    pub flushed: bool,
    /// Whether pages that are not cached have to come from the disk before a part of them can be
    /// written; not where files have holes.
    pub stored: bool,
    /// Whether files may be mapped.
    pub mapping: bool,
    /// Whether direct I/O may be used.
    pub direct: bool,
    /// Where the caller's array is in memory, if the disk may put there what it reads, and take from
    /// there what is written past the page cache.
    pub home: Option<Home>,
    /// Whether nobody else writes the file, so that a window may be read, changed and written back.
    pub exclusive: bool,
    /// Whether the page cache is too small for the array: what is written has to be on the disk before its
    /// neighbours come (`block` is a multiple of a page of the page cache then), what is read ahead is
    /// gone before it is wanted.
    pub scarce: bool,
    /// Forced by a hint; `None` lets the planner choose.
    pub method: Option<Method>,
    /// What the machine does per second and per call.
    pub rates: Rates,
    /// What chunks that are encoded take besides themselves.
    pub coding: Coding,
    /// The page faults of a read through a mapping; where nothing is known of them, there are none.
    pub faults: Option<Faults>,
}

/// Pages are entered into a mapping by page faults. What is known of those that a read will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Share of what the read touches that is not in the mapping yet, in thousandths.
    pub absent: i64,
    /// Share of that where a page fault enters a folio of 2 MiB, in thousandths; elsewhere it enters 64 KiB.
    pub large: i64,
    /// The mapping is made for this access, and serves so many chunks of it; 0 if it is kept.
    pub chunks: i64,
    /// What earlier reads by calls cost beyond what they would have through a mapping that has all pages,
    /// nanoseconds.
    pub rent: i64,
}

impl Faults {
    /// Those of files that are mapped for one access, with so many chunks in each.
    pub fn of_new(chunks: i64) -> Faults {
        Faults { absent: 1000, large: 0, chunks: chunks.max(1), rent: 0 }
    }
}

/// Where the caller's array is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// Address of its element `[0, ..., 0]`; only what is left of it modulo a page matters.
    pub at: i64,
    /// Bytes of a page of memory, a power of two.
    pub page: i64,
}

impl Home {
    /// Whether memory that begins at this address, modulo a page, suits elements of all types.
    pub fn fits(at: i64) -> bool {
        at % 16 == 0
    }
}

/// Memory that coding takes, bytes. Scratch lies in slots and serves all chunks of a round, one after
/// another; contexts lie beside, one for each round in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coding {
    /// Scratch while a chunk is decoded, besides its stored bytes.
    pub decode_scratch: i64,
    /// Scratch while one is encoded; the result lies in it.
    pub encode_scratch: i64,
    /// Contexts of who decodes.
    pub decoder: i64,
    /// Contexts of who encodes.
    pub encoder: i64,
    /// Contexts of who does both.
    pub both: i64,
    /// Held once while chunks are encoded, by whoever takes them.
    pub held: i64,
    /// What may well be held beyond that.
    pub spare: i64,
}

impl Coding {
    /// Contexts of a round.
    pub(crate) fn contexts(&self, decodes: bool, encodes: bool) -> i64 {
        match (decodes, encodes) {
            (false, false) => 0,
            (true, false) => self.decoder,
            (false, true) => self.encoder,
            (true, true) => self.both,
        }
    }
}

/// Figures of the machine, for prices in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Cost of one more request to the disk when its queue is kept full, nanoseconds.
    pub latency_ns: i64,
    /// Bytes per second of a request beyond its latency.
    pub device: i64,
    /// Bytes per second the disk never exceeds.
    pub stream: i64,
    /// One system call on cached data, nanoseconds.
    pub call_ns: i64,
    /// What a call takes besides where it is one of many, each in another page, nanoseconds: neither the page's
    /// descriptor nor its bytes are in the processor's caches (16384 calls of 4 bytes: 11 to 15 ms).
    pub lone_ns: i64,
    /// One small write into the page cache, nanoseconds: ext4 walks all blocks of the folio (2 MiB
    /// where the file was read in order), which makes it 7 us; 1 us where folios are pages.
    pub write_call_ns: i64,
    /// Bytes per second of a cached `pread` into a small buffer.
    pub pread: i64,
    /// Bytes per second of a cached `pread` into a large buffer.
    pub pread_large: i64,
    /// Bytes per second of a `pwrite` of cached pages.
    pub write: i64,
    /// Bytes per second of a copy out of a mapping.
    pub mapped: i64,
    /// Bytes per second of a copy between buffers that are in the processor's cache.
    pub copy: i64,
    /// One contiguous piece of a strided copy, picoseconds.
    pub piece_ps: i64,
    /// First touch of a mapped page, nanoseconds.
    pub touch_ns: i64,
    /// A page fault: the kernel enters the cached pages around into a new mapping, nanoseconds.
    pub fault_ns: i64,
    /// First write to a mapped page that is clean (the file system is asked), nanoseconds: 500 in
    /// order, 1000 to 1500 for one page in sixteen; 1500 where folios are pages.
    pub dirty_ns: i64,
    /// The same while other processes do so in this file, nanoseconds: 65536 pages took four ranks 355 ms,
    /// 32768 calls of 8 KiB 164 ms.
    pub contended_dirty_ns: i64,
    /// The same on average over ranks that write side by side, for prices of collectives, nanoseconds
    /// (record 0019: of 42 rows the method with the lower price was the faster one, or a tenth off, in 41).
    pub ranks_dirty_ns: i64,
    /// Bytes per second that go through a codec.
    pub codec: i64,
    /// Setting a mapping up for one read, nanoseconds.
    pub map_ns: i64,
    /// The calls that make a mapping of a file and take it away again, nanoseconds.
    pub fresh_map_ns: i64,
    /// The same for one write, so that a few small ones are plain calls, nanoseconds.
    pub map_write_ns: i64,
}

impl Rates {
    /// The figures of the machine this was first measured on.
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
    /// Sane terms for an operation that may hold `budget` bytes: cold data, no direct I/O, no
    /// mapping, files shared with others. Callers switch on what their system and file allow.
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

    /// The same terms with every figure moved into the range in which planning works.
    pub(crate) fn sane(&self) -> Terms {
        let mut t = self.clone();
        t.budget = t.budget.clamp(0, 1 << 60);
        t.lanes = t.lanes.clamp(1, 1 << 10);
        t.cached_permille = t.cached_permille.clamp(0, 1000);
        // Direct I/O in larger blocks is none: and counting its bytes takes memory by the block.
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
