//! Comparison of passes of many steps with single steps, element by element.

use proptest::prelude::*;

use super::{Boundary, Problem, Sweep, Tap};

const ALL: [Boundary; 6] = [
    Boundary::Constant,
    Boundary::Nearest,
    Boundary::Reflect,
    Boundary::Mirror,
    Boundary::Wrap,
    Boundary::Untouched,
];

/// All indices of an array.
fn indices(shape: &[usize]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for n in shape {
        let longer = all.iter().flat_map(|index: &Vec<i64>| {
            (0..*n as i64).map(|last| [index.clone(), vec![last]].concat())
        });
        all = longer.collect();
    }
    all
}

fn flat(index: &[i64], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |at, (index, n)| at * n + *index as usize)
}

/// One step, by its definition.
fn step(old: &[f64], problem: &Problem<f64>) -> Vec<f64> {
    let Problem { shape, width, boundary, fill, taps, .. } = problem;
    let axes = 0..shape.len();
    let radius: Vec<i64> =
        axes.map(|axis| taps.iter().map(|tap| tap.offset[axis].abs()).max().unwrap_or(0)).collect();
    let mut new = vec![];
    for index in indices(shape) {
        let stays = index.iter().zip(shape).zip(boundary.iter().zip(&radius)).any(
            |((at, n), (boundary, radius))| {
                *boundary == Boundary::Untouched && !(*radius..*n as i64 - radius).contains(at)
            },
        );
        let at = flat(&index, shape) * width;
        if stays {
            new.extend_from_slice(&old[at..at + width]);
            continue;
        }
        let mut sum = vec![0.0; *width];
        for (k, tap) in taps.iter().enumerate() {
            let source: Option<Vec<i64>> = index
                .iter()
                .zip(&tap.offset)
                .zip(boundary.iter().zip(shape))
                .map(|((at, offset), (boundary, n))| boundary.source(at + offset, *n as i64))
                .collect();
            let x = match source {
                Some(source) => old[flat(&source, shape) * width..][..*width].to_vec(),
                None => vec![fill.0, fill.1][..*width].to_vec(),
            };
            let (re, im) = tap.weight;
            let product = if *width == 1 {
                vec![re * x[0]]
            } else if taps.iter().all(|tap| tap.weight.1 == 0.0) {
                vec![re * x[0], re * x[1]]
            } else {
                vec![re * x[0] - im * x[1], re * x[1] + im * x[0]]
            };
            for (sum, product) in sum.iter_mut().zip(product) {
                *sum = if k == 0 { product } else { *sum + product };
            }
        }
        new.extend(sum);
    }
    new
}

fn largest_change(new: &[f64], old: &[f64], width: usize) -> f64 {
    let pairs = new.chunks(width).zip(old.chunks(width));
    let changes = pairs.map(|(new, old)| match width {
        1 => (new[0] - old[0]).abs(),
        _ => {
            let (re, im) = (new[0] - old[0], new[1] - old[1]);
            (re * re + im * im).sqrt()
        }
    });
    changes.fold(0.0, f64::max)
}

/// All steps of a pass, in calls of `slab` positions each, with rows of the result in their places.
fn pass(problem: &Problem<f64>, x: &[f64], slab: i64, lanes: usize) -> (Vec<f64>, Vec<f64>) {
    let sweep = Sweep::new(problem.clone()).unwrap();
    let (rows, row) = (problem.shape[0], x.len() / problem.shape[0]);
    let mut result = vec![f64::NAN; x.len()];
    let mut kept = vec![-7e77; sweep.kept()];
    let mut scratch = vec![-8e88; sweep.scratch() * lanes];
    let mut changes = vec![0.0; problem.levels];
    let mut from = 0;
    while from < sweep.positions() {
        let to = (from + slab).min(sweep.positions());
        let part = |position: i64| position.min(rows as i64) as usize * row;
        let (first, last) = sweep.ready(from, to);
        let mut out = vec![0.0; (last - first) as usize * row];
        let new = &x[part(from)..part(to)];
        sweep.run(new, &mut out, &mut kept, &mut scratch, &mut changes, (from, to)).unwrap();
        for (n, ready) in out.chunks(row).enumerate() {
            let at = (first as usize + n) % rows * row;
            result[at..at + row].copy_from_slice(ready);
        }
        from = to;
    }
    (result, changes)
}

