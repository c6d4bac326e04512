use alloc::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::section::{Range, Section};

const ALL: Offer =
    Offer { plain: true, plain_fortran: true, chunks: true, chunks_fortran: true, files: true };
const HDF5: Offer = Offer { plain_fortran: false, chunks_fortran: false, files: false, ..ALL };
/// A disk with rates for which both requests and bytes matter in small arrays.
const SLOW: Rates = Rates { latency_ns: 100, device: 1_000_000_000, ..Rates::MEASURED };

fn site<'a>(shape: &'a [i64], item: i64, offer: Offer, rates: &'a Rates) -> Site<'a> {
    Site { shape, item, offer, rates, budget: 1 << 30 }
}

/// Requests and bytes of one section, counted element by element.
///
/// Each chunk is read wholly along the axes from `level` on (from slow to fast). Runs are elements
/// that follow one another in the file of their chunk.
fn counted(form: &Form, shape: &[i64], low: &[i64], t: &[i64], level: usize) -> (i128, i128) {
    let chunk = form.chunk.clone().unwrap_or_else(|| shape.to_vec());
    let ndim = shape.len();
    let slow_first: Vec<usize> =
        if form.fortran { (0..ndim).rev().collect() } else { (0..ndim).collect() };
    let ranges = (0..ndim).map(|d| {
        let (mut a, mut b) = (low[d], (low[d] + t[d]).min(shape[d]));
        if slow_first[level..].contains(&d) {
            (a, b) = (a / chunk[d] * chunk[d], ((b - 1) / chunk[d] + 1) * chunk[d]);
        }
        Range::new(a, b - a, 1).unwrap()
    });
    let mut places: BTreeMap<Vec<i64>, BTreeSet<i64>> = BTreeMap::new();
    for index in Section::new(ranges.collect()).indices() {
        let which = index.iter().zip(&chunk).map(|(i, e)| i / e).collect();
        let place = slow_first.iter().fold(0, |at, d| at * chunk[*d] + index[*d] % chunk[*d]);
        places.entry(which).or_default().insert(place);
    }
    let runs = places.values().map(|p| p.iter().filter(|at| !p.contains(&(*at - 1))).count());
    (runs.sum::<usize>() as i128, places.values().map(BTreeSet::len).sum::<usize>() as i128)
}

fn enumerated(site: &Site<'_>, form: &Form, typical: &Typical) -> Taken {
    let chunk = form.chunk.clone().unwrap_or_else(|| site.shape.to_vec());
    let lengths = site.shape.iter().zip(&typical.shape).map(|(n, t)| (n - 1) / t + 1);
    let grid = Section::whole(&lengths.collect::<Vec<_>>()).unwrap();
    let mut best: Option<(i128, i128, i128)> = None;
    let mut places = 0;
    for level in 0..=site.shape.len() {
        let (mut requests, mut elements, mut opened) = (0, 0, 0);
        places = 0;
        for at in grid.indices() {
            let low: Vec<i64> = at.iter().zip(&typical.shape).map(|(k, t)| k * t).collect();
            let (runs, moved) = counted(form, site.shape, &low, &typical.shape, level);
            requests += runs;
            elements += moved;
            places += 1;
            let met = (0..low.len()).map(|d| {
                let end = (low[d] + typical.shape[d]).min(site.shape[d]);
                i128::from((end - 1) / chunk[d] - low[d] / chunk[d] + 1)
            });
            opened += met.product::<i128>();
        }
        let opened = if site.offer.files && form.chunk.is_some() { opened } else { 0 };
        let bytes = elements * i128::from(site.item);
        let ns = (requests + opened) * i128::from(site.rates.latency_ns)
            + bytes * 1_000_000_000 / i128::from(site.rates.device);
        if best.is_none_or(|(least, ..)| ns < least) {
            best = Some((ns, requests + opened, bytes));
        }
    }
    let (ns, requests, bytes) = best.unwrap();
    let each = |n: i128| i64::try_from(n / places).unwrap();
    Taken { requests: each(requests * 1000), bytes: each(bytes), ns: each(ns) }
}

