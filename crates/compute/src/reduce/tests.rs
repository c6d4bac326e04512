use super::*;

/// Values of all magnitudes, from a linear congruential generator.
fn values(count: usize) -> Vec<f64> {
    let mut seed = 12345u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    (0..count).map(|_| next() * 10f64.powi((next() * 6.0) as i32)).collect()
}

/// Sum by the definition of the tree: lanes of leaves, then pairs of nodes.
fn sum(x: &[f64]) -> f64 {
    let pairs = |mut all: Vec<f64>| {
        while all.len() > 1 {
            all = all
                .chunks(2)
                .map(|pair| pair.iter().copied().reduce(|a, b| a + b).unwrap())
                .collect();
        }
        all[0]
    };
    let leaf = |x: &[f64]| {
        let mut lanes = vec![-0.0; LANES];
        for (k, x) in x.iter().enumerate() {
            lanes[k % LANES] += x;
        }
        pairs(lanes)
    };
    pairs(x.chunks(LEAF).map(leaf).collect())
}

/// Reduces an array of `(outer, rows, inner)` in pieces that end at `ends`.
fn in_pieces<F: Fold<Acc: Default, Out: Default>>(
    axis: &Axis<F>,
    x: &[F::In],
    (outer, rows, inner): (usize, usize, usize),
    ends: &[usize],
) -> Vec<Vec<F::Out>> {
    let outputs = outer * inner;
    let mut state = vec![F::Acc::default(); axis.state(outputs)];
    let mut scratch = vec![F::Acc::default(); axis.scratch(outputs)];
    let mut first = 0;
    for &end in ends {
        let mut part = Vec::new();
        for o in 0..outer {
            part.extend_from_slice(&x[(o * rows + first) * inner..(o * rows + end) * inner]);
        }
        let piece = Piece { outer, rows: end - first, inner, first, base: 0 };
        axis.fold(&[&part], &piece, &mut state, &mut scratch);
        first = end;
    }
    let mut outs = vec![vec![F::Out::default(); outputs]; F::PLANES];
    let mut views: Vec<_> = outs.iter_mut().map(|out| &mut out[..]).collect();
    axis.finish(&mut state, &mut views);
    outs
}

fn at_once<F: Fold<Acc: Default, Out: Default>>(
    axis: &Axis<F>,
    x: &[F::In],
    (outer, rows, inner): (usize, usize, usize),
) -> Vec<Vec<F::Out>> {
    let outputs = outer * inner;
    let mut scratch = vec![F::Acc::default(); axis.scratch(outputs)];
    let mut outs = vec![vec![F::Out::default(); outputs]; F::PLANES];
    let mut views: Vec<_> = outs.iter_mut().map(|out| &mut out[..]).collect();
    axis.whole(&[x], &Piece { outer, rows, inner, first: 0, base: 0 }, &mut views, &mut scratch);
    outs
}

const SHAPES: [(usize, usize, usize); 14] = [
    (3000, 3, 1),
    (599, 32, 1),
    (1, 1, 1),
    (1, 100_003, 1),
    (3, 1000, 1),
    (700, 131, 1),
    (1, 40_000, 2),
    (2, 1031, 3),
    (1, 517, 31),
    (1, 300, 33),
    (2, 200, 600),
    (1, 129, 3000),
    (5, 7, 11),
    (1, 70_000, 5),
];

fn cuts(rows: usize) -> [Vec<usize>; 3] {
    let middle = vec![rows / 3, rows / 2 + 1, rows];
    let small: Vec<usize> = (0..rows).step_by(rows / 40 + 3).skip(1).chain([rows]).collect();
    [vec![rows], middle, small]
}

fn column(x: &[f64], (_, rows, inner): (usize, usize, usize), output: usize) -> Vec<f64> {
    let (o, c) = (output / inner, output % inner);
    (0..rows).map(|r| x[(o * rows + r) * inner + c]).collect()
}

