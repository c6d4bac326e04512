//! Comparison of the solvers with each other, with all assignments, and with the paper's example.

use proptest::prelude::*;

use super::items::{readers_of_files, Items};
use super::*;

const AIM: Aim = Aim { alpha: 1, beta: 1, objective: Objective::Traffic };
const COST: Aim = Aim { alpha: 3, beta: 2, objective: Objective::Cost };
const ALL: [Solver; 4] = [Solver::Balanced, Solver::Greedy, Solver::Matching, Solver::Exact];

/// Table 1 of the paper, in tenths of megabytes.
#[rustfmt::skip]
const TABLE_1: [i64; 32] = [
    100, 128, 128, 44,   0,   0,   0,  0,
    100, 128, 128, 44,   0,   0,   0,  0,
     25,  32,  32, 11,  75,  96,  96, 33,
      0,   0,   0,  0, 100, 128, 128, 44,
];

fn paper() -> Requests {
    Requests::new(4, 8, TABLE_1.to_vec()).unwrap()
}

/// The only reader of each file.
fn owners(answer: &Assignment) -> Vec<usize> {
    assert!(answer.shares.iter().all(|shares| shares.len() == 1), "{answer:?}");
    answer.shares.iter().map(|shares| shares[0].rank).collect()
}

/// Checks the invariants of every assignment.
fn holds(requests: &Requests, answer: &Assignment) {
    let mut load = vec![0; requests.ranks()];
    for (file, shares) in answer.shares.iter().enumerate() {
        assert!(!shares.is_empty(), "file {file} has no owner");
        assert!(shares.windows(2).all(|two| two[0].rank < two[1].rank), "order of {shares:?}");
        assert_eq!(requests.size(file), shares.iter().map(|share| share.bytes).sum::<i64>());
        for share in shares {
            assert!(requests.may(share.rank, file));
            assert!(share.bytes > 0 || requests.size(file) == 0);
            load[share.rank] += share.bytes;
        }
    }
    assert_eq!(load, answer.load);
}

fn largest(answer: &Assignment) -> i64 {
    answer.load.iter().copied().max().unwrap_or(0)
}

/// All placements of whole files on ranks.
fn every(ranks: usize, files: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..ranks.pow(u32::try_from(files).unwrap())).map(move |mut number| {
        let digit = |_| {
            let digit = number % ranks;
            number /= ranks;
            digit
        };
        (0..files).map(digit).collect()
    })
}

fn priced(requests: &Requests, places: &[usize], aim: &Aim) -> Assignment {
    let share = |(file, &rank)| vec![Share { rank, bytes: requests.size(file) }];
    let shares = places.iter().enumerate().map(share).collect();
    requests.price(shares, Solver::Exact, aim, String::new()).unwrap()
}

#[test]
fn the_list_of_the_paper_is_table_2() {
    let requests = paper();
    let list: Vec<_> = greedy::sorted(&Items::new(&requests).unwrap())
        .into_iter()
        .map(|(rank, file)| (rank + 1, file + 1))
        .collect();
    #[rustfmt::skip]
    let table_2 = [
        (1, 2), (1, 3), (2, 2), (2, 3), (4, 6), (4, 7), (1, 1), (2, 1), (4, 5), (3, 6), (3, 7),
        (3, 5), (1, 4), (2, 4), (4, 8), (3, 8), (3, 2), (3, 3), (3, 1), (3, 4),
    ];
    assert_eq!(table_2.to_vec(), list);
}

#[test]
fn greedy_gives_figure_6() {
    let answer = assign(&paper(), Solver::Greedy, &AIM).unwrap();
    // Files 1 and 4 to processor 2, 2 and 3 to 1, 5 and 8 to 3, 6 and 7 to 4.
    assert_eq!(vec![1, 0, 0, 1, 2, 3, 3, 2], owners(&answer));
    assert_eq!((1600 - 764, vec![576, 324, 252, 448]), (answer.traffic, answer.load));
}

#[test]
fn all_solvers_agree_on_the_traffic_of_the_paper() {
    for solver in [Solver::Greedy, Solver::Matching, Solver::Exact] {
        let answer = assign(&paper(), solver, &AIM).unwrap();
        holds(&paper(), &answer);
        assert_eq!(836, answer.traffic, "{solver:?}");
    }
}