/// An array, a section that fits it and a form.
fn cases() -> impl Strategy<Value = (Vec<i64>, Vec<i64>, Form)> {
    proptest::collection::vec((1..9_i64, 1..9_i64, 1..9_i64), 1..4).prop_flat_map(|axes| {
        (Just(axes), any::<bool>(), any::<bool>()).prop_map(|(axes, fortran, chunks)| {
            let shape: Vec<i64> = axes.iter().map(|(n, ..)| *n).collect();
            let typical = axes.iter().map(|(n, t, _)| (*t).min(*n)).collect();
            let chunk = axes.iter().map(|(n, _, e)| (*e).min(*n)).collect();
            (shape, typical, Form { fortran, chunk: chunks.then_some(chunk) })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn prices_are_those_of_requests_that_are_enumerated(
        (shape, typical, form) in cases(), item in 1..9_i64, files: bool,
    ) {
        let site = site(&shape, item, Offer { files, ..ALL }, &SLOW);
        let typical = Typical { shape: typical, times: 1 };
        prop_assert_eq!(enumerated(&site, &form, &typical), price(&site, &form, &typical));
    }

    #[test]
    fn what_is_chosen_is_the_cheapest_of_all(
        n in 1..20_i64, m in 1..20_i64, first in (1..20_i64, 1..20_i64), second in (1..20_i64, 1..20_i64),
        times in 1..4_i64, files: bool,
    ) {
        let shape = [n, m];
        let site = site(&shape, 8, Offer { files, ..ALL }, &SLOW);
        let of = |t: (i64, i64), times| Typical { shape: vec![t.0.min(n), t.1.min(m)], times };
        let typical = [of(first, 1), of(second, times)];
        let found = choose(&site, &typical).unwrap();
        let mut least = i64::MAX;
        for (a, b) in (1..=n).flat_map(|a| (1..=m).map(move |b| (a, b))) {
            for fortran in [false, true] {
                let form = Form { fortran, chunk: Some(vec![a, b]) };
                least = least.min(chosen(&site, &typical, form).ns);
            }
        }
        let chunks = found.iter().find(|c| c.form.chunk.is_some()).unwrap();
        // Not all edges of such short axes are tried, only the important ones.
        prop_assert!(chunks.ns as f64 <= least as f64 * 1.12, "{:?} {}", chunks, least);
        let plain = |fortran| chosen(&site, &typical, Form { fortran, chunk: None }).ns;
        let weighed = [plain(false) * 90, plain(true) * 95, chunks.ns * 100];
        let first = &found[0];
        let weight = match (&first.form.chunk, first.form.fortran) {
            (None, false) => 90,
            (None, true) => 95,
            _ => 100,
        };
        prop_assert_eq!(weighed.iter().min().unwrap(), &(first.ns * weight));
    }

    #[test]
    fn nothing_overflows(
        n in 1..i64::MAX, m in 1..i64::MAX, t in 1..i64::MAX, e in 1..i64::MAX, latency_ns in 0..i64::MAX,
        device in 0..i64::MAX, budget in 0..i64::MAX, item in 1..1_000_000_i64,
    ) {
        let rates = Rates { latency_ns, device, ..Rates::MEASURED };
        let (shape, wanted) = ([n, m], vec![t.min(n), e.min(m)]);
        let site = Site { budget, ..site(&shape, item, ALL, &rates) };
        let found = choose(&site, &[Typical { shape: wanted, times: 3 }]).unwrap();
        for one in &found {
            prop_assert!(one.ns >= 0 && one.taken.iter().all(|t| t.requests >= 0 && t.bytes >= 0));
            let chunk = one.form.chunk.clone().unwrap_or_else(|| vec![1]);
            let bytes = chunk.iter().fold(i128::from(item), |b, e| b.saturating_mul(i128::from(*e)));
            prop_assert!(bytes <= i128::from(largest_chunk(&rates, budget, item)));
        }
    }
}

fn chunk_of(shape: &[i64], typical: &[(&[i64], i64)], offer: Offer) -> (bool, Option<Vec<i64>>) {
    let typical: Vec<Typical> =
        typical.iter().map(|(t, times)| Typical { shape: t.to_vec(), times: *times }).collect();
    let found = choose(&site(shape, 8, offer, &Rates::MEASURED), &typical).unwrap();
    (found[0].form.fortran, found[0].form.chunk.clone())
}

#[test]
fn rows_are_read_from_rows_and_columns_from_columns() {
    let shape = [10_000, 10_000];
    assert_eq!((false, None), chunk_of(&shape, &[(&[64, 10_000], 1)], ALL));
    assert_eq!((true, None), chunk_of(&shape, &[(&[10_000, 64], 1)], ALL));
    // Long pieces of rows are long runs.
    assert_eq!((false, None), chunk_of(&shape, &[(&[5_000, 10_000], 1)], ALL));
}

#[test]
fn what_is_written_by_rows_and_read_by_columns_lies_in_chunks_aligned_with_both() {
    let (_, chunk) = chunk_of(&[4096, 8192], &[(&[64, 8192], 1), (&[4096, 64], 20)], ALL);
    let chunk = chunk.unwrap();
    assert!(chunk[0] % 64 == 0 || 64 % chunk[0] == 0, "{chunk:?}");
    assert!(64 % chunk[1] == 0, "{chunk:?}");
}

#[test]
fn blocks_lie_in_chunks_whose_edges_are_theirs() {
    let (fortran, chunk) = chunk_of(&[10_000, 10_000], &[(&[500, 500], 1)], HDF5);
    let chunk = chunk.unwrap();
    assert!(!fortran && 500 % chunk[0] == 0 && 500 % chunk[1] == 0, "{chunk:?}");
    let bytes = 8 * chunk[0] * chunk[1];
    assert!(bytes <= largest_chunk(&Rates::MEASURED, 1 << 30, 8) && bytes >= 500_000, "{chunk:?}");
}

#[test]
fn chunks_are_as_large_as_a_request_that_is_efficient_and_no_larger_than_the_budget_allows() {
    let disk = Rates { latency_ns: 100_000, device: 2_000_000_000, ..Rates::MEASURED };
    assert_eq!(64 * 200_000, largest_chunk(&disk, i64::MAX, 8));
    assert_eq!(1 << 20, largest_chunk(&disk, 16 << 20, 8));
    let far = Rates { latency_ns: 10_000_000, ..disk };
    assert_eq!(16 << 20, largest_chunk(&far, i64::MAX, 8));
    let near = Rates { latency_ns: 0, ..disk };
    assert_eq!(256 << 10, largest_chunk(&near, i64::MAX, 8));
    assert_eq!(100, largest_chunk(&near, 0, 100));
}

#[test]
fn an_array_of_many_axes_is_planned_at_once() {
    let shape = [3_i64; 32];
    let found = choose(
        &site(&shape, 8, ALL, &Rates::MEASURED),
        &[Typical { shape: vec![2; 32], times: 1 }],
    );
    assert!(found.is_ok());
}

#[test]
fn words_that_mean_nothing_are_refused() {
    let shape = [5, 5];
    let here = site(&shape, 8, ALL, &SLOW);
    for (t, times) in [(vec![5], 1), (vec![5, 6], 1), (vec![0, 5], 1), (vec![5, 5], 0)] {
        assert!(choose(&here, &[Typical { shape: t, times }]).is_err());
    }
    let nothing = Offer { plain: false, plain_fortran: false, chunks: false, ..ALL };
    assert!(choose(&site(&shape, 8, nothing, &SLOW), &[]).is_err());
}
