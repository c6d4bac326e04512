use super::*;

const TOLD: Figures =
    Figures { gap: 24 << 10, latency_ns: 9_500, device: 2_600_000_000, stream: 2_800_000_000 };

/// Observes a disk that serves 200 requests and 100 MB per second.
fn slow(requests: i64, bytes: i64) -> Observation {
    let ns = (requests * 5_000_000).max(bytes * 10);
    Observation { requests, bytes, ns, idle: 0 }
}

/// Observes a disk after a long idle time.
fn after_pause(requests: i64, ns: i64) -> Observation {
    Observation { requests, bytes: requests * 4096, ns, idle: i64::MAX }
}

/// A device with limits on requests and bytes per second, which after a pause serves the work of a
/// tenth of a second immediately.
#[derive(Default)]
struct Throttled {
    saved: i64,
}

impl Throttled {
    fn read(&mut self, disk: &mut Disk, requests: i64, bytes: i64, idle: i64) {
        let work = slow(requests, bytes).ns;
        self.saved = self.saved.saturating_add(idle).min(100_000_000);
        let ns = (work - self.saved).max(requests * 9_500);
        self.saved = (self.saved - work).max(0);
        disk.saw(Observation { requests, bytes, ns, idle }, TOLD);
    }
}

/// Asserts that the learned parameters are within a factor of 1.3 of these.
fn learned_as(disk: &Disk, latency: i64, rate: i64) {
    let (found, origin) = disk.now().unwrap();
    assert_eq!(origin, Origin::Learned);
    within(found.latency_ns, latency * 10 / 13, latency * 13 / 10);
    within(found.device, rate / 13 * 10, rate / 10 * 13);
}

#[test]
fn a_throttled_device_is_not_taken_for_its_bursts() {
    let (mut disk, mut device) = (Disk::default(), Throttled::default());
    // Two trials, and the rest in long requests.
    device.read(&mut disk, 28, 28 * 4096, i64::MAX);
    device.read(&mut disk, 12, 12 * 4096, 200_000);
    let (found, _) = disk.now().unwrap();
    within(found.latency_ns, 5_000_000 * 10 / 13, 5_000_000 * 13 / 10);
    device.read(&mut disk, 16, 64 << 20, 200_000);
    learned_as(&disk, 5_000_000, 100_000_000);
    // More bursts change nothing.
    for _ in 0..2 * KEPT {
        device.read(&mut disk, 26, 26 * 4096, 300_000_000);
        device.read(&mut disk, 8, 16 << 20, 300_000_000);
    }
    learned_as(&disk, 5_000_000, 100_000_000);
    // Nor does a read that is served immediately as a whole.
    let found = disk.now();
    device.read(&mut disk, 2, 8 << 20, 300_000_000);
    assert_eq!(disk.now(), found);
}

#[test]
fn bytes_that_were_saved_up_while_requests_waited_do_not_make_a_device_fast() {
    let (mut disk, mut device) = (Disk::default(), Throttled::default());
    device.read(&mut disk, 44, 44 * 4096, i64::MAX);
    device.read(&mut disk, 40, 40 * 4096, 200_000);
    let found = disk.now().unwrap();
    for _ in 0..KEPT - 1 {
        let one = Observation { requests: 16, bytes: 16 << 20, ns: 9_000_000, idle: 200_000 };
        disk.saw(one, TOLD);
        assert_eq!(disk.now().unwrap().1, Origin::Learned);
        assert!(disk.now().unwrap().0.latency_ns > found.0.latency_ns / 2);
    }
}

#[test]
fn a_spinning_disk_saves_nothing_up() {
    let mut disk = Disk::default();
    let mut read = |requests: i64, bytes: i64, idle| {
        let ns = requests * 8_000_000 + bytes * 20 / 3;
        disk.saw(Observation { requests, bytes, ns, idle }, TOLD);
    };
    read(28, 28 * 4096, i64::MAX);
    read(12, 12 * 4096, 200_000);
    read(16, 64 << 20, 200_000);
    learned_as(&disk, 8_000_000, 150_000_000);
}

