//! The text form of selected plans. A change of the planner shows here as a diff to be reviewed.
//!
//! To accept the current plans: `OUTCORE_GOLDEN=write cargo test -p outcore-plan --test golden`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::path::Path;

use outcore_plan::*;

const READ: Direction = Direction::Read;
const WRITE: Direction = Direction::Write;

struct Golden {
    name: &'static str,
    layout: Layout,
    table: Option<ChunkTable>,
    /// `start, count, step` per axis.
    section: Vec<(i64, i64, i64)>,
    /// Strides of the caller's array; dense in C order if empty.
    user: Vec<i64>,
    direction: Direction,
    terms: Terms,
}

fn dense(shape: &[i64], item: i64, order: Order) -> Layout {
    Layout::Strided(Strided::dense(shape, item, order, 0, 128).unwrap())
}

/// Cached, mapping and direct I/O allowed.
fn warm() -> Terms {
    let mut t = Terms::new(256 << 20);
    (t.cached_permille, t.mapping, t.direct) = (1000, true, true);
    t
}

/// A tenth of the pages is in the mapping.
fn not_entered() -> Terms {
    Terms { faults: Some(Faults { absent: 900, large: 0, chunks: 0, rent: 0 }), ..warm() }
}

fn cold() -> Terms {
    Terms { cached_permille: 0, ..warm() }
}

fn forced(method: Method, terms: Terms) -> Terms {
    Terms { method: Some(method), ..terms }
}

fn case(
    name: &'static str,
    layout: &Layout,
    section: &[(i64, i64, i64)],
    direction: Direction,
    terms: Terms,
) -> Golden {
    let (layout, section) = (layout.clone(), section.to_vec());
    Golden { name, layout, table: None, section, user: vec![], direction, terms }
}

fn strided_cases() -> Vec<Golden> {
    let big = dense(&[16384, 16384], 4, Order::C);
    let columns = dense(&[16384, 16384], 4, Order::F);
    let line = dense(&[1 << 24], 8, Order::C);
    let volume = dense(&[512, 512, 512], 8, Order::C);
    let all = [(0, 16384, 1), (0, 16384, 1)];
    let sparse = [(0, 2341, 7), (0, 3277, 5)];
    let rows: Vec<Part> = (0..4).map(|file| Part { file, offset: 64, len: 256 << 20 }).collect();
    let split = Layout::Strided(Strided::new(vec![16384, 16384], 4, vec![65536, 4], rows).unwrap());
    let rows_of = [(4096, 4096, 1), (0, 16384, 1)];
    let flushed = Terms { threads: 2, flushed: true, ..warm() };
    let shared = Terms { exclusive: false, ..warm() };
    let alone = Terms { exclusive: true, ..warm() };
    let home = Some(Home { at: 8192 + 128, page: 4096 });
    let few = Rates { latency_ns: 5_000_000, device: 100_000_000, ..cold().rates };
    let slow = Terms { home, rates: few, ..cold() };
    let unmapped = Terms { mapping: false, ..warm() };
    vec![
        case("warm_read_tiny", &line, &[(77, 1000, 1)], READ, warm()),
        case("warm_read_tiny_strided", &line, &[(77, 1000, 9)], READ, warm()),
        case("warm_read_whole", &big, &all, READ, warm()),
        case("warm_read_sparse", &big, &sparse, READ, warm()),
        case("warm_read_sparse_unmapped", &big, &sparse, READ, unmapped.clone()),
        case("warm_read_column", &big, &[(0, 16384, 1), (9, 1, 1)], READ, warm()),
        case(
            "warm_read_column_not_entered",
            &big,
            &[(0, 16384, 1), (9, 1, 1)],
            READ,
            not_entered(),
        ),
        case("warm_read_fortran_to_c", &columns, &all, READ, warm()),
        case("warm_write_block", &big, &[(100, 500, 1), (200, 900, 1)], WRITE, shared.clone()),
        case("warm_write_sparse_shared", &big, &sparse, WRITE, unmapped.clone()),
        case(
            "warm_write_sparse_alone",
            &big,
            &sparse,
            WRITE,
            forced(Method::Window, Terms { mapping: false, ..alone }),
        ),
        case("warm_write_halves", &big, &rows_of, WRITE, Terms { threads: 2, ..shared.clone() }),
        case("warm_write_flushed", &big, &rows_of, WRITE, flushed.clone()),
        case("warm_write_column", &big, &[(0, 16384, 1), (9, 1, 1)], WRITE, shared.clone()),
        case("warm_write_column_flushed", &big, &[(0, 16384, 1), (9, 1, 1)], WRITE, flushed),
        case("cold_read_tiny", &line, &[(77, 1000, 1)], READ, cold()),
        case("cold_read_whole", &big, &all, READ, cold()),
        case("cold_read_home", &big, &rows_of, READ, Terms { home, ..cold() }),
        case("cold_read_home_slow", &big, &rows_of, READ, slow),
        case("cold_read_sparse", &big, &sparse, READ, cold()),
        case("cold_read_column", &big, &[(0, 16384, 1), (9, 1, 1)], READ, cold()),
        case("cold_read_ten_columns", &big, &[(0, 16384, 1), (90, 10, 1)], READ, cold()),
        case("cold_read_pencils", &volume, &[(0, 64, 8), (0, 64, 8), (0, 512, 1)], READ, cold()),
        case("cold_read_fortran_to_c", &columns, &all, READ, cold()),
        case("cold_read_small_budget", &big, &sparse, READ, Terms { budget: 1 << 20, ..cold() }),
        case("cold_read_split", &split, &[(1000, 15000, 1), (0, 8192, 2)], READ, cold()),
        case("cold_read_buffered", &big, &all, READ, Terms { direct: false, ..cold() }),
        case("cold_write_whole", &big, &all, WRITE, cold()),
        case("cold_write_sparse", &big, &sparse, WRITE, cold()),
        case("empty", &big, &[(0, 16384, 1), (0, 0, 1)], READ, cold()),
        case("scalar", &dense(&[], 8, Order::C), &[], WRITE, warm()),
        case(
            "huge",
            &dense(&[1 << 30, 1 << 29], 8, Order::C),
            &[(5, 1 << 28, 3), (7, 1 << 20, 2)],
            READ,
            cold(),
        ),
    ]
}

