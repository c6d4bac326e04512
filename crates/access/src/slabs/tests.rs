use std::collections::BTreeSet;

use super::*;

fn section() -> Section {
    let range = |start, count, step| Range::new(start, count, step).unwrap();
    Section::new(vec![range(2, 3, 5), range(0, 7, 1), range(1, 4, 2)])
}

#[test]
fn slabs_are_the_section_within_the_limit() {
    let section = section();
    let all: BTreeSet<Vec<i64>> = section.indices().collect();
    for fortran in [false, true] {
        for limit in [0, 1, 3, 4, 5, 27, 28, 83, 84, 1000] {
            let mut seen = BTreeSet::new();
            for slab in cut(&section, fortran, limit) {
                let slab = slab.unwrap();
                assert!(slab.section.count().unwrap() <= limit.max(1));
                assert_eq!(slab.section.shape(), slab.count);
                for index in slab.section.indices() {
                    assert!(seen.insert(index), "an element is in two slabs");
                }
                let first = slab.section.ranges().iter().map(|range| range.start);
                let ranges = section.ranges().iter().zip(&slab.lo);
                let told = ranges.map(|(range, lo)| range.start + lo * range.step);
                assert!(first.eq(told), "a slab is not where it says");
            }
            assert_eq!(all, seen, "limit {limit}");
        }
    }
}

#[test]
fn slabs_follow_each_other_in_the_file() {
    let (section, mut last) = (section(), None);
    for slab in cut(&section, false, 4) {
        let lo = Some(slab.unwrap().lo);
        assert!(last < lo);
        last = lo;
    }
    last = None;
    for slab in cut(&section, true, 3) {
        let lo = Some(slab.unwrap().lo.into_iter().rev().collect());
        assert!(last < lo);
        last = lo;
    }
}

#[test]
fn nothing_has_no_slabs() {
    let empty = Section::whole(&[3, 0]).unwrap();
    assert_eq!(0, cut(&empty, false, 10).count());
    assert_eq!(1, cut(&Section::new(vec![]), false, 10).count());
}