#[test]
fn balanced_evens_the_paper_out() {
    // The paper's rank 1 reads 576 of 1600. With whole files the minimum is 448: two files of 224.
    let answer = assign(&paper(), Solver::Balanced, &AIM).unwrap();
    holds(&paper(), &answer);
    let under = Aim { objective: Objective::TrafficUnder(448), ..AIM };
    let exact = assign(&paper(), Solver::Exact, &under).unwrap();
    assert_eq!((448, exact.traffic), (largest(&answer), answer.traffic));
}

#[test]
fn a_file_above_a_fair_share_is_cut() {
    let requests = Requests::new(
        4,
        5,
        vec![25, 10, 0, 0, 0, 25, 0, 10, 0, 0, 25, 0, 0, 10, 0, 25, 0, 0, 0, 10],
    );
    let answer = assign(&requests.unwrap(), Solver::Balanced, &AIM).unwrap();
    assert_eq!(vec![35; 4], answer.load);
    assert_eq!(4, answer.shares[0].len());
    assert_eq!(0, answer.traffic);
}

#[test]
fn sizes_that_hardly_differ_cost_no_traffic() {
    // Each rank requests two files that no other rank requests. Balancing 1003 and 997 does not
    // justify moving whole files.
    let mut bytes = vec![0; 32];
    for (file, size) in [1003, 997, 1001, 1000, 1002, 1002, 996, 999].into_iter().enumerate() {
        bytes[file / 2 * 8 + file] = size;
    }
    let requests = Requests::new(4, 8, bytes).unwrap();
    let answer = assign(&requests, Solver::Balanced, &AIM).unwrap();
    assert_eq!((0, vec![0, 0, 1, 1, 2, 2, 3, 3]), (answer.traffic, owners(&answer)));
}

#[test]
fn the_dual_deals_readers_by_bytes() {
    let requests = Requests::new(8, 3, [[600, 0, 0], [0, 200, 0]].concat().repeat(4)).unwrap();
    assert_eq!(vec![6, 2, 0], readers_of_files(&requests, 8));
    // 3.5, 2.1, 1.4 of 7: the largest remainder gets the last one.
    let three = Requests::new(7, 3, [vec![50, 30, 20], vec![0; 18]].concat()).unwrap();
    assert_eq!(vec![4, 2, 1], readers_of_files(&three, 7));
    // At least one reader each, then largest remainders: 9.7, 0.2, 0.1 of 10.
    let uneven = Requests::new(10, 3, [vec![970, 20, 10], vec![0; 27]].concat()).unwrap();
    assert_eq!(vec![8, 1, 1], readers_of_files(&uneven, 10));
    for solver in ALL {
        let answer = assign(&requests, solver, &AIM).unwrap();
        holds(&requests, &answer);
        assert_eq!(vec![400; 8], answer.load, "{solver:?}");
    }
}

#[test]
fn columns_of_a_group_stay_together() {
    // Two files with two arrays each. Without groups, each array would go to the rank that requests
    // it.
    let bytes = vec![10, 9, 0, 0, 0, 1, 9, 0, 0, 0, 1, 10];
    let requests = Requests::new(3, 4, bytes).unwrap().with_groups(vec![5, 5, 7, 7]).unwrap();
    let answer = assign(&requests, Solver::Balanced, &AIM).unwrap();
    holds(&requests, &answer);
    let two = Requests::new(2, 4, vec![10, 0, 1, 1, 0, 9, 9, 10]).unwrap();
    let two = two.with_groups(vec![5, 5, 7, 7]).unwrap();
    let answer = owners(&assign(&two, Solver::Balanced, &AIM).unwrap());
    assert_eq!((answer[0], answer[2]), (answer[1], answer[3]));
    assert_ne!(answer[0], answer[2]);
}

#[test]
fn sizes_that_are_less_than_the_requests() {
    // All four ranks request the whole file 0; each other file has one requesting rank.
    let mut bytes = vec![0; 20];
    for rank in 0..4 {
        bytes[rank * 5] = 100;
        bytes[rank * 5 + rank + 1] = 100;
    }
    let requests = Requests::new(4, 5, bytes).unwrap().with_sizes(vec![100; 5]).unwrap();
    let answer = assign(&requests, Solver::Balanced, &AIM).unwrap();
    holds(&requests, &answer);
    assert_eq!(500, answer.load.iter().sum::<i64>());
    assert_eq!(answer.comm.iter().sum::<i64>(), 2 * answer.traffic);
}

