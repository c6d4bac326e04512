//! Runs the inputs of one target, one after another, and checks time and memory.
//!
//! | Variable | Meaning |
//! |---|---|
//! | `OUTCORE_FUZZ_INPUTS` | number of inputs; each target has a default that takes a second or two |
//! | `OUTCORE_FUZZ_SEED` | the seed |
//! | `OUTCORE_FUZZ_FIRST` | number of the first input: with `INPUTS=1`, this one only |
//! | `OUTCORE_FUZZ_TIMEOUT` | seconds for one input, 20 |
//! | `OUTCORE_FUZZ_FOLDER` | folder for the number of the running input, and for failing inputs |
//! | `OUTCORE_FUZZ_SAVE` | write every input before it is tried (a crash leaves no other trace) |

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::chance::Chance;

/// Outcome of an input.
pub enum Outcome {
    Accepted,
    Refused,
}

/// KiB of address space and of memory that a whole target may use in addition to its start: memory
/// must not grow by sizes claimed in inputs. (The C library reserves 64 MiB of address space for
/// each thread.)
const GROWTH_KIB: [i64; 2] = [256 << 10, 32 << 10];
/// Inputs between two checks of the memory of the process.
const LOOK_EVERY: u64 = 64;

fn setting(name: &str) -> Option<u64> {
    std::env::var(format!("OUTCORE_FUZZ_{name}")).ok().and_then(|text| text.parse().ok())
}

fn folder() -> Option<PathBuf> {
    std::env::var_os("OUTCORE_FUZZ_FOLDER").map(PathBuf::from)
}

/// Makes and tries inputs. `make` must be a pure function of its numbers.
///
/// Prints one line for the driver; returns the numbers of accepted and rejected inputs.
pub fn run<T: Debug>(
    target: &str,
    inputs: u64,
    make: impl Fn(&mut Chance) -> T + Sync,
    mut attempt: impl FnMut(T) -> Outcome,
) -> (u64, u64) {
    // Targets measure the memory of the process, so they run one at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let inputs = setting("INPUTS").unwrap_or(inputs);
    let (first, seed) = (setting("FIRST").unwrap_or(0), setting("SEED").unwrap_or(20_260_101));
    let now = AtomicU64::new(first);
    let over = AtomicBool::new(false);
    let save = |number: u64, why: &str| {
        let input = make(&mut Chance::new(seed, number));
        let name = folder().map(|folder| folder.join(format!("{target}-{seed}-{number}.txt")));
        println!("FUZZ-FAILED {target} seed={seed} input={number} {why}");
        if let Some(name) = name {
            std::fs::write(
                name,
                format!("{target}, seed {seed}, input {number}: {why}\n{input:?}\n"),
            )
            .unwrap();
        }
    };
    let progress =
        folder().map(|folder| File::create(folder.join(format!("{target}.at"))).unwrap());
    let (mut accepted, mut refused) = (0, 0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(&now, &over, &save));
        let done = catch_unwind(AssertUnwindSafe(|| {
            let status = File::open("/proc/self/status").unwrap();
            let before = peaks(&status);
            for number in first..first + inputs {
                now.store(number, Ordering::Relaxed);
                if let Some(progress) = &progress {
                    progress.write_all_at(format!("{number:20}").as_bytes(), 0).unwrap();
                }
                if setting("SAVE").is_some() {
                    save(number, "saved");
                }
                match attempt(make(&mut Chance::new(seed, number))) {
                    Outcome::Accepted => accepted += 1,
                    Outcome::Refused => refused += 1,
                }
                if number % LOOK_EVERY == 0 || number + 1 == first + inputs {
                    let after = peaks(&status);
                    let grown = [after[0] - before[0], after[1] - before[1]];
                    assert!(
                        grown[0] < GROWTH_KIB[0] && grown[1] < GROWTH_KIB[1],
                        "asked for {} KiB, used {} KiB: this input or one of the {LOOK_EVERY} before",
                        grown[0],
                        grown[1],
                    );
                }
            }
        }));
        over.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        if let Err(panic) = done {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            save(now.load(Ordering::Relaxed), &text.unwrap_or_else(|| "a panic".to_owned()));
            resume_unwind(panic);
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "FUZZ {target} inputs={inputs} seconds={seconds:.3} accepted={accepted} refused={refused} seed={seed}"
    );
    (accepted, refused)
}

/// Ends the process when one input takes too long.
fn watch(now: &AtomicU64, over: &AtomicBool, save: &dyn Fn(u64, &str)) {
    let timeout = Duration::from_secs(setting("TIMEOUT").unwrap_or(20));
    let (mut number, mut since) = (now.load(Ordering::Relaxed), Instant::now());
    while !over.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(50));
        let at = now.load(Ordering::Relaxed);
        if at != number {
            (number, since) = (at, Instant::now());
        } else if since.elapsed() > timeout && !over.load(Ordering::Relaxed) {
            save(number, "hangs");
            std::process::abort();
        }
    }
}

/// Returns the largest address space and memory of this process so far, KiB. (`getrusage` would
/// include the program that started the test.)
fn peaks(status: &File) -> [i64; 2] {
    let mut text = [0; 2048];
    let n = status.read_at(&mut text, 0).unwrap();
    let text = std::str::from_utf8(&text[..n]).unwrap();
    ["VmPeak:", "VmHWM:"].map(|name| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    })
}

#[test]
fn an_input_is_known_by_seed_and_number() {
    let numbers = |seed, input| {
        let mut chance = Chance::new(seed, input);
        [chance.next(), chance.next()]
    };
    assert_eq!(numbers(1, 2), numbers(1, 2));
    assert!(numbers(1, 2) != numbers(1, 3) && numbers(1, 2) != numbers(2, 2));
}

#[test]
fn a_failing_input_is_told() {
    let panic = catch_unwind(|| {
        run(
            "self-test",
            1000,
            |chance| chance.below(50),
            |n| {
                assert!(n < 49, "too large");
                Outcome::Accepted
            },
        )
    });
    // With other settings in the environment, the single requested input may be a good one.
    assert!(panic.is_err() || setting("INPUTS").is_some());
}