#[test]
fn a_busy_machine_does_not_make_a_disk_slow() {
    for noise in [100_000, 200_000, 300_000] {
        let mut disk = Disk::default();
        for turn in 0..20 {
            let ns = |requests: i64| 2 * BEGINNING + requests * (9_500 + noise);
            disk.saw(after_pause(28, ns(28)), TOLD);
            disk.saw(Observation { idle: 200_000, ..after_pause(12, ns(12)) }, TOLD);
            disk.saw(after_pause(1000, ns(1000)), TOLD);
            let long = Observation { bytes: 64 << 20, idle: 200_000, ..after_pause(64, 0) };
            disk.saw(Observation { ns: ns(64) + 26_000_000, ..long }, TOLD);
            assert_eq!(disk.now(), None, "noise of {noise}, turn {turn}");
        }
    }
}

#[test]
fn two_stalls_of_the_processor_say_nothing_of_the_disk() {
    let mut disk = Disk::default();
    for _ in 0..CONFIRMED {
        disk.saw(after_pause(28, 30_000_000), TOLD);
    }
    assert!(disk.seen[0].iter().all(|one| is_slow(one, TOLD)));
    assert_eq!(disk.now(), None);
}

#[test]
fn a_period_that_is_long_beyond_doubt_tells_by_itself() {
    for (ns, tells) in [(1_200_000_000, true), (LONG_ENOUGH - 1, false)] {
        let mut disk = Disk::default();
        let one = Observation { bytes: 64 * 32_768, ..after_pause(64, ns + BEGINNING) };
        disk.saw(one, TOLD);
        assert_eq!(disk.now().is_some(), tells, "{ns}");
    }
    // As long, but with so many requests that each was hardly slow.
    let mut disk = Disk::default();
    disk.saw(after_pause(1000, 1_200_000_000), TOLD);
    assert_eq!(disk.now(), None);
}

#[test]
fn what_another_rank_timed_is_taken_over_unless_it_was_measured() {
    // Device numbers that no disk has.
    let (new, measured, known) = (u64::MAX - 5, u64::MAX - 6, u64::MAX - 7);
    let slow = Figures::of(5_000_000, 100_000_000, TOLD);
    let told = |origin| Disk { told: Some((slow, origin)), ..Disk::default() };
    disks().unwrap().insert(measured, told(Origin::Measured));
    disks().unwrap().insert(known, told(Origin::Learned));
    assert!(!is_known(new) && is_known(measured) && !is_known(known));
    for device in [new, measured, known] {
        adopt(device, 2_000_000, 50_000_000, TOLD);
        assert!(is_known(device), "no trial is needed");
        assert_eq!(timed(device, TOLD), None, "but it has timed nothing itself");
    }
    let taken = Some((Figures::of(2_000_000, 50_000_000, TOLD), Origin::Learned));
    assert_eq!((taken, taken), (figures(new), figures(known)));
    assert_eq!(Some((slow, Origin::Measured)), figures(measured));
    // Parameters that are near do not replace the adopted ones; parameters equal to the assumption
    // do.
    adopt(new, 2_100_000, 50_000_000, TOLD);
    assert_eq!(taken, figures(new));
    for device in [new, known] {
        adopt(device, TOLD.latency_ns, TOLD.device, TOLD);
    }
    assert_eq!(None, figures(new));
    assert_eq!(Some(TOLD.latency_ns), figures(known).map(|(figures, _)| figures.latency_ns));
    assert!(learned().iter().all(|(path, _)| !path.as_os_str().is_empty()));
}

#[test]
fn what_a_request_costs_is_not_forgotten_for_long_requests_that_share_the_device() {
    let device = u64::MAX - 8;
    adopt(device, 5_000_000, 150_000_000, TOLD);
    let mut disks = disks().unwrap();
    let disk = disks.get_mut(&device).unwrap();
    // Nor for bytes that were saved in the meantime.
    disk.saw(Observation { requests: 16, bytes: 16 << 20, ns: 9_000_000, idle: 200_000 }, TOLD);
    assert_eq!(disk.now().map(|(_, origin)| origin), Some(Origin::Learned));
    // A quarter of 100 MB per second: three other ranks read, too.
    for _ in 0..KEPT {
        disk.saw(Observation { requests: 8, bytes: 8 << 20, ns: 335_000_000, idle: 200_000 }, TOLD);
    }
    let (found, _) = disk.now().unwrap();
    within(found.latency_ns, 3_000_000, 6_000_000);
    assert!(found.gap > 64 << 10, "a gap of {}", found.gap);
}

#[test]
fn a_long_period_among_short_ones_is_a_stall() {
    let mut disk = Disk::default();
    for _ in 0..10 {
        disk.saw(after_pause(64, 400_000_000), TOLD);
        assert_eq!(disk.now(), None);
        disk.saw(after_pause(64, 700_000), TOLD);
        assert_eq!(disk.now(), None);
    }
}

