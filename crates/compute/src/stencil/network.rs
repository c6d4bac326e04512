//! Networks of comparators that find the element of a given rank.
//!
//! Problem: the comparisons of a selection depend on earlier results, but vectors must do the same
//! with all their elements. Approach: a network compares the same places whatever their contents.
//! Neighbouring windows share most of their columns, so columns are sorted once (`sorting`). A
//! window merges its sorted columns (`selecting`), without the comparators that do not affect the
//! requested rank.
//!
//! References: Knuth, The Art of Computer Programming 3, 5.3.4 (odd-even merge of any two lengths; Batcher
//! 1968); Chakrabarti, "Sorting network based architectures for median filters", IEEE TCAS-II 1993 (shared
//! columns).

/// An operation on two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparator {
    /// The smaller value goes to the first place, the larger to the second.
    Both(usize, usize),
    /// The smaller value goes to the first place; the second is not used.
    Smaller(usize, usize),
    /// The larger value goes to the second place; the first is not used.
    Larger(usize, usize),
}

/// A network, and the places of its result.
#[derive(Debug, Clone)]
pub(super) struct Network {
    pub comparators: Vec<Comparator>,
    /// Places in the order of their final contents.
    pub order: Vec<usize>,
}

type Pairs = Vec<(usize, usize)>;

/// The network that sorts `n` places.
pub(super) fn sorting(n: usize) -> Network {
    let mut pairs = vec![];
    let order = sort(&(0..n).collect::<Vec<_>>(), &mut pairs);
    Network { comparators: wanted(&pairs, &order), order }
}

/// The network that finds the element of a rank among sorted columns.
///
/// Place `c * rows + r` has row `r` of column `c`.
pub(super) fn selecting(columns: usize, rows: usize, rank: usize) -> Network {
    let mut pairs = vec![];
    let mut lists: Vec<Vec<usize>> =
        (0..columns).map(|c| (c * rows..(c + 1) * rows).collect()).collect();
    // Pairwise, so that lists have about the same length.
    while lists.len() > 1 {
        let merged = lists.chunks(2).map(|two| match two {
            [a, b] => merge(a, b, &mut pairs),
            _ => two.concat(),
        });
        lists = merged.collect();
    }
    let order = vec![lists.concat()[rank]];
    Network { comparators: wanted(&pairs, &order), order }
}

fn sort(places: &[usize], pairs: &mut Pairs) -> Vec<usize> {
    if places.len() < 2 {
        return places.to_vec();
    }
    let (a, b) = places.split_at(places.len() / 2);
    let (a, b) = (sort(a, pairs), sort(b, pairs));
    merge(&a, &b, pairs)
}

/// Odd-even merge of two sorted lists of places; returns the places in their new order.
fn merge(a: &[usize], b: &[usize], pairs: &mut Pairs) -> Vec<usize> {
    if a.is_empty() || b.is_empty() {
        return [a, b].concat();
    }
    if let ([a], [b]) = (a, b) {
        pairs.push((*a, *b));
        return vec![*a, *b];
    }
    let every = |list: &[usize], first: usize| -> Vec<usize> {
        list.iter().copied().skip(first).step_by(2).collect()
    };
    let v = merge(&every(a, 0), &every(b, 0), pairs);
    let w = merge(&every(a, 1), &every(b, 1), pairs);
    let mut order = vec![v[0]];
    for (k, w) in w.iter().enumerate() {
        match v.get(k + 1) {
            Some(v) => {
                pairs.push((*w, *v));
                order.extend([*w, *v]);
            }
            None => order.push(*w),
        }
    }
    order.extend(v.iter().skip(w.len() + 1));
    order
}

/// The comparators that affect these places.
fn wanted(pairs: &Pairs, places: &[usize]) -> Vec<Comparator> {
    let most = pairs.iter().map(|(a, b)| *a.max(b) + 1).max().unwrap_or(0);
    let mut asked = vec![false; most.max(places.iter().max().map_or(0, |n| n + 1))];
    for place in places {
        asked[*place] = true;
    }
    let mut comparators = vec![];
    for (a, b) in pairs.iter().rev() {
        comparators.push(match (asked[*a], asked[*b]) {
            (false, false) => continue,
            (true, true) => Comparator::Both(*a, *b),
            (true, false) => Comparator::Smaller(*a, *b),
            (false, true) => Comparator::Larger(*a, *b),
        });
        asked[*a] = true;
        asked[*b] = true;
    }
    comparators.reverse();
    comparators
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(network: &Network, places: &mut [u32]) {
        for comparator in &network.comparators {
            let (a, b, small, large) = match *comparator {
                Comparator::Both(a, b) => (a, b, true, true),
                Comparator::Smaller(a, b) => (a, b, true, false),
                Comparator::Larger(a, b) => (a, b, false, true),
            };
            let (least, most) = (places[a].min(places[b]), places[a].max(places[b]));
            if small {
                places[a] = least;
            }
            if large {
                places[b] = most;
            }
        }
    }

    /// A network that sorts zeros and ones sorts everything (Knuth 5.3.4, theorem Z).
    #[test]
    fn zeros_and_ones_are_sorted() {
        for n in 1..13 {
            let network = sorting(n);
            for bits in 0..1u32 << n {
                let mut places: Vec<u32> = (0..n).map(|k| bits >> k & 1).collect();
                run(&network, &mut places);
                let sorted: Vec<u32> = network.order.iter().map(|k| places[*k]).collect();
                assert!(sorted.is_sorted(), "{n} {bits:b}");
            }
        }
    }

    #[test]
    fn every_rank_is_found_among_sorted_columns_of_zeros_and_ones() {
        for (columns, rows) in [(1, 4), (3, 3), (5, 5), (3, 9), (4, 2), (7, 1), (2, 6)] {
            let cases = (rows + 1usize).pow(columns as u32);
            for rank in 0..columns * rows {
                let network = selecting(columns, rows, rank);
                for case in 0..cases {
                    let mut places = vec![];
                    let mut ones_in_all = 0;
                    for column in 0..columns {
                        let ones = case / (rows + 1).pow(column as u32) % (rows + 1);
                        ones_in_all += ones;
                        places.extend((0..rows).map(|row| u32::from(row + ones >= rows)));
                    }
                    run(&network, &mut places);
                    let expected = u32::from(rank + ones_in_all >= columns * rows);
                    assert_eq!(expected, places[network.order[0]], "{columns} {rows} {rank}");
                }
            }
        }
    }
}