#[test]
fn what_is_refused() {
    let code = |result: Result<Requests, PlanError>| result.unwrap_err().code();
    assert_eq!("bad-requests", code(Requests::new(2, 2, vec![1, 2, 3])));
    assert_eq!("bad-requests", code(Requests::new(0, 2, vec![])));
    assert_eq!("bad-requests", code(Requests::new(1, 2, vec![1, -2])));
    assert_eq!("too-large", code(Requests::new(1, 2, vec![i64::MAX, i64::MAX])));
    assert_eq!("bad-requests", code(paper().with_sizes(vec![1; 8])));
    assert_eq!("assignment-impossible", code(paper().with_eligible(vec![false; 32])));
    let large = Requests::new(33, 33, vec![1; 33 * 33]).unwrap();
    let refused = assign(&large, Solver::Exact, &AIM).unwrap_err();
    assert_eq!("assignment-too-large", refused.code());
    assert!(refused.to_string().contains("\"matching\""));
    let tight = Aim { objective: Objective::TrafficUnder(447), ..AIM };
    assert_eq!(
        "assignment-impossible",
        assign(&paper(), Solver::Exact, &tight).unwrap_err().code()
    );
    let dear = Aim { alpha: i64::MAX, ..AIM };
    assert_eq!("too-large", assign(&paper(), Solver::Greedy, &dear).unwrap_err().code());
}

#[test]
fn no_files_and_no_bytes() {
    let none = Requests::new(3, 0, vec![]).unwrap();
    let empty = Requests::new(3, 2, vec![0; 6]).unwrap();
    let many = Requests::new(2, 5, vec![0; 10]).unwrap();
    for solver in ALL {
        assert_eq!(0, assign(&none, solver, &AIM).unwrap().cost);
        for requests in [&empty, &many] {
            let answer = assign(requests, solver, &AIM).unwrap();
            holds(requests, &answer);
            assert_eq!((0, 0), (answer.traffic, answer.cost));
        }
    }
}

#[test]
fn only_some_ranks_read() {
    let eligible = (0..32).map(|at| at / 8 == 1 || at / 8 == 3).collect();
    let requests = paper().with_eligible(eligible).unwrap();
    for solver in ALL {
        let answer = assign(&requests, solver, &AIM).unwrap();
        holds(&requests, &answer);
        assert_eq!((0, 0), (answer.load[0], answer.load[2]));
    }
    // 800 each is possible; up to 1/64 more is allowed for less traffic.
    assert!(largest(&assign(&requests, Solver::Balanced, &AIM).unwrap()) <= 812);
}

fn matrices(ranks: usize, files: usize) -> impl Strategy<Value = Requests> {
    (1..=ranks, 1..=files).prop_flat_map(|(p, n)| {
        let one = prop_oneof![2 => Just(0i64), 3 => 1..20i64, 2 => 1..2000i64];
        proptest::collection::vec(one, p * n).prop_map(move |b| Requests::new(p, n, b).unwrap())
    })
}

