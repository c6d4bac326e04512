//! Prints the measured parameters of the disk below a folder, with each engine: `cargo run
//! --release -p outcore-io --example measure -- FOLDER`.

use outcore_io::backend::Choice;
use outcore_io::measure::{disk, Effort};
use outcore_io::{Arena, StorageError};

fn main() -> Result<(), StorageError> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    for engine in [Choice::Uring, Choice::Threads] {
        let effort = Effort { engine, ..Effort::default() };
        let started = std::time::Instant::now();
        let figures = disk(folder.as_ref(), &Arena::global(), effort)?;
        println!("engine {} (direct: {})", figures.engine, figures.direct);
        if let Some(why) = &figures.fallback {
            println!("  {why}");
        }
        println!("  {:>5} {:>8} {:>5} {:>12} {:>10}", "", "bytes", "depth", "ns/request", "MB/s");
        for s in &figures.samples {
            let op = if s.write { "write" } else { "read" };
            let (ns, rate) = (s.ns_per_request(), s.rate() / 1_000_000);
            println!("  {op:>5} {:>8} {:>5} {ns:>12} {rate:>10}", s.request, s.depth);
        }
        let mb = |rate: u64| rate / 1_000_000;
        println!("  fresh write {} MB/s", mb(figures.fresh_write));
        println!("  buffered read, 1 and 2 threads {:?} MB/s", figures.buffered_read.map(mb));
        let (plain, synced) = (mb(figures.buffered_write), mb(figures.buffered_write_sync));
        println!("  buffered write {plain} MB/s, with fsync {synced} MB/s");
        println!("  {:?}", figures.warm);
        println!(
            "  a request at depth: {} ns + bytes / {} MB/s; gap {} bytes; {:.1} s",
            figures.latency_ns,
            mb(figures.device),
            figures.gap,
            started.elapsed().as_secs_f64()
        );
    }
    Ok(())
}