#[test]
fn a_sum_is_that_of_the_tree_whatever_the_pieces_and_threads() {
    for shape in SHAPES {
        let (outer, rows, inner) = shape;
        let x = values(outer * rows * inner);
        let expected: Vec<u64> =
            (0..outer * inner).map(|n| sum(&column(&x, shape, n)).to_bits()).collect();
        for threads in [1, 2, 3] {
            let axis = Axis::new(Tree::<Sum<f64, f64>>::new(), rows).with_threads(threads);
            let bits = |outs: Vec<Vec<f64>>| -> Vec<u64> {
                outs[0].iter().map(|value| value.to_bits()).collect()
            };
            assert_eq!(expected, bits(at_once(&axis, &x, shape)), "{shape:?}");
            for ends in cuts(rows) {
                assert_eq!(expected, bits(in_pieces(&axis, &x, shape, &ends)), "{shape:?}");
            }
        }
    }
}

#[test]
fn moments_have_the_same_bits_for_all_pieces_and_are_close() {
    for shape in SHAPES {
        let (outer, rows, inner) = shape;
        let mut x = values(outer * rows * inner);
        let reference = Axis::new(Moments::<f64, false>::new(), rows).with_threads(1);
        let expected = at_once(&reference, &x, shape);
        for (n, mean) in expected[1].iter().enumerate() {
            let all = column(&x, shape, n);
            let exact = sum(&all) / rows as f64;
            let squares: f64 = all.iter().map(|x| (x - exact) * (x - exact)).sum();
            let size = all.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            assert_eq!(rows as f64, expected[0][n]);
            assert!((mean - exact).abs() <= 1e-14 * size, "{shape:?} {mean} {exact}");
            assert!((expected[2][n] - squares).abs() <= 1e-12 * squares, "{shape:?}");
        }
        for threads in [1, 2, 3] {
            let axis = Axis::new(Moments::<f64, false>::new(), rows).with_threads(threads);
            assert_eq!(expected, at_once(&axis, &x, shape));
            for ends in cuts(rows) {
                assert_eq!(expected, in_pieces(&axis, &x, shape, &ends), "{shape:?} {ends:?}");
            }
        }
        // Some elements are NaN, including the first one.
        for n in (0..x.len()).step_by(3) {
            x[n] = f64::NAN;
        }
        let reference = Axis::new(Moments::<f64, true>::new(), rows).with_threads(1);
        let expected = at_once(&reference, &x, shape);
        for (n, count) in expected[0].iter().enumerate().take(outer * inner) {
            let all: Vec<f64> = column(&x, shape, n).into_iter().filter(|x| !x.is_nan()).collect();
            assert_eq!(all.len() as f64, *count);
            if !all.is_empty() {
                let exact = sum(&all) / all.len() as f64;
                let squares: f64 = all.iter().map(|x| (x - exact) * (x - exact)).sum();
                let size = all.iter().fold(0.0f64, |m, x| m.max(x.abs()));
                assert!((expected[1][n] - exact).abs() <= 1e-14 * size);
                assert!((expected[2][n] - squares).abs() <= 1e-12 * squares, "{shape:?}");
            }
        }
        for threads in [1, 2] {
            let axis = Axis::new(Moments::<f64, true>::new(), rows).with_threads(threads);
            assert_eq!(expected, at_once(&axis, &x, shape));
            for ends in cuts(rows) {
                assert_eq!(expected, in_pieces(&axis, &x, shape, &ends), "{shape:?} {ends:?}");
            }
        }
    }
}

#[test]
fn extremes_and_their_places() {
    for shape in SHAPES {
        let (outer, rows, inner) = shape;
        let mut x: Vec<f64> = values(outer * rows * inner).iter().map(|x| x.trunc()).collect();
        for round in 0..2 {
            for threads in [1, 2] {
                let largest = Axis::new(Exact::<Max<f64>>::new(), rows).with_threads(threads);
                let place = Axis::new(Arg::<f64, false>::new(true), rows).with_threads(threads);
                for ends in cuts(rows) {
                    let found = in_pieces(&largest, &x, shape, &ends);
                    let places = in_pieces(&place, &x, shape, &ends);
                    assert_eq!(found[0].len(), outer * inner);
                    for n in 0..outer * inner {
                        let all = column(&x, shape, n);
                        let nan = all.iter().position(|x| x.is_nan());
                        let best = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                        let first = all.iter().position(|x| *x == best).unwrap_or(0);
                        assert_eq!(nan.unwrap_or(first) as i64, places[1][n], "{shape:?}");
                        assert_eq!(nan.is_some(), found[0][n].is_nan());
                        assert!(nan.is_some() || found[0][n] == best);
                    }
                }
            }
            if round == 0 {
                for n in (5..x.len()).step_by(997) {
                    x[n] = f64::NAN;
                }
            }
        }
    }
}

