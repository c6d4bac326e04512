//! Codec streams. Inputs and outputs end at a page without access, and the bytes before outputs are
//! compared afterwards.

use std::fmt;

use outcore_io::{CodecSpec, Pipeline};

use crate::chance::Chance;
use crate::lane::{run, Outcome};

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
        // SAFETY: a fresh anonymous mapping, whose last page is made inaccessible.
        unsafe {
            let start = libc::mmap(anywhere, len + PAGE, access, flags, -1, 0);
            assert_ne!(libc::MAP_FAILED, start);
            assert_eq!(0, libc::mprotect(start.add(len), PAGE, libc::PROT_NONE));
            Guarded { start: start.cast(), len }
        }
    }

    /// Returns the last `len` bytes before the guard page.
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

fn pipelines() -> Vec<Vec<CodecSpec>> {
    let new = CodecSpec::new;
    let shuffle = |item| new("shuffle").int("itemsize", item);
    let bits = |cname| {
        let spec = new("bitshuffle").int("itemsize", 2).int("blocksize", 64);
        spec.text("cname", cname)
    };
    let mut all = vec![
        vec![new("deflate")],
        vec![new("gzip")],
        vec![new("zstd")],
        vec![new("zstd").int("checksum", 1)],
        vec![new("lz4")],
        vec![new("lz4hdf5").int("blocksize", 500)],
        vec![new("lzf")],
        vec![new("zip")],
        vec![new("lz4"), new("zip")],
        vec![shuffle(4)],
        vec![shuffle(7)],
        vec![new("crc32c")],
        vec![new("fletcher32")],
        vec![shuffle(8), new("deflate")],
        vec![shuffle(4), new("lzf"), new("fletcher32")],
        vec![new("fletcher32"), shuffle(2), new("deflate")],
        vec![new("zstd"), new("crc32c")],
        vec![new("gzip"), new("lz4"), new("zstd"), new("blosc")],
        vec![new("bzip2").int("level", 1)],
        vec![bits("none")],
        vec![bits("lz4")],
        vec![bits("zstd"), new("crc32c")],
        vec![bits("none"), new("bzip2")],
    ];
    for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] {
        for shuffle in 0..3 {
            let blosc = new("blosc").text("cname", cname).int("shuffle", shuffle);
            all.push(vec![blosc.int("itemsize", 4).int("blocksize", 1024)]);
        }
    }
    all
}

/// A valid stream, from which damaged ones are made.
struct Original<'a> {
    pipeline: &'a Pipeline,
    specs: &'a [CodecSpec],
    chunk: &'a [u8],
    bytes: Vec<u8>,
    mask: u32,
}

struct Stream<'a> {
    original: &'a Original<'a>,
    bytes: Vec<u8>,
    mask: u32,
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Original { specs, chunk, .. } = self.original;
        write!(f, "{specs:?}, {} bytes, mask {}: {:?}", chunk.len(), self.mask, self.bytes)
    }
}

fn make<'a>(chance: &mut Chance, originals: &'a [Original<'a>]) -> Stream<'a> {
    let original = &originals[chance.place(originals.len())];
    let mut bytes = original.bytes.clone();
    if chance.one_in(12) {
        bytes = (0..chance.below(300)).map(|_| chance.next() as u8).collect();
    } else {
        chance.damage(&mut bytes);
    }
    let flip = if chance.one_in(10) { 1 << chance.place(original.specs.len() + 1) } else { 0 };
    Stream { original, bytes, mask: original.mask ^ flip }
}

#[test]
fn codec_streams() {
    let chunks: Vec<Vec<u8>> = [1, 17, 600, 2000, 5000]
        .iter()
        .map(|&len| (0..len).map(|i| ((i * i) >> 6) as u8 ^ (i % 5) as u8).collect())
        .collect();
    let lists = pipelines();
    let built: Vec<(&Vec<CodecSpec>, &Vec<u8>, Pipeline)> = lists
        .iter()
        .flat_map(|specs| chunks.iter().map(move |chunk| (specs, chunk)))
        .map(|(specs, chunk)| (specs, chunk, Pipeline::new(specs, chunk.len()).unwrap()))
        .collect();
    let originals: Vec<Original> = built
        .iter()
        .map(|(specs, chunk, pipeline)| {
            let mut room = vec![0; pipeline.encode_scratch()];
            let encoded = pipeline.encode(chunk, &mut room).unwrap();
            let (bytes, mask) = (encoded.bytes.to_vec(), encoded.mask);
            Original { pipeline, specs, chunk, bytes, mask }
        })
        .collect();
    let mut memory = [Guarded::new(64), Guarded::new(64), Guarded::new(64)];
    // The intact streams first, after which the memory of the C libraries no longer grows.
    for original in &originals {
        let Original { bytes, mask, .. } = original;
        let whole = Stream { original, bytes: bytes.clone(), mask: *mask };
        assert!(matches!(decode(&mut memory, whole), Outcome::Accepted));
    }
    let (accepted, refused) = run(
        "codec_streams",
        100_000,
        |chance| make(chance, &originals),
        |stream| decode(&mut memory, stream),
    );
    assert!(refused > accepted || accepted + refused < 100, "the damage does no damage");
}

fn decode(memory: &mut [Guarded; 3], stream: Stream) -> Outcome {
    let Original { pipeline, specs, chunk, .. } = *stream.original;
    let intact = stream.bytes == stream.original.bytes && stream.mask == stream.original.mask;
    let [input, output, scratch] = memory;
    let stored = input.tail(stream.bytes.len());
    stored.copy_from_slice(&stream.bytes);
    let margin = 64;
    let whole = output.tail(chunk.len() + margin);
    whole.fill(0xa5);
    let (front, out) = whole.split_at_mut(margin);
    let room = scratch.tail(pipeline.decode_scratch());
    let result = pipeline.decode(stored, stream.mask, out, room);
    assert!(front.iter().all(|&byte| byte == 0xa5), "wrote in front: {specs:?}");
    match result {
        Ok(()) => {
            let protected = specs.last().is_some_and(|last| last.name == "crc32c");
            assert!(!intact || chunk == out, "intact, but decoded to something else: {specs:?}");
            let unseen = !intact && protected && stream.mask == stream.original.mask;
            assert!(!unseen, "damage was not seen: {specs:?}");
            Outcome::Accepted
        }
        Err(error) => {
            assert!(!intact, "intact, but refused: {error}");
            assert_eq!("codec-failure", error.code(), "{error}");
            Outcome::Refused
        }
    }
}