fn chunk_cases() -> Vec<Golden> {
    let grid = |encoded| {
        let strides = Order::C.strides(&[100, 100], 8).unwrap();
        Chunked::new(vec![250, 250], 8, vec![100, 100], strides, encoded, 80_100).unwrap()
    };
    let table = |len: i64| {
        let stored = |k: i64| {
            let offset = 4000 + k * 100_000;
            (k != 4).then_some(Stored { file: 0, offset, len: len - k, mask: 0 })
        };
        let raw = |k: i64| stored(k).map(|s| Stored { len: 80_000, ..s });
        let entry = |k| if len == 80_000 { raw(k) } else { stored(k) };
        ChunkTable::new(vec![0, 0], vec![3, 3], (0..9).map(entry).collect()).unwrap()
    };
    let section = [(50, 80, 2), (0, 250, 1)];
    let zstd = Coding {
        decode_scratch: 0,
        encode_scratch: 80_100,
        decoder: 95_968,
        encoder: 1_300_000,
        both: 1_395_968,
        held: 0,
        spare: 0,
    };
    // A budget for one and a half lanes.
    let small = Terms { budget: 2_500_000, coding: zstd, ..warm() };
    let coded = Terms { coding: zstd, ..warm() };
    let make = |name, encoded, direction, terms: Terms| Golden {
        table: Some(table(if encoded { 30_000 } else { 80_000 })),
        ..case(name, &Layout::Chunked(grid(encoded)), &section, direction, terms)
    };
    vec![
        make("encoded_read", true, READ, coded.clone()),
        make("encoded_write", true, WRITE, coded),
        make("encoded_write_small_budget", true, WRITE, small),
        make("chunks_warm_read", false, READ, warm()),
        make("chunks_cold_read", false, READ, cold()),
        make("chunks_write", false, WRITE, warm()),
    ]
}

fn text(g: &Golden) -> String {
    let ranges: Vec<Range> =
        g.section.iter().map(|(a, n, s)| Range::new(*a, *n, *s).unwrap()).collect();
    let section = Section::new(ranges);
    let item = match &g.layout {
        Layout::Strided(l) => l.item,
        Layout::Chunked(l) => l.item,
    };
    let user = match g.user.is_empty() {
        true => Order::C.strides(&section.shape(), item).unwrap(),
        false => g.user.clone(),
    };
    let request = Request {
        layout: &g.layout,
        table: g.table.as_ref(),
        section: &section,
        user_stride: &user,
        direction: g.direction,
    };
    let plan = Plan::new(&request, &g.terms).unwrap();
    format!("# {} of {section}\n{}", g.name, plan.text())
}

#[test]
fn plans_are_as_before() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let write = std::env::var("OUTCORE_GOLDEN").is_ok_and(|v| v == "write");
    let mut changed = Vec::new();
    let mut names = Vec::new();
    for g in strided_cases().into_iter().chain(chunk_cases()) {
        let path = folder.join(format!("{}.txt", g.name));
        let actual = text(&g);
        names.push(format!("{}.txt", g.name));
        if write {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &actual).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if expected != actual {
            changed.push(format!("{}\n--- expected\n{expected}--- actual\n{actual}", g.name));
        }
    }
    assert!(changed.is_empty(), "plans changed:\n{}", changed.join("\n"));
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(names.contains(&name), "{name} belongs to no case");
    }
}