#[test]
fn a_request_of_a_moderate_size_takes_long_for_what_it_is_not_for_its_bytes() {
    let mut disk = Disk::default();
    for _ in 0..CONFIRMED {
        disk.saw(slow(40, 40 * 32_768), TOLD);
    }
    let (found, _) = disk.now().unwrap();
    within(found.latency_ns, 5_000_000 * 10 / 13, 5_000_000 * 13 / 10);
    within(found.device, 50_000_000, 500_000_000);
}

#[test]
fn slow_figures_of_an_earlier_process_end_when_the_disk_is_fast() {
    let known = Figures { latency_ns: 100_000, ..TOLD };
    let mut disk = Disk { told: Some((known, Origin::Learned)), ..Disk::default() };
    for _ in 0..KEPT {
        assert_eq!(disk.now().map(|(figures, _)| figures), Some(known));
        disk.saw(after_pause(64, 700_000), TOLD);
    }
    assert_eq!(disk.now().map(|(figures, _)| figures), Some(TOLD));
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
    // The rate hardly follows from them: it stays within a factor.
    within(found.device, 100_000_000, 400_000_000);
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
        [(400_000, 200_000_000), (1_000_000, 300_000_000), (8_000_000, 150_000_000)]
    {
        let of = |requests: i64, bytes: i64| Observation {
            requests,
            bytes,
            ns: requests * latency + (bytes as f64 * 1e9 / rate as f64) as i64,
            idle: 0,
        };
        let found = fitted(&[of(64, 64 * 4096), of(16, 64 << 20)], TOLD);
        within(found.latency_ns, latency * 9 / 10, latency * 11 / 10);
        within(found.device, rate / 13 * 10, rate / 10 * 11);
    }
}

#[test]
fn a_disk_like_the_one_told_stays_as_it_was_told() {
    let mut disk = Disk::default();
    for factor in [5, 10, 20] {
        let ns = 64 * 9_500 * factor / 10;
        disk.saw(Observation { requests: 64, bytes: 64 * 512, ns, idle: 0 }, TOLD);
        assert_eq!(disk.now(), None);
    }
}

#[test]
fn how_long_it_takes_to_begin_tells_nothing() {
    let mut disk = Disk::default();
    disk.saw(after_pause(40, 3_300_000), TOLD);
    assert_eq!(disk.now(), None);
}

#[test]
fn a_disk_that_is_fast_again_is_not_slow() {
    let mut disk = Disk::default();
    disk.saw(slow(64, 64 * 4096), TOLD);
    assert_eq!(disk.now(), None);
    disk.saw(slow(64, 64 * 4096), TOLD);
    assert!(disk.now().is_some_and(|(figures, origin)| {
        origin == Origin::Learned && figures.latency_ns > 1_000_000
    }));
    disk.saw(after_pause(64, 700_000), TOLD);
    assert_eq!(disk.now(), None);
}

#[test]
fn a_disk_that_got_worse_is_learned_again() {
    let mut disk = Disk::default();
    for _ in 0..KEPT {
        disk.saw(after_pause(64, 700_000), TOLD);
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
        Observation { requests: 7, bytes: 4096, ns: 80_000_000, idle: 0 },
        after_pause(23, 80_000_000),
        Observation { requests: 64, bytes: 1 << 20, ns: 50_000, idle: 0 },
        Observation { requests: 0, bytes: 8 << 20, ns: 80_000_000, idle: 0 },
    ] {
        disk.saw(one, TOLD);
    }
    assert!(disk.seen.iter().all(VecDeque::is_empty));
}

/// Uses devices that no other test has, because all tests share the table of this process.
#[test]
fn a_period_lasts_until_the_last_read_of_it_ends() {
    let (device, path) = (u64::MAX, Path::new("/data/a.npy"));
    assert!(!is_known(device));
    for _ in 0..CONFIRMED {
        assert_eq!(figures(device), None);
        let first = Watch::begin(device, path, TOLD).unwrap();
        let second = Watch::begin(device, path, TOLD).unwrap();
        first.end(64, 64 * 4096);
        std::thread::sleep(Duration::from_millis(160));
        second.end(64, 64 * 4096);
    }
    let (found, origin) = figures(device).unwrap();
    assert_eq!(origin, Origin::Learned);
    // The first period followed a pause of unknown length; the second did not.
    within(found.latency_ns, 1_000_000, 1_900_000);
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
