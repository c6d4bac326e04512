//! Random and damaged streams: every one is decoded or refused; nothing panics, hangs, touches
//! memory that is not its own, or allocates by what the stream claims.
//!
//! Inputs and outputs end at a page that may not be touched, and the bytes around outputs are
//! compared afterwards. `OUTCORE_FUZZ_INPUTS` sets the number of inputs, `OUTCORE_FUZZ_SEED` the
//! seed; both are printed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
#![cfg(target_os = "linux")]

use outcore_io::{CodecSpec, Pipeline};

/// Memory whose end is followed by a page without access.
struct Guarded {
    start: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    fn new(pages: usize) -> Guarded {
        let len = pages * PAGE;
        let (anywhere, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping, of which the last page is made inaccessible.
        unsafe {
            let start = libc::mmap(anywhere, len + PAGE, access, flags, -1, 0);
            assert_ne!(libc::MAP_FAILED, start);
            assert_eq!(0, libc::mprotect(start.add(len), PAGE, libc::PROT_NONE));
            Guarded { start: start.cast(), len }
        }
    }

    /// The last `len` bytes before the guard.
    fn tail(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len);
        // SAFETY: inside the mapping, borrowed like `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(self.len - len), len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { libc::munmap(self.start.cast(), self.len + PAGE) };
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn pipelines() -> Vec<Vec<CodecSpec>> {
    let new = CodecSpec::new;
    let shuffle = |item| new("shuffle").int("itemsize", item);
    let mut all = vec![
        vec![new("deflate")],
        vec![new("gzip")],
        vec![new("zstd")],
        vec![new("zstd").int("checksum", 1)],
        vec![new("lz4")],
        vec![new("lz4hdf5").int("blocksize", 500)],
        vec![new("lzf")],
        vec![shuffle(4)],
        vec![shuffle(7)],
        vec![new("crc32c")],
        vec![new("fletcher32")],
        vec![shuffle(8), new("deflate")],
        vec![shuffle(4), new("lzf"), new("fletcher32")],
        vec![new("fletcher32"), shuffle(2), new("deflate")],
        vec![new("zstd"), new("crc32c")],
        vec![new("gzip"), new("lz4"), new("zstd"), new("blosc")],
    ];
    for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] {
        for shuffle in 0..3 {
            let blosc = new("blosc").text("cname", cname).int("shuffle", shuffle);
            all.push(vec![blosc.int("itemsize", 4).int("blocksize", 1024)]);
        }
    }
    all
}

/// Numbers that sizes and offsets are fond of.
const LIES: [u32; 12] =
    [0, 1, 0xff, 0x7fff, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, !0, 2000, 2001];

/// One damaged copy of a stream.
fn damage(random: &mut Random, stream: &[u8]) -> Vec<u8> {
    let mut bytes = stream.to_vec();
    for _ in 0..=random.below(3) {
        let n = bytes.len();
        match random.below(9) {
            0 => bytes.truncate(random.below(n + 1)),
            1 => bytes.extend((0..random.below(40)).map(|_| 0u8)),
            2 => bytes.extend((0..random.below(40)).map(|k| k as u8 * 37)),
            3 if n > 0 => {
                let (at, len) = (random.below(n), random.below(64));
                bytes.drain(at..(at + len).min(n));
            }
            4 if n > 0 => {
                let (at, from) = (random.below(n), random.below(n));
                let piece = bytes[from..(from + random.below(32)).min(n)].to_vec();
                bytes.splice(at..at, piece);
            }
            // A number in the header, or anywhere, says something else.
            5 | 6 if n > 8 => {
                let at = if random.below(2) == 0 { random.below(20) } else { random.below(n) };
                let lie = LIES[random.below(LIES.len())];
                let lie = if random.below(2) == 0 { lie.to_le_bytes() } else { lie.to_be_bytes() };
                for (byte, lie) in bytes.iter_mut().skip(at).zip(lie) {
                    *byte = lie;
                }
            }
            7 if n > 0 => bytes[random.below(n.min(24))] = random.next() as u8,
            _ if n > 0 => bytes[random.below(n)] ^= 1 << random.below(8),
            _ => {}
        }
    }
    bytes
}

/// The most address space and the most memory that this process ever had, KiB. (`getrusage` would
/// count the program that started the test.)
fn peaks() -> [i64; 2] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    ["VmPeak:", "VmHWM:"].map(|name| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    })
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn hostile_streams_are_decoded_or_refused() {
    let inputs = setting("OUTCORE_FUZZ_INPUTS", 100_000);
    let seed = setting("OUTCORE_FUZZ_SEED", 20_260_101);
    println!("{inputs} inputs, seed {seed}");
    let mut random = Random(seed);
    let (mut input, mut output) = (Guarded::new(64), Guarded::new(64));
    let mut scratch = Guarded::new(64);
    let (mut decoded, mut refused) = (0u64, 0u64);
    let lists = pipelines();
    let chunks: Vec<Vec<u8>> = [1, 17, 600, 2000, 5000]
        .iter()
        .map(|&len| (0..len).map(|i| ((i * i) >> 6) as u8 ^ (i % 5) as u8).collect())
        .collect();
    let before = peaks();
    for round in 0..inputs {
        let specs = &lists[round as usize % lists.len()];
        let chunk = &chunks[random.below(chunks.len())];
        let pipeline = Pipeline::new(specs, chunk.len()).unwrap();
        let mut own = vec![0; pipeline.encode_scratch()];
        let original = pipeline.encode(chunk, &mut own).unwrap();
        let mut mask = original.mask;
        let bytes = match random.below(12) {
            0 => (0..random.below(300)).map(|_| random.next() as u8).collect(),
            _ => damage(&mut random, original.bytes),
        };
        let intact = bytes == original.bytes;
        if random.below(10) == 0 {
            mask ^= 1 << random.below(specs.len() + 1);
        }
        let stored = input.tail(bytes.len());
        stored.copy_from_slice(&bytes);
        let margin = 64;
        let whole = output.tail(chunk.len() + margin);
        whole.fill(0xa5);
        let (front, out) = whole.split_at_mut(margin);
        let room = scratch.tail(pipeline.decode_scratch());
        let result = pipeline.decode(stored, mask, out, room);
        assert!(front.iter().all(|&byte| byte == 0xa5), "wrote in front: {specs:?}");
        match result {
            Ok(()) => {
                let protected = specs.last().is_some_and(|last| last.name == "crc32c");
                if intact && mask == original.mask {
                    assert!(chunk == out, "{specs:?}");
                } else if protected && mask == original.mask {
                    panic!("damage was not seen: {specs:?}, input {round}, seed {seed}");
                }
                decoded += 1;
            }
            Err(error) => {
                assert_eq!("codec-failure", error.code(), "{error}");
                refused += 1;
            }
        }
    }
    let after = peaks();
    let (space, memory) = (after[0] - before[0], after[1] - before[1]);
    println!(
        "{decoded} decoded, {refused} refused, grown by {memory} KiB of {space} KiB asked for"
    );
    assert!(refused > decoded, "the damage does no damage");
    assert!(space < 64 << 10, "{space} KiB were asked for");
    assert!(memory < 32 << 10, "{memory} KiB were used");
}
