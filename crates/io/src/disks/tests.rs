use super::*;

const TOLD: Figures =
    Figures { gap: 24 << 10, latency_ns: 9_500, device: 2_600_000_000, stream: 2_800_000_000 };

/// What a disk takes that serves so many requests and bytes a second.
fn slow(requests: i64, bytes: i64) -> Observation {
    let ns = (requests * 5_000_000).max(bytes * 10);
    Observation { requests, bytes, ns }
}

fn within(value: i64, low: i64, high: i64) {
    assert!((low..=high).contains(&value), "{value} is not in {low}..={high}");
}

#[test]
fn without_observations_nothing_moves() {
    let found = fitted(&[], TOLD);
    within(found.latency_ns, 9_499, 9_501);
    within(found.device, 2_599_000_000, 2_601_000_000);
}

#[test]
fn scattered_requests_tell_what_a_request_costs() {
    let found = fitted(&[slow(32, 32 * 4096)], TOLD);
    within(found.latency_ns, 3_000_000, 5_500_000);
    // The rate is hardly theirs to tell: it stays within a factor.
    within(found.device, 200_000_000, 2_600_000_000);
    assert!(found.gap > 600_000, "gaps of 64 KiB are read: {found:?}");
}

#[test]
fn long_ones_tell_the_rate() {
    let found = fitted(&[slow(32, 32 * 4096), slow(64, 64 << 20)], TOLD);
    within(found.latency_ns, 3_500_000, 5_500_000);
    within(found.device, 90_000_000, 250_000_000);
}

#[test]
fn both_figures_are_recovered_where_times_add_up() {
    for (latency, rate) in
        [(2_000, 5_000_000_000), (120_000, 400_000_000), (8_000_000, 150_000_000)]
    {
        let of = |requests: i64, bytes: i64| Observation {
            requests,
            bytes,
            ns: requests * latency + (bytes as f64 * 1e9 / rate as f64) as i64,
        };
        let found = fitted(&[of(64, 64 * 4096), of(64, 64 << 20)], TOLD);
        within(found.latency_ns, latency * 9 / 10, latency * 11 / 10);
        within(found.device, rate / 10 * 9, rate / 10 * 11);
    }
}

#[test]
fn a_disk_like_the_one_told_stays_as_it_was_told() {
    let mut disk = Disk::default();
    for factor in [5, 10, 20] {
        let ns = 64 * 9_500 * factor / 10;
        disk.saw(Observation { requests: 64, bytes: 64 * 512, ns }, TOLD);
        assert_eq!(disk.now(), None);
    }
}

#[test]
fn how_long_it_takes_to_begin_tells_nothing() {
    let mut disk = Disk::default();
    disk.saw(Observation { requests: 40, bytes: 40 * 4096, ns: 3_300_000 }, TOLD);
    assert_eq!(disk.now(), None);
}

#[test]
fn one_stall_is_forgotten_when_the_disk_is_fast_again() {
    let mut disk = Disk::default();
    disk.saw(slow(64, 64 * 4096), TOLD);
    assert!(disk.now().is_some_and(|(figures, origin)| {
        origin == Origin::Learned && figures.latency_ns > 1_000_000
    }));
    disk.saw(Observation { requests: 64, bytes: 64 * 4096, ns: 700_000 }, TOLD);
    assert_eq!(disk.now(), None);
}

#[test]
fn a_disk_that_became_slow_is_learned_again() {
    let mut disk = Disk::default();
    for _ in 0..KEPT {
        disk.saw(Observation { requests: 64, bytes: 64 * 4096, ns: 700_000 }, TOLD);
    }
    for _ in 0..KEPT - 1 {
        disk.saw(slow(64, 64 * 4096), TOLD);
        assert_eq!(disk.now(), None);
    }
    disk.saw(slow(64, 64 * 4096), TOLD);
    assert!(disk.now().is_some());
}

#[test]
fn what_says_nothing_of_the_disk_is_not_kept() {
    let mut disk = Disk::default();
    for one in [
        Observation { requests: 1, bytes: 4096, ns: 80_000_000 },
        Observation { requests: 64, bytes: 1 << 20, ns: 50_000 },
        Observation { requests: 0, bytes: 8 << 20, ns: 80_000_000 },
    ] {
        disk.saw(one, TOLD);
    }
    assert!(disk.seen.iter().all(VecDeque::is_empty));
}

/// Devices that no other test has; all of them share what this process knows.
#[test]
fn a_period_lasts_until_the_last_read_of_it_ends() {
    let (device, path) = (u64::MAX, Path::new("/data/a.npy"));
    assert!(!is_known(device));
    let first = Watch::begin(device, path, TOLD).unwrap();
    let second = Watch::begin(device, path, TOLD).unwrap();
    first.end(64, 64 * 4096);
    assert_eq!(figures(device), None);
    std::thread::sleep(Duration::from_millis(60));
    second.end(64, 64 * 4096);
    let (found, origin) = figures(device).unwrap();
    assert_eq!(origin, Origin::Learned);
    within(found.latency_ns, 200_000, 2_000_000);
    assert!(is_known(device));
    assert!(learned().contains(&(path.to_path_buf(), found)));
}

#[test]
fn a_failed_read_spoils_its_period() {
    let (device, path) = (u64::MAX - 1, Path::new("/data/a.npy"));
    let first = Watch::begin(device, path, TOLD).unwrap();
    drop(Watch::begin(device, path, TOLD));
    std::thread::sleep(Duration::from_millis(30));
    first.end(64, 64 * 4096);
    assert_eq!(figures(device), None);
    assert!(!is_known(device));
}
