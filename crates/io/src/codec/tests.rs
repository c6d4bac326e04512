//! Round trips, sizes, masks and hostile streams for every codec and for lists of them.

use proptest::prelude::*;

use super::*;

/// Every codec alone, with the options that change stored bytes, and the usual lists.
fn pipelines() -> Vec<Vec<CodecSpec>> {
    let new = CodecSpec::new;
    let mut all = vec![
        vec![],
        vec![new("deflate").int("level", 0)],
        vec![new("deflate").int("level", 4)],
        vec![new("deflate").int("level", 12)],
        vec![new("gzip").int("level", 5)],
        vec![new("zstd").int("level", 1)],
        vec![new("zstd").int("level", -7).int("checksum", 1)],
        vec![new("lz4")],
        vec![new("lz4hdf5")],
        vec![new("lz4hdf5").int("blocksize", 100)],
        vec![new("lzf")],
        vec![new("zip")],
        vec![new("zstd"), new("crc32c"), new("zip").int("level", 1)],
        vec![new("crc32c")],
        vec![new("fletcher32")],
        vec![new("crc32c"), new("crc32c")],
        vec![new("shuffle").int("itemsize", 8), new("deflate").int("level", 1)],
        vec![new("fletcher32"), new("shuffle").int("itemsize", 4), new("lzf")],
        vec![new("shuffle").int("itemsize", 4), new("lzf"), new("fletcher32")],
        vec![new("zstd"), new("crc32c")],
        vec![new("gzip"), new("zstd"), new("lz4"), new("crc32c"), new("deflate")],
    ];
    for item in [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 1000] {
        all.push(vec![new("shuffle").int("itemsize", item)]);
    }
    for item in [1, 2, 3, 4, 8, 100] {
        for cname in ["none", "lz4", "zstd"] {
            let bits = || new("bitshuffle").int("itemsize", item).text("cname", cname);
            all.push(vec![bits()]);
            all.push(vec![bits().int("blocksize", 24).int("level", 1), new("fletcher32")]);
        }
    }
    for level in [1, 9] {
        all.push(vec![new("bzip2").int("level", level)]);
    }
    for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] {
        for shuffle in 0..=2 {
            let blosc = new("blosc").text("cname", cname).int("shuffle", shuffle);
            all.push(vec![blosc.int("itemsize", 4).int("level", 5)]);
        }
    }
    all.push(vec![new("blosc").int("itemsize", 300).int("blocksize", 1000)]);
    all
}

fn names(specs: &[CodecSpec]) -> String {
    format!("{:?}", specs)
}

fn round_trip(specs: &[CodecSpec], chunk: &[u8]) -> (Vec<u8>, u32) {
    let pipeline = Pipeline::new(specs, chunk.len()).unwrap();
    let mut scratch = vec![0xa5; pipeline.encode_scratch()];
    let encoded = pipeline.encode(chunk, &mut scratch).unwrap();
    assert!(encoded.bytes.len() <= pipeline.encoded_bound(), "{}", names(specs));
    let (bytes, mask) = (encoded.bytes.to_vec(), encoded.mask);
    let mut out = vec![0x5a; chunk.len()];
    let mut scratch = vec![0xa5; pipeline.decode_scratch()];
    pipeline.decode(&bytes, mask, &mut out, &mut scratch).unwrap();
    assert!(chunk == out, "{} on {} bytes", names(specs), chunk.len());
    (bytes, mask)
}

/// Chunks of several kinds: constant, smooth, random, mixed.
fn chunks() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![0..40usize, 0..5000usize, 60_000..70_000usize];
    (len, 0..4u8, any::<u64>()).prop_map(|(len, nature, seed)| {
        let mut random = Random(seed);
        (0..len)
            .map(|i| match nature {
                0 => seed as u8,
                1 => ((i / 8) as u64 >> (8 * (i % 8))) as u8,
                2 => random.next() as u8,
                _ if i / 256 % 2 == 0 => (i % 7) as u8,
                _ => random.next() as u8,
            })
            .collect()
    })
}

/// A small generator (SplitMix64), so that a printed seed reproduces a run anywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_list_gives_back_what_it_got(chunk in chunks()) {
        for specs in pipelines() {
            round_trip(&specs, &chunk);
        }
    }
}

#[test]
fn incompressible_chunks_are_stored_with_a_mask() {
    let mut random = Random(1);
    let chunk: Vec<u8> = (0..1000).map(|_| random.next() as u8).collect();
    let specs = [CodecSpec::new("shuffle").int("itemsize", 4), CodecSpec::new("lzf")];
    let (bytes, mask) = round_trip(&specs, &chunk);
    assert_eq!((1000, 0b10), (bytes.len(), mask));
    let (bytes, mask) = round_trip(&specs, &[0; 1000]);
    assert!(bytes.len() < 100 && mask == 0);
}