#[test]
fn nodes_of_two_axes_are_the_moments_of_all() {
    let (outer, rows) = (301, 257);
    let x = values(outer * rows);
    let planes = at_once(&Axis::new(Moments::<f64, false>::new(), rows), &x, (outer, rows, 1));
    let planes: Vec<&[f64]> = planes.iter().map(|plane| &plane[..]).collect();
    let axis = Axis::new(MomentsOfNodes, outer);
    let mut scratch = vec![0.0; axis.scratch(1)];
    let mut outs = [[0.0]; 3];
    let mut views: Vec<_> = outs.iter_mut().map(|out| &mut out[..]).collect();
    let piece = Piece { outer: 1, rows: outer, inner: 1, first: 0, base: 0 };
    axis.whole(&planes, &piece, &mut views, &mut scratch);
    let [[count], [mean], [squares]] = outs;
    let exact = sum(&x) / x.len() as f64;
    let expected: f64 = x.iter().map(|x| (x - exact) * (x - exact)).sum();
    assert_eq!(x.len() as f64, count);
    assert!((mean - exact).abs() < 1e-12);
    assert!((squares - expected).abs() < 1e-12 * expected);
    // The same bits if reduced in pieces.
    let mut state = vec![0.0; axis.state(1)];
    for (first, end) in [(0, 1), (1, 130), (130, 301)] {
        let part: Vec<&[f64]> = planes.iter().map(|plane| &plane[first..end]).collect();
        let piece = Piece { outer: 1, rows: end - first, inner: 1, first, base: 0 };
        axis.fold(&part, &piece, &mut state, &mut scratch);
    }
    let mut again = [[0.0]; 3];
    let mut views: Vec<_> = again.iter_mut().map(|out| &mut out[..]).collect();
    axis.finish(&mut state, &mut views);
    assert_eq!([[count], [mean], [squares]], again);
}

/// The results from the nodes of segments, each of which is reduced in pieces or as a whole.
fn joined<F: Fold<Acc: Default, Out: Default>>(
    (axis, join): (&Axis<F>, &Axis<F>),
    x: &[&[F::In]],
    (outer, rows, inner): (usize, usize, usize),
    (segment, pieces): (usize, usize),
) -> Vec<Vec<F::Out>> {
    let outputs = outer * inner;
    let count = rows.div_ceil(segment);
    let mut nodes = vec![F::Acc::default(); F::PLANES * count * outputs];
    let size = axis.scratch(outputs).max(join.scratch(outputs));
    let mut scratch = vec![F::Acc::default(); size];
    for k in 0..count {
        let (base, end) = (k * segment, rows.min((k + 1) * segment));
        let mut state = vec![F::Acc::default(); axis.state(outputs)];
        let mut node = vec![vec![F::Acc::default(); outputs]; F::PLANES];
        let mut views: Vec<_> = node.iter_mut().map(|plane| &mut plane[..]).collect();
        let step = (end - base).div_ceil(pieces);
        for first in (base..end).step_by(step) {
            let stop = end.min(first + step);
            let parts: Vec<Vec<F::In>> = x
                .iter()
                .map(|x| {
                    (0..outer)
                        .flat_map(|o| &x[(o * rows + first) * inner..(o * rows + stop) * inner])
                        .copied()
                        .collect()
                })
                .collect();
            let parts: Vec<&[F::In]> = parts.iter().map(|part| &part[..]).collect();
            let piece = Piece { outer, rows: stop - first, inner, first, base };
            if pieces == 1 {
                axis.whole_node(&parts, &piece, &mut views, &mut scratch);
            } else {
                axis.fold(&parts, &piece, &mut state, &mut scratch);
            }
        }
        if pieces > 1 {
            axis.node(&mut state, end - base, &mut views);
        }
        for (plane, values) in node.iter().enumerate() {
            nodes[(plane * count + k) * outputs..][..outputs].copy_from_slice(values);
        }
    }
    let mut outs = vec![vec![F::Out::default(); outputs]; F::PLANES];
    let mut views: Vec<_> = outs.iter_mut().map(|out| &mut out[..]).collect();
    join.join(&nodes, outputs, &mut views, &mut scratch);
    outs
}