proptest! {
    #[test]
    fn every_answer_holds(requests in matrices(12, 12)) {
        for solver in [Solver::Balanced, Solver::Greedy, Solver::Matching] {
            let answer = assign(&requests, solver, &AIM).unwrap();
            holds(&requests, &answer);
            // Requests are disjoint here, so bytes sent and bytes received are equal.
            prop_assert_eq!(2 * answer.traffic, answer.comm.iter().sum::<i64>());
            prop_assert_eq!(&answer, &assign(&requests, solver, &AIM).unwrap());
        }
    }

    #[test]
    fn counts_are_homogeneous(requests in matrices(6, 20)) {
        let (p, n) = (requests.ranks(), requests.files());
        for solver in [Solver::Greedy, Solver::Matching] {
            let answer = assign(&requests, solver, &AIM).unwrap();
            let mut count = vec![0; p];
            for share in answer.shares.iter().flatten().filter(|share| share.bytes > 0 || p <= n) {
                count[share.rank] += 1;
            }
            if p <= n {
                prop_assert!(count.iter().all(|&c| c == n / p || c == n.div_ceil(p)), "{:?}", count);
            } else {
                prop_assert!(count.iter().all(|&c| c <= 1), "{:?}", count);
            }
        }
    }

    #[test]
    fn exact_is_matching_is_at_least_greedy(requests in matrices(5, 7)) {
        let of = |solver| assign(&requests, solver, &AIM).unwrap().traffic;
        prop_assert_eq!(of(Solver::Exact), of(Solver::Matching));
        prop_assert!(of(Solver::Matching) <= of(Solver::Greedy));
    }

    #[test]
    fn exact_is_the_best_of_all(requests in matrices(3, 6)) {
        let (p, n) = (requests.ranks(), requests.files());
        prop_assume!(p <= n);
        let all: Vec<_> = every(p, n).map(|places| priced(&requests, &places, &COST)).collect();
        let cost = assign(&requests, Solver::Exact, &COST).unwrap();
        prop_assert_eq!(all.iter().map(|one| one.cost).min().unwrap(), cost.cost);

        let bound = all.iter().map(largest).min().unwrap() * 5 / 4;
        let under = Aim { objective: Objective::TrafficUnder(bound), ..AIM };
        let answer = assign(&requests, Solver::Exact, &under).unwrap();
        let best = all.iter().filter(|one| largest(one) <= bound).map(|one| one.traffic).min();
        prop_assert_eq!(best.unwrap(), answer.traffic);
        prop_assert!(largest(&answer) <= bound);

        // The balanced solver may cut files, so it may beat the optimum for whole files. It is
        // never far above that.
        let least = all.iter().map(largest).min().unwrap();
        let balanced = assign(&requests, Solver::Balanced, &AIM).unwrap();
        prop_assert!(3 * largest(&balanced) <= 4 * least, "{} {}", largest(&balanced), least);
    }

    #[test]
    fn balanced_is_never_worse_than_matching(requests in matrices(6, 20)) {
        prop_assume!(requests.ranks() <= requests.files());
        let of = |solver| assign(&requests, solver, &AIM).unwrap();
        let (balanced, matching) = (of(Solver::Balanced), of(Solver::Matching));
        prop_assert!(largest(&balanced) <= largest(&matching) + requests.fair(requests.ranks()) / 16);
        if largest(&balanced) == largest(&matching) {
            let cut = balanced.shares.iter().any(|shares| shares.len() > 1);
            prop_assert!(cut || balanced.traffic <= matching.traffic);
        }
    }

    #[test]
    fn cut_files_leave_nobody_above_a_fair_share(
        ranks in 2..9usize, large in 1000..100_000i64, small in proptest::collection::vec(0..50i64, 0..9)
    ) {
        let mut bytes = vec![large];
        bytes.extend(&small);
        let n = bytes.len();
        bytes.resize(n * ranks, 0);
        let requests = Requests::new(ranks, n, bytes).unwrap();
        let answer = assign(&requests, Solver::Balanced, &AIM).unwrap();
        holds(&requests, &answer);
        let fair = requests.fair(ranks);
        prop_assert!(largest(&answer) <= fair + fair / 16);
    }

    #[test]
    fn eligibility_sizes_and_groups_hold(
        requests in matrices(7, 9), marks in proptest::collection::vec(0..4u8, 63),
        more in proptest::collection::vec(0..500i64, 9), groups in proptest::collection::vec(0..3i64, 9)
    ) {
        let (p, n) = (requests.ranks(), requests.files());
        // Rank 0 may read everything.
        let may = (0..p * n).map(|at| at < n || marks[at] > 0).collect();
        let most = |file| (0..p).map(|rank| requests.of(rank, file)).max().unwrap_or(0);
        let sizes = (0..n).map(|file| most(file) + more[file]).collect();
        let requests = requests.clone().with_eligible(may).unwrap();
        let requests = requests.with_sizes(sizes).unwrap().with_groups(groups[..n].to_vec()).unwrap();
        for solver in ALL {
            match assign(&requests, solver, &COST) {
                Ok(answer) => holds(&requests, &answer),
                Err(PlanError::Unassignable(_)) => {
                    prop_assert!(matches!(solver, Solver::Matching | Solver::Exact));
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn whole_files_have_one_reader(
        requests in matrices(7, 9), marks in proptest::collection::vec(any::<bool>(), 9),
        groups in proptest::collection::vec(0..3i64, 9)
    ) {
        let n = requests.files();
        let whole = marks[..n].to_vec();
        let requests = requests.clone().with_whole(whole.clone()).unwrap();
        let requests = requests.with_groups(groups[..n].to_vec()).unwrap();
        for solver in ALL {
            let answer = assign(&requests, solver, &COST).unwrap();
            holds(&requests, &answer);
            let mut readers = [None; 3];
            for file in (0..n).filter(|file| whole[*file] && requests.size(*file) > 0) {
                prop_assert_eq!(1, answer.shares[file].len(), "{:?}", solver);
                // Columns of one group share a reader.
                let rank = answer.shares[file][0].rank;
                let reader = readers[groups[file] as usize].get_or_insert(rank);
                prop_assert_eq!(*reader, rank, "{:?}", solver);
            }
        }
    }
}
