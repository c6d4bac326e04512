use super::*;

fn asked(family: &Family, most: usize) -> (Vec<(i64, i64)>, usize) {
    let (mut seen, mut left) = (Vec::new(), most);
    each(family, &mut left, &mut |offset, len| seen.push((offset, len)));
    (seen, left)
}

#[test]
fn all_extents_of_a_family_are_asked_for_in_order() {
    let family = Family { offset: 100, len: 7, count: vec![2, 3], stride: vec![1000, 10] };
    let expected = [100, 110, 120, 1100, 1110, 1120].map(|offset| (offset, 7));
    assert_eq!((expected.to_vec(), 4), asked(&family, 10));
}

#[test]
fn no_more_are_asked_for_than_are_left() {
    let family = Family { offset: 0, len: 1, count: vec![5], stride: vec![10] };
    assert_eq!((vec![(0, 1), (10, 1)], 0), asked(&family, 2));
    assert_eq!((vec![], 0), asked(&family, 0));
}

#[test]
fn nothing_is_asked_for_where_there_is_nothing() {
    let family = Family { offset: 0, len: 1, count: vec![5, 0], stride: vec![10, 1] };
    assert_eq!((vec![], 3), asked(&family, 3));
}