#[test]
fn masked_steps_are_skipped() {
    let specs = [
        CodecSpec::new("shuffle").int("itemsize", 2),
        CodecSpec::new("deflate"),
        CodecSpec::new("fletcher32"),
    ];
    let chunk: Vec<u8> = (0..200).collect();
    for mask in 0..8u32 {
        let kept: Vec<CodecSpec> =
            (0..3).filter(|k| mask >> k & 1 == 0).map(|k| specs[k].clone()).collect();
        let (stored, _) = round_trip(&kept, &chunk);
        let pipeline = Pipeline::new(&specs, chunk.len()).unwrap();
        let mut out = vec![0; chunk.len()];
        let mut scratch = vec![0; pipeline.decode_scratch()];
        pipeline.decode(&stored, mask, &mut out, &mut scratch).unwrap();
        assert_eq!(chunk, out, "mask {mask:#b}");
    }
}

#[test]
fn wrong_sizes_are_errors_that_name_the_codec_and_the_sizes() {
    for specs in pipelines().into_iter().filter(|specs| !specs.is_empty()) {
        let chunk = vec![7u8; 1000];
        let (stored, mask) = round_trip(&specs, &chunk);
        for len in [0usize, 999, 1001, 100_000] {
            let pipeline = Pipeline::new(&specs, len).unwrap();
            let mut out = vec![0; len];
            let mut scratch = vec![0; pipeline.decode_scratch()];
            let error = pipeline.decode(&stored, mask, &mut out, &mut scratch).unwrap_err();
            assert_eq!("codec-failure", error.code(), "{} {error}", names(&specs));
        }
    }
    let pipeline = Pipeline::new(&[CodecSpec::new("deflate")], 10).unwrap();
    let (stored, _) = round_trip(&[CodecSpec::new("deflate")], &[1; 12]);
    let error = pipeline.decode(&stored, 0, &mut [0; 10], &mut []).unwrap_err();
    assert!(error.to_string().contains("codec deflate"), "{error}");
    assert!(error.to_string().contains("more than 10 bytes"), "{error}");
}

#[test]
fn a_damaged_byte_is_noticed_by_each_checksum() {
    for name in ["crc32c", "fletcher32"] {
        let specs = [CodecSpec::new(name)];
        let (stored, mask) = round_trip(&specs, &[7; 100]);
        let pipeline = Pipeline::new(&specs, 100).unwrap();
        for at in [0, 50, stored.len() - 1] {
            let mut stored = stored.clone();
            stored[at] ^= 1;
            let mut scratch = vec![0; pipeline.decode_scratch()];
            let error = pipeline.decode(&stored, mask, &mut [0; 100], &mut scratch).unwrap_err();
            assert_eq!("codec-failure", error.code(), "{name} {at}");
        }
    }
}

/// Members as zip writes them: names, descriptors with and without a mark, and invalid ones.
#[test]
fn a_member_of_a_zip_file_has_its_checksum_in_front_or_behind() {
    let specs = [CodecSpec::new("zip")];
    let chunk: Vec<u8> = (0..1000u32).map(|k| (k / 7) as u8).collect();
    let (stored, _) = round_trip(&specs, &chunk);
    let pipeline = Pipeline::new(&specs, chunk.len()).unwrap();
    let mut out = vec![0; chunk.len()];
    let decoded = |stored: &[u8], out: &mut [u8]| pipeline.decode(stored, 0, out, &mut []);
    let sum = stored[14..18].to_vec();
    let mut named = stored.clone();
    (named[26], named[28]) = (3, 2);
    named.splice(30..30, *b"c/0..");
    decoded(&named, &mut out).unwrap();
    assert_eq!(chunk, out);
    let mut streamed = stored.clone();
    streamed[6] = 8;
    streamed[14..26].fill(0);
    for mark in [&b""[..], b"PK\x07\x08"] {
        let mut whole = [&streamed[..], mark, &sum].concat();
        decoded(&whole, &mut out).unwrap();
        *whole.last_mut().unwrap() ^= 1;
        let error = decoded(&whole, &mut out).unwrap_err().to_string();
        assert!(error.contains("CRC-32"), "{error}");
    }
    decoded(&streamed, &mut out).unwrap_err();
    for (at, part) in
        [(0, "no header"), (6, "flags"), (8, "method"), (14, "CRC-32"), (22, "size"), (27, "short")]
    {
        let mut damaged = stored.clone();
        damaged[at] ^= if at == 27 { 0xff } else { 1 };
        let error = decoded(&damaged, &mut out).unwrap_err().to_string();
        assert!(error.contains(part), "{at}: {error}");
    }
}

#[test]
fn options_and_names_are_checked() {
    for (spec, part) in [
        (CodecSpec::new("zstd").int("level", 99), "level is 99"),
        (CodecSpec::new("blosc").text("cname", "snappy"), "snappy"),
        (CodecSpec::new("shuffle"), "itemsize is missing"),
        (CodecSpec::new("bzip2").int("level", 0), "level is 0"),
        (CodecSpec::new("bitshuffle"), "itemsize is missing"),
        (CodecSpec::new("bitshuffle").int("itemsize", 4).int("blocksize", 12), "a multiple of 8"),
        (CodecSpec::new("bitshuffle").int("itemsize", 4).text("cname", "lzf"), "\"lzf\""),
        (CodecSpec::new("deflate").text("level", "high"), "not a number"),
        (CodecSpec::new("brotli"), "no codec named \"brotli\""),
    ] {
        let error = Pipeline::new(&[spec], 100).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let huge = Pipeline::new(&[CodecSpec::new("deflate")], usize::MAX / 2).unwrap_err();
    assert!(huge.to_string().contains("too large"), "{huge}");
}
