//! The copy kernels against a simple loop, and their speed (`--ignored`).

#![allow(unsafe_code)]

use proptest::prelude::*;

use super::*;

/// Copies item by item, for every index.
fn naive(
    src: &[u8],
    dst: &mut [u8],
    from: (i64, &[i64]),
    to: (i64, &[i64]),
    count: &[i64],
    item: i64,
) {
    let total: i64 = count.iter().product();
    for mut k in 0..total {
        let (mut s, mut d) = (from.0, to.0);
        for axis in (0..count.len()).rev() {
            let i = k % count[axis];
            k /= count[axis];
            s += i * from.1[axis];
            d += i * to.1[axis];
        }
        for byte in 0..item {
            dst[(d + byte) as usize] = src[(s + byte) as usize];
        }
    }
}

/// Returns strides of an array with this order of axes in memory, with gaps, some axes reversed.
fn strides(
    count: &[i64],
    item: i64,
    order: &[usize],
    gaps: &[i64],
    signs: &[bool],
) -> (i64, Vec<i64>, i64) {
    let mut strides = vec![0; count.len()];
    let mut reach = item;
    for axis in order {
        strides[*axis] = reach + gaps[*axis];
        reach += strides[*axis] * (count[*axis] - 1);
    }
    let mut start = 0;
    for axis in 0..count.len() {
        if signs[axis] {
            start += strides[axis] * (count[axis] - 1);
            strides[axis] = -strides[axis];
        }
    }
    (start, strides, reach)
}

#[derive(Debug, Clone)]
struct Case {
    count: Vec<i64>,
    item: i64,
    orders: [Vec<usize>; 2],
    gaps: [Vec<i64>; 2],
    signs: [Vec<bool>; 2],
    repeat: Option<usize>,
}

