//! Streams written by other libraries (`fixtures/make.py`) decode to the original bytes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use outcore_io::{CodecSpec, Pipeline};

/// Returns the chunk of `fixtures/make.py`.
fn chunk() -> Vec<u8> {
    (0..1000i32).flat_map(|i| (i * i % 1009 + i / 7).to_le_bytes()).collect()
}

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

fn decode(specs: &[CodecSpec], stored: &[u8], mask: u32, len: usize) -> Vec<u8> {
    let pipeline = Pipeline::new(specs, len).unwrap();
    assert!(stored.len() <= pipeline.stored_limit());
    let mut out = vec![0; len];
    pipeline.decode(stored, mask, &mut out, &mut vec![0; pipeline.decode_scratch()]).unwrap();
    out
}

fn encode(specs: &[CodecSpec], chunk: &[u8]) -> Vec<u8> {
    let pipeline = Pipeline::new(specs, chunk.len()).unwrap();
    let mut scratch = vec![0; pipeline.encode_scratch()];
    pipeline.encode(chunk, &mut scratch).unwrap().bytes.to_vec()
}

#[test]
fn streams_of_numcodecs_and_hdf5_decode() {
    let new = CodecSpec::new;
    let shuffle = || new("shuffle").int("itemsize", 4);
    let bits = |cname, block| {
        let spec = new("bitshuffle").int("itemsize", 4).text("cname", cname);
        spec.int("blocksize", block)
    };
    let mut cases = vec![
        ("zlib".to_owned(), vec![new("deflate")]),
        ("gzip".to_owned(), vec![new("gzip")]),
        ("gzip_members".to_owned(), vec![new("gzip")]),
        ("zstd".to_owned(), vec![new("zstd")]),
        ("zstd_checksum".to_owned(), vec![new("zstd")]),
        ("lz4".to_owned(), vec![new("lz4")]),
        (
            "h5_shuffle_deflate_fletcher".to_owned(),
            vec![shuffle(), new("deflate"), new("fletcher32")],
        ),
        ("h5_lzf".to_owned(), vec![new("lzf")]),
        ("h5_lz4".to_owned(), vec![new("lz4hdf5")]),
        ("h5_lz4_blocks".to_owned(), vec![new("lz4hdf5")]),
        ("h5_blosc".to_owned(), vec![new("blosc")]),
        ("h5_zstd".to_owned(), vec![new("zstd")]),
        ("bz2".to_owned(), vec![new("bzip2")]),
        ("h5_bzip2".to_owned(), vec![new("bzip2")]),
        ("h5_bitshuffle_none".to_owned(), vec![bits("none", 0)]),
        ("h5_bitshuffle_lz4".to_owned(), vec![bits("lz4", 0)]),
        ("h5_bitshuffle_zstd".to_owned(), vec![bits("zstd", 0)]),
        ("h5_bitshuffle_blocks".to_owned(), vec![bits("lz4", 64)]),
    ];
    for cname in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] {
        for shuffle in 0..3 {
            cases.push((format!("blosc_{cname}_{shuffle}"), vec![new("blosc")]));
        }
    }
    for (name, specs) in cases {
        assert!(chunk() == decode(&specs, &fixture(&name), 0, 4000), "{name}");
    }
}

#[test]
fn shuffles_and_checksums_are_the_same_bytes() {
    let new = CodecSpec::new;
    for (name, spec, chunk) in [
        ("shuffle4", new("shuffle").int("itemsize", 4), chunk()),
        ("shuffle10", new("shuffle").int("itemsize", 10), chunk()),
        ("h5_bitshuffle_none", new("bitshuffle").int("itemsize", 4).text("cname", "none"), chunk()),
        ("crc32c", new("crc32c"), chunk()),
        ("fletcher32", new("fletcher32"), chunk()),
        ("fletcher32_odd", new("fletcher32"), chunk()[..2001].to_vec()),
        ("fletcher32_zeros", new("fletcher32"), vec![0; 1000]),
    ] {
        let specs = [spec];
        assert!(fixture(name) == encode(&specs, &chunk), "{name}");
        assert!(chunk == decode(&specs, &fixture(name), 0, chunk.len()), "{name}");
    }
}

#[test]
fn hdf5_leaves_out_lzf_where_it_does_not_help_and_says_so_in_the_mask() {
    let specs = [CodecSpec::new("shuffle").int("itemsize", 1), CodecSpec::new("lzf")];
    let stored = fixture("h5_shuffle_lzf_mask2");
    let chunk = decode(&specs, &stored, 0b10, 512);
    let pipeline = Pipeline::new(&specs, 512).unwrap();
    let mut scratch = vec![0; pipeline.encode_scratch()];
    let encoded = pipeline.encode(&chunk, &mut scratch).unwrap();
    assert_eq!((0b10, stored.as_slice()), (encoded.mask, encoded.bytes));
}

#[test]
fn the_swapped_checksum_of_old_hdf5_is_accepted() {
    let mut stored = fixture("fletcher32");
    let n = stored.len();
    stored.swap(n - 4, n - 3);
    stored.swap(n - 2, n - 1);
    let specs = [CodecSpec::new("fletcher32")];
    assert!(chunk() == decode(&specs, &stored, 0, 4000));
    stored.swap(n - 4, n - 3);
    let pipeline = Pipeline::new(&specs, 4000).unwrap();
    let error = pipeline.decode(&stored, 0, &mut vec![0; 4000], &mut []).unwrap_err();
    assert!(error.to_string().contains("the chunk is damaged"), "{error}");
}