#[test]
fn nodes_of_segments_join_to_the_bits_of_the_whole() {
    macro_rules! same {
        ($how:expr, $x:expr, $shape:expr) => {
            let (_, rows, _) = $shape;
            for threads in [1, 3] {
                let axis = Axis::new($how, rows).with_threads(threads);
                let expected = at_once(&axis, $x, $shape);
                for segment in [LEAF, 2 * LEAF, 16 * LEAF, 256 * LEAF, 1024 * LEAF] {
                    let count = rows.div_ceil(segment);
                    let join = Axis::new($how, count * LEAF).with_threads(threads);
                    for pieces in [1, 3] {
                        let cut = (segment, pieces);
                        let found = joined((&axis, &join), &[$x], $shape, cut);
                        assert_eq!(format!("{expected:?}"), format!("{found:?}"), "{cut:?}");
                    }
                }
            }
        };
    }
    for shape in SHAPES {
        let (outer, rows, inner) = shape;
        let mut x = values(outer * rows * inner);
        same!(Tree::<Sum<f64, f64>>::new(), &x, shape);
        same!(Moments::<f64, false>::new(), &x, shape);
        for n in (5..x.len()).step_by(3) {
            x[n] = f64::NAN;
        }
        same!(Tree::<NanSum<f64, f64>>::new(), &x, shape);
        same!(Moments::<f64, true>::new(), &x, shape);
        same!(Exact::<Min<f64>>::new(), &x, shape);
        same!(Exact::<NanMax<f64>>::new(), &x, shape);
        same!(Arg::<f64, true>::new(true), &x, shape);
        let whole: Vec<i64> = x.iter().map(|x| *x as i64).collect();
        same!(Exact::<Sum<i64, i64>>::new(), &whole, shape);
        same!(Arg::<i64, false>::new(false), &whole, shape);
        // Complex numbers are pairs of columns; their real parts are often equal.
        let pairs: Vec<f64> = x.iter().flat_map(|x| [(x * 8.0).round() / 8.0, *x]).collect();
        let shape = (outer, rows, 2 * inner);
        for merge in [Merge::Prod, Merge::Min, Merge::Max, Merge::NanMin, Merge::NanMax] {
            same!(Pairs::<f64>::new(merge), &pairs, shape);
        }
        same!(ArgPairs::<f64>::new(true, false), &pairs, shape);
        same!(ArgPairs::<f64>::new(false, true), &pairs, shape);
    }
}

#[test]
fn of_equal_complex_numbers_the_first_one_is_the_extreme() {
    let of = |merge, x: &[f64]| {
        at_once(&Axis::new(Pairs::new(merge), x.len() / 2), x, (1, x.len() / 2, 2)).remove(0)
    };
    for zeros in [[-0.0, 0.0, 0.0, -0.0], [0.0, -0.0, -0.0, 0.0]] {
        for merge in [Merge::Min, Merge::Max, Merge::NanMin, Merge::NanMax] {
            assert_eq!(format!("{:?}", &zeros[..2]), format!("{:?}", of(merge, &zeros)));
        }
    }
    let nan = f64::NAN;
    let none = [1.0, 2.0, nan, 3.0, 4.0, nan, -1.0, 5.0];
    assert_eq!("[NaN, 3.0]", format!("{:?}", of(Merge::Min, &none)));
    assert_eq!([-1.0, 5.0].to_vec(), of(Merge::NanMin, &none));
    assert_eq!([1.0, 2.0].to_vec(), of(Merge::NanMax, &none));
    // Multiplied by one, as in NumPy: infinity times zero is NaN.
    assert_eq!("[inf, NaN]", format!("{:?}", of(Merge::Prod, &[f64::INFINITY, 0.0])));
    assert_eq!("[inf, 0.0]", format!("{:?}", of(Merge::More, &[f64::INFINITY, 0.0])));
    assert_eq!([-5.0, 10.0].to_vec(), of(Merge::Prod, &[1.0, 2.0, 3.0, 4.0]));
}