fn cases() -> impl Strategy<Value = Case> {
    let items = prop::sample::select(vec![1i64, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 100, 513]);
    (1usize..5, items).prop_flat_map(|(ndim, item)| {
        let most = [0i64, 3000, 130, 30, 12][ndim];
        let order = || Just((0..ndim).collect::<Vec<_>>()).prop_shuffle();
        let gaps = || prop::collection::vec(prop::sample::select(vec![0, 0, 0, 4, 1, 64]), ndim);
        let signs = || prop::collection::vec(any::<bool>(), ndim);
        (
            prop::collection::vec(1..=most, ndim),
            (order(), order()),
            (gaps(), gaps()),
            (signs(), signs()),
            prop::option::weighted(0.2, 0..ndim),
        )
            .prop_map(move |(count, orders, gaps, signs, repeat)| Case {
                count,
                item,
                orders: [orders.0, orders.1],
                gaps: [gaps.0, gaps.1],
                signs: [signs.0, signs.1],
                repeat,
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn every_copy_equals_the_naive_loop(case in cases(), by_source in any::<bool>(), cut in any::<bool>()) {
        let Case { count, item, orders, gaps, signs, repeat } = case;
        let (src_at, mut src_stride, src_len) =
            strides(&count, item, &orders[0], &gaps[0], &signs[0]);
        let (dst_at, dst_stride, dst_len) = strides(&count, item, &orders[1], &gaps[1], &signs[1]);
        let mut src_start = src_at;
        if let Some(axis) = repeat {
            src_start += src_stride[axis].min(0) * (count[axis] - 1);
            src_stride[axis] = 0;
        }
        prop_assume!(src_len + dst_len < 8 << 20);
        let src: Vec<u8> = (0..src_len).map(|k| (k.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let mut expected = vec![0xEEu8; dst_len as usize];
        naive(&src, &mut expected, (src_start, &src_stride), (dst_at, &dst_stride), &count, item);
        let mut actual = vec![0xEEu8; dst_len as usize];
        let loops =
            Loops::new((src_start, &src_stride), (dst_at, &dst_stride), &count, item).unwrap();
        prop_assert_eq!(loops.bytes() as i64, count.iter().product::<i64>() * item);
        for side in [Side::Source, Side::Destination] {
            let (low, high) = loops.span(side);
            let len = if side == Side::Source { src_len } else { dst_len };
            prop_assert!(0 <= low && low <= high && high as i64 <= len);
        }
        let side = if by_source { Side::Source } else { Side::Destination };
        let most = if cut { 5000 } else { usize::MAX };
        loops.pieces(side, &|piece| piece.bytes() <= most, &mut |piece| {
            // SAFETY: both spans lie in the vectors, as just asserted.
            unsafe { piece.run(src.as_ptr(), actual.as_mut_ptr()) };
            Ok::<(), ()>(())
        }).unwrap();
        prop_assert_eq!(expected, actual);
    }
}

#[test]
fn empty_copies_touch_nothing() {
    let loops = Loops::new((5, &[1, 1]), (9, &[4, 1]), &[3, 0], 4).unwrap();
    assert_eq!(0, loops.bytes());
    assert!(loops.halves(Side::Source).is_none());
    // SAFETY: nothing is touched.
    unsafe { loops.run(std::ptr::null(), std::ptr::null_mut()) };
}

#[test]
fn contiguous_axes_become_one_run() {
    let loops = Loops::new((0, &[80, 8]), (0, &[80, 8]), &[50, 10], 8).unwrap();
    assert_eq!(4000, loops.run_bytes());
    let turned = Loops::new((72, &[80, -8]), (72, &[80, -8]), &[50, 10], 8).unwrap();
    assert_eq!((4000, (0, 4000)), (turned.run_bytes(), turned.span(Side::Source)));
}

/// `cargo test --release -p outcore-io copy::tests::timing -- --ignored --nocapture`
#[test]
#[ignore = "prints rates, asserts nothing"]
fn timing() {
    let n = 8192i64;
    let src = vec![1u8; (n * n * 4) as usize];
    let mut dst = vec![1u8; (n * n * 4) as usize];
    /// Name, strides of source and destination, counts, item.
    type Case = (&'static str, Vec<i64>, Vec<i64>, Vec<i64>, i64);
    let cases: Vec<Case> = vec![
        ("contiguous", vec![4], vec![4], vec![n * n], 4),
        ("rows of 16 KiB", vec![n * 4, 4], vec![n * 2, 4], vec![n, n / 2], 4),
        ("[::7, ::5]", vec![n * 28, 20], vec![n / 5 * 4, 4], vec![n / 7, n / 5], 4),
        ("[::2, ::2]", vec![n * 8, 8], vec![n * 2, 4], vec![n / 2, n / 2], 4),
        ("reversed", vec![n * 4, -4], vec![n * 4, 4], vec![n, n], 4),
        ("transpose 1 byte", vec![1, n], vec![n, 1], vec![n, n], 1),
        ("transpose 2 bytes", vec![2, n * 2], vec![n * 2, 2], vec![n, n], 2),
        ("transpose 4 bytes", vec![4, n * 4], vec![n * 4, 4], vec![n, n], 4),
        ("transpose 8 bytes", vec![8, n * 4], vec![n * 4, 8], vec![n / 2, n / 2], 8),
        ("one column", vec![n * 4], vec![4], vec![n], 4),
        ("planes to pixels", vec![4, n * n], vec![12, 4], vec![n * n / 4, 3], 4),
    ];
    for (name, s, d, count, item) in cases {
        let at = s.iter().zip(&count).map(|(s, n)| (-s * (n - 1)).max(0)).sum();
        let loops = Loops::new((at, &s), (0, &d), &count, item).unwrap();
        let mut best = f64::MAX;
        for _ in 0..5 {
            let start = std::time::Instant::now();
            // SAFETY: the cases stay within the two vectors.
            unsafe { loops.run(src.as_ptr(), dst.as_mut_ptr()) };
            best = best.min(start.elapsed().as_secs_f64());
        }
        let rate = loops.bytes() as f64 / best / 1e9;
        println!("{name:28} {:9.3} ms {rate:6.2} GB/s", best * 1e3);
    }
}
