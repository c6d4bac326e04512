//! Sizes up to the end of 63 bits give errors, never a panic or a wrapped number.
//!
//! The fuzz lane, `crates/io/tests/fuzz/plans.rs`, tries invalid layouts.
#![allow(clippy::unwrap_used)]

use outcore_plan::*;

#[test]
fn arrays_of_2_to_the_62_bytes_are_planned_and_larger_ones_refused() {
    let layout = Layout::Strided(Strided::dense(&[1 << 30, 1 << 29], 8, Order::C, 0, 0).unwrap());
    let section = Section::whole(&[1 << 30, 1 << 29]).unwrap();
    let user = [1 << 32, 8];
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &user,
        direction: Direction::Read,
    };
    let plan = Plan::new(&request, &Terms::new(1 << 28)).unwrap();
    assert_eq!(1 << 62, plan.cost().read_bytes);
    let direct = Plan::new(&request, &Terms { direct: true, ..Terms::new(1 << 28) }).unwrap();
    let bounds = Bounds {
        slot_bytes: direct.slot_bytes(),
        files: vec![i64::MAX],
        user: (0, i64::MAX),
        fill: 0,
        block: direct.block(),
        home: None,
    };
    for k in [0, direct.rounds() / 2, direct.rounds() - 1] {
        check(direct.round(k).unwrap(), &bounds).unwrap();
    }
    let refused = Strided::dense(&[1 << 30, 1 << 30], 8, Order::C, 0, 0);
    assert_eq!(Err(PlanError::TooLarge("the array")), refused);
    let strides = vec![1 << 40, 1];
    let refused = Chunked::new(vec![1 << 40, 1 << 40], 1, vec![1, 1 << 40], strides, false, 0);
    assert_eq!(Err(PlanError::TooLarge("the array")), refused);
}

#[test]
fn a_long_step_over_endless_chunks_ends() {
    let layout = Chunked::new(vec![1 << 60], 1, vec![1], vec![1], true, 10).unwrap();
    let section = Section::new(vec![Range::new(3, 1000, 1 << 49).unwrap()]);
    let batches: Vec<_> = layout.batches(&section, 1 << 20).unwrap().collect();
    assert_eq!(1000, batches.len());
    assert!(batches.iter().all(|b| layout.touched(&b.section).unwrap().cells().unwrap() == 1));
}

#[test]
fn the_last_index_of_63_bits_is_refused() {
    assert!(Range::new(i64::MAX, 1, 1).is_err() && Range::new(i64::MAX - 1, 2, 1).is_err());
    let last = Range::new(i64::MAX - 1, 1, i64::MAX).unwrap();
    assert_eq!((1, i64::MAX), (last.step, last.stop()));
}

#[test]
fn a_direct_block_of_megabytes_takes_no_memory_to_count() {
    let layout = Layout::Strided(Strided::dense(&[1 << 38], 6, Order::C, 0, 128).unwrap());
    let section = Section::new(vec![Range::new(18, 1 << 36, 3).unwrap()]);
    let request = Request {
        layout: &layout,
        table: None,
        section: &section,
        user_stride: &[6],
        direction: Direction::Read,
    };
    let method = Some(Method::List);
    let terms = Terms { direct: true, block: 4 << 20, method, ..Terms::new(1 << 28) };
    let plan = Plan::new(&request, &terms).unwrap();
    assert_eq!(4096, plan.block());
    let round = plan.round(0).unwrap();
    assert!(round.reads.iter().all(|read| read.channel == Channel::Cached));
}

#[test]
fn more_chunks_than_one_access_may_touch_are_refused_and_leapt_over_ones_do_not_count() {
    let layout = Chunked::new(vec![1 << 31, 1 << 20], 1, vec![1, 2], vec![2, 1], false, 0).unwrap();
    let refused = layout.admit(&Section::whole(&[1 << 31, 1 << 20]).unwrap());
    let chunks = 1 << 50;
    assert_eq!(Err(PlanError::TooManyChunks { chunks, most: 1 << 30 }), refused);
    let rows = |count, step| {
        let range = Range::new(0, count, step).unwrap();
        layout.admit(&Section::new(vec![range, Range::new(0, 1 << 20, 1).unwrap()]))
    };
    assert!(rows(1 << 11, 1).is_ok() && rows(1 << 11, 1 << 20).is_ok());
    assert!(rows((1 << 11) + 1, 1).is_err() && rows((1 << 11) + 1, 1 << 19).is_err());
}