fn problems() -> impl Strategy<Value = (Problem<f64>, i64, usize, u64)> {
    let axes = prop_oneof![Just(1usize), Just(2), Just(2), Just(3), Just(4)];
    let shape = axes.prop_flat_map(|axes| {
        let most = [40, 14, 7, 4][axes - 1];
        proptest::collection::vec(1usize..most, axes)
    });
    shape.prop_flat_map(|shape| {
        let axes = shape.len();
        let far = if axes < 3 { 3i64 } else { 2 };
        let tap = (proptest::collection::vec(-far..=far, axes), -1.0..1.0f64, -1.0..1.0f64);
        let problem = (
            proptest::collection::vec(tap, 1..12),
            proptest::collection::vec(proptest::sample::select(&ALL[..]), axes),
            1usize..3,
            1usize..7,
            1usize..8,
            proptest::option::of(1usize..9),
            any::<bool>(),
        );
        let problem =
            problem.prop_map(move |(taps, boundary, width, levels, rows, columns, complex)| {
                let taps = taps.into_iter().map(|(offset, re, im)| {
                    let im = if complex && width == 2 { im } else { 0.0 };
                    Tap { offset, weight: (re, im) }
                });
                Problem {
                    shape: shape.clone(),
                    width,
                    boundary,
                    fill: (0.5, -0.25),
                    taps: taps.collect(),
                    levels,
                    rows,
                    columns,
                    measured: Some((0, i64::MAX)),
                }
            });
        (problem, 1i64..12, 1usize..4, any::<u64>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pass_has_the_bits_of_one_step_after_the_other((problem, slab, lanes, seed) in problems()) {
        let count = problem.shape.iter().product::<usize>() * problem.width;
        let mut state = seed | 1;
        let x: Vec<f64> = (0..count)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 40) as f64 / 1e6
            })
            .collect();
        let (mut expected, mut changes) = (x.clone(), vec![]);
        for _ in 0..problem.levels {
            let next = step(&expected, &problem);
            changes.push(largest_change(&next, &expected, problem.width));
            expected = next;
        }
        let (actual, measured) = pass(&problem, &x, slab, lanes);
        let bits = |all: &[f64]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&expected), bits(&actual));
        prop_assert_eq!(changes, measured);
    }
}

#[test]
fn what_is_no_number_is_the_largest_change() {
    let taps = vec![Tap { offset: vec![0], weight: (f64::NAN, 0.0) }];
    let problem = Problem {
        shape: vec![40],
        width: 1,
        boundary: vec![Boundary::Nearest],
        fill: (0.0, 0.0),
        taps,
        levels: 2,
        rows: 7,
        columns: None,
        measured: Some((0, i64::MAX)),
    };
    let (_, changes) = pass(&problem, &[1.0; 40], 9, 2);
    assert!(changes.iter().all(|change| change.is_nan()));
}

#[test]
fn the_largest_change_is_that_of_the_wanted_columns() {
    for (shape, expected) in [(vec![5, 9], 3.0), (vec![5, 9, 2], 3.0)] {
        let axes = shape.len();
        let problem = Problem {
            boundary: vec![Boundary::Nearest; axes],
            taps: vec![Tap { offset: vec![0; axes], weight: (2.0, 0.0) }],
            width: 1,
            fill: (0.0, 0.0),
            levels: 1,
            rows: 2,
            columns: Some(4),
            measured: Some((2, 4)),
            shape,
        };
        let x: Vec<f64> = indices(&problem.shape).iter().map(|index| index[1] as f64).collect();
        assert_eq!(vec![expected], pass(&problem, &x, 3, 2).1);
    }
}

#[test]
fn blocks_that_do_not_fit_are_refused() {
    let problem = Problem {
        shape: vec![8, 4],
        width: 1,
        boundary: vec![Boundary::Nearest; 2],
        fill: (0.0, 0.0),
        taps: vec![Tap { offset: vec![1, 0], weight: (1.0, 0.0) }],
        levels: 1,
        rows: 4,
        columns: None,
        measured: None,
    };
    let sweep = Sweep::new(problem.clone()).unwrap();
    let (mut kept, mut scratch) = (vec![0.0; sweep.kept()], vec![0.0; sweep.scratch()]);
    let mut run = |new: usize, out: usize, range| {
        let (new, mut out) = (vec![0.0; new], vec![0.0; out]);
        sweep.run(&new, &mut out, &mut kept, &mut scratch, &mut [], range).is_ok()
    };
    assert!(run(16, 12, (0, 4)));
    assert!(!run(16, 16, (0, 4)));
    assert!(!run(12, 12, (0, 4)));
    assert!(!run(0, 0, (8, 40)));
    assert!(Sweep::new(Problem { shape: vec![8, 0], ..problem.clone() }).is_err());
    assert!(Sweep::new(Problem { levels: 0, ..problem }).is_err());
}
