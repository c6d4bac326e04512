use std::cell::Cell;
use std::collections::BTreeSet;

use outcore_io::exec::User;
use outcore_plan::Layout;

use super::*;
use crate::hints::Hints;
use crate::step::reach;
use crate::testing::{self, TestDir};

/// Returns the parts in which a section of 400 rows, every second element of each, is read.
fn parts(surprises: usize, slow: Duration) -> Vec<(i64, Section)> {
    let dir = TestDir::new("learning");
    let described = testing::dense(&dir.file("a", b""), &[1000, 1000], 8);
    let Layout::Strided(layout) = &described.layout else { unreachable!() };
    let section = testing::section(&[(10, 400, 2), (1, 300, 3)]);
    // Rows of the caller's array in reverse order.
    let strides = [-8 * 300, 8];
    let (hints, mut memory) = (Hints::default(), vec![0; 8 * 300 * 400]);
    let (low, high) = reach(&section, &strides, 8);
    let data = User::of(&mut memory, (-low) as usize);
    assert_eq!(8 * 300 * 400, high - low);
    let origin = data.address();
    let direction = Direction::Read;
    let access = Access { direction, section: &section, strides: &strides, data, hints: &hints };
    let (mut parts, left) = (Vec::new(), Cell::new(surprises));
    let told = || {
        let now = left.get();
        left.set(now.saturating_sub(1));
        now > 0
    };
    in_parts(layout, &access, 400 * 300, &told, &mut |part| {
        parts.push((part.data.address() - origin, part.section.clone()));
        assert_eq!(access.strides, part.strides);
        std::thread::sleep(slow);
        Ok(())
    })
    .unwrap();
    // Each element once, at the place to which the whole read would move it.
    let mut seen = BTreeSet::new();
    for (at, part) in &parts {
        for index in part.indices() {
            let of_part = part.ranges().iter().zip(&index).map(|(r, i)| (i - r.start) / r.step);
            let of_all = section.ranges().iter().zip(&index).map(|(r, i)| (i - r.start) / r.step);
            let place = |at: i64, steps: Vec<i64>| {
                at + steps.iter().zip(&strides).map(|(n, s)| n * s).sum::<i64>()
            };
            let place = (place(*at, of_part.collect()), place(0, of_all.collect()));
            assert_eq!(place.0, place.1);
            assert!(seen.insert(index));
        }
    }
    assert_eq!(400 * 300, seen.len());
    parts
}

#[test]
fn a_trial_comes_first_and_the_rest_follows() {
    let parts = parts(0, Duration::ZERO);
    let first = parts[0].1.count().unwrap();
    assert!(first <= 2 * TRIALS[0], "a trial of {first}");
    assert_eq!(Some(400 * 300), parts.iter().map(|one| one.1.count().ok()).sum());
}

#[test]
fn a_surprise_is_looked_at_twice_and_no_more() {
    let number = |surprises| parts(surprises, Duration::ZERO).len();
    assert!(number(0) < number(1), "a disk that was not as assumed has no second trial");
    assert_eq!(number(2), number(100));
}

#[test]
fn a_trial_that_takes_long_is_followed_by_another_one() {
    let long = parts(0, UNUSUAL + Duration::from_millis(1));
    assert_eq!(parts(100, Duration::ZERO), long);
    assert!(long[1].1.count().unwrap() <= 2 * TRIALS[1]);
}