#[test]
fn nodes_of_segments_of_nodes_join_too() {
    let (outer, rows) = (1031, 40);
    let x = values(outer * rows);
    let planes = at_once(&Axis::new(Moments::<f64, false>::new(), rows), &x, (outer, rows, 1));
    let planes: Vec<&[f64]> = planes.iter().map(|plane| &plane[..]).collect();
    let axis = Axis::new(MomentsOfNodes, outer);
    let mut scratch = vec![0.0; axis.scratch(1)];
    let mut outs = [[0.0]; 3];
    let mut views: Vec<_> = outs.iter_mut().map(|out| &mut out[..]).collect();
    let piece = Piece { outer: 1, rows: outer, inner: 1, first: 0, base: 0 };
    axis.whole(&planes, &piece, &mut views, &mut scratch);
    for segment in [LEAF, 4 * LEAF, 16 * LEAF] {
        let join = Axis::new(MomentsOfNodes, outer.div_ceil(segment) * LEAF);
        let found = joined((&axis, &join), &planes, (1, outer, 1), (segment, 2));
        assert_eq!(outs.map(Vec::from).to_vec(), found);
    }
}

#[test]
fn a_pivot_far_away_costs_little() {
    // One value of each leaf is far from the others, like a fill value.
    let mut x: Vec<f64> = values(4096).iter().map(|x| 1e6 + x).collect();
    for n in (0..x.len()).step_by(LEAF) {
        x[n] = -1e9;
    }
    let axis = Axis::new(Moments::<f64, false>::new(), x.len());
    let found = at_once(&axis, &x, (1, 4096, 1));
    let mean = sum(&x) / 4096.0;
    let squares: Vec<f64> = x.iter().map(|x| (x - mean) * (x - mean)).collect();
    assert!((found[2][0] / sum(&squares) - 1.0).abs() < 1e-13);
}

#[test]
fn nothing_is_the_identity() {
    let axis = Axis::new(Tree::<Sum<f64, f64>>::new(), 0);
    assert_eq!(vec![vec![0.0; 3]], at_once(&axis, &[], (1, 0, 3)));
    let axis = Axis::new(Exact::<Sum<i32, i64>>::new(), 0);
    assert_eq!(vec![vec![0; 2]], at_once(&axis, &[], (2, 0, 1)));
}

#[test]
fn products_go_on_where_the_rows_before_ended() {
    let (rows, inner) = (9, 6);
    let mut all = values(2 * rows * inner);
    let pieces: Vec<Vec<f64>> = [0..4, 4..rows]
        .map(|part| {
            let of =
                |o: usize| &all[(o * rows + part.start) * inner..(o * rows + part.end) * inner];
            [of(0), of(1)].concat()
        })
        .to_vec();
    accumulate(&mut all, rows, inner, None);
    let [mut first, mut second] = [pieces[0].clone(), pieces[1].clone()];
    accumulate(&mut first, 4, inner, None);
    let before: Vec<f64> =
        first.chunks(4 * inner).flat_map(|one| &one[3 * inner..]).copied().collect();
    accumulate(&mut second, rows - 4, inner, Some(&before));
    let (a, b) = all.split_at(rows * inner);
    assert_eq!([&a[..4 * inner], &b[..4 * inner]].concat(), first);
    assert_eq!([&a[4 * inner..], &b[4 * inner..]].concat(), second);
}
