//! Wrong layouts, and sizes up to the end of 63 bits: the plan obeys the rules, or the request is
//! rejected.

use outcore_plan::*;

use crate::chance::Chance;
use crate::lane::{run, Outcome};

/// A request that owns its data.
#[derive(Debug)]
struct Asked {
    layout: Layout,
    table: Option<ChunkTable>,
    section: Section,
    user: Vec<i64>,
    direction: Direction,
    terms: Terms,
}

fn terms(chance: &mut Chance) -> Terms {
    let n: [i64; 8] = chance.extremes();
    let sane = chance.one_in(2);
    let methods = [Method::Straight, Method::Window, Method::Mapped, Method::List, Method::Chunks];
    Terms {
        budget: n[0],
        lanes: n[1],
        cached_permille: n[2],
        block: if sane { 4096 } else { n[3] },
        gap: n[4],
        request: if sane { 1 << 20 } else { n[5] },
        window: n[6],
        share: if sane { 1 << 20 } else { n[7] },
        mapping: chance.one_in(2),
        direct: chance.one_in(2),
        exclusive: chance.one_in(2),
        method: if chance.one_in(4) { Some(chance.of(&methods)) } else { None },
        ..Terms::new(1 << 24)
    }
}

fn direction(chance: &mut Chance) -> Direction {
    if chance.one_in(2) {
        Direction::Read
    } else {
        Direction::Write
    }
}

/// Makes a plan, counts, prints, and checks the first and last rounds.
fn go_through(request: &Request, terms: &Terms) -> Result<(), PlanError> {
    let end = |(offset, len): (i64, i64)| offset.saturating_add(len).max(0);
    let files = match (request.layout, request.table) {
        (Layout::Strided(layout), _) => {
            let ends = |file| {
                let parts = layout.parts.iter().filter(move |part| part.file == file);
                parts.map(|part| end((part.offset, part.len))).max().unwrap_or(0)
            };
            vec![ends(0), ends(1), ends(2)]
        }
        (Layout::Chunked(_), table) => {
            let stored = table.into_iter().flat_map(|table| table.stored.iter().flatten());
            vec![stored.map(|one| end((one.offset, one.len))).max().unwrap_or(0)]
        }
    };
    let plan = Plan::new(request, terms)?;
    let (cost, text) = (plan.cost(), plan.why());
    assert!(cost.useful_bytes >= 0 && cost.read_bytes >= 0 && cost.written_bytes >= 0);
    assert!(!text.is_empty());
    let bounds = Bounds {
        slot_bytes: plan.slot_bytes(),
        files,
        user: (-i64::MAX, i64::MAX),
        fill: i64::MAX,
        block: plan.block(),
        home: terms.home.map(|home| home.at & (plan.block() - 1)),
    };
    for k in [0, 1, plan.rounds() / 2, plan.rounds().saturating_sub(1)] {
        if k < plan.rounds() {
            check(plan.round(k)?, &bounds)?;
        }
    }
    Ok(())
}

/// Accepts errors, except from plans that break their own rules.
fn judge(asked: Option<Asked>) -> Outcome {
    let Some(asked) = asked else { return Outcome::Refused };
    let request = Request {
        layout: &asked.layout,
        table: asked.table.as_ref(),
        section: &asked.section,
        user_stride: &asked.user,
        direction: asked.direction,
    };
    match go_through(&request, &asked.terms) {
        Ok(()) => Outcome::Accepted,
        Err(PlanError::Broken { rule, detail }) => panic!("rule {rule}: {detail}"),
        Err(_) => Outcome::Refused,
    }
}

/// Returns ranges as large as the axes allow.
fn fitting(shape: &[i64], wanted: &[i64]) -> Section {
    let range = |(n, w): (&i64, &[i64])| {
        let start = w[0].unsigned_abs() as i64 & i64::MAX;
        let start = if *n > 0 { start % n } else { 0 };
        let step = 1 + (w[1].unsigned_abs() as i64 & i64::MAX) % 7;
        let count = if *n > 0 { (n - start - 1) / step + 1 } else { 0 };
        Range::new(start, count, step).unwrap()
    };
    Section::new(shape.iter().zip(wanted.chunks(2)).map(range).collect())
}

/// Returns a small number, rarely an extreme one.
fn modest(chance: &mut Chance) -> i64 {
    if chance.one_in(16) {
        chance.extreme()
    } else {
        1 + chance.below(40) as i64
    }
}

/// Two-dimensional arrays in two files, with any number possibly wrong.
fn strided(chance: &mut Chance) -> Option<Asked> {
    let shape = vec![modest(chance), modest(chance)];
    let item = modest(chance);
    let order = chance.of(&[Order::C, Order::F]);
    let strides = order.strides(&shape, item).unwrap_or(vec![item, 1]);
    let total = shape.iter().fold(item, |n, m| n.saturating_mul(*m));
    let first = chance.next() as i64 & i64::MAX & (total.max(1) - 1);
    let mut layout = Strided {
        shape,
        item,
        strides,
        parts: vec![
            Part { file: 0, offset: modest(chance), len: first },
            Part { file: 1, offset: modest(chance), len: total.saturating_sub(first) },
        ],
    };
    let section = if chance.one_in(8) {
        let n: [i64; 6] = chance.extremes();
        let ranges = n.chunks(3).map(|c| Range::new(c[0], c[1], c[2]).ok());
        Section::new(ranges.collect::<Option<_>>()?)
    } else {
        fitting(&layout.shape, &chance.extremes::<4>())
    };
    let mut user = order.strides(&section.shape(), layout.item).unwrap_or(vec![0, 0]);
    for _ in 0..chance.below(3) {
        let lie = chance.extreme();
        match chance.below(7) {
            0 | 1 => layout.strides[chance.place(2)] = lie,
            2 => layout.parts[chance.place(2)].offset = lie,
            3 => layout.parts[chance.place(2)].len = lie,
            4 => layout.item = lie,
            5 => layout.parts[chance.place(2)].file = chance.below(3) as u32,
            _ => user[chance.place(2)] = lie,
        }
    }
    let (direction, terms) = (direction(chance), terms(chance));
    Some(Asked { layout: Layout::Strided(layout), table: None, section, user, direction, terms })
}

/// Valid arrays, up to the largest size that 63 bits can address.
fn dense(chance: &mut Chance) -> Option<Asked> {
    let rank = chance.below(5);
    let shape: Vec<i64> =
        (0..rank).map(|_| ((1_i64 << chance.below(40)) - chance.below(3) as i64).max(0)).collect();
    let (item, wanted) = (1 + chance.below(19) as i64, chance.extremes::<10>());
    let (order, direction) = (chance.of(&[Order::C, Order::F]), direction(chance));
    let terms = terms(chance);
    let section = fitting(&shape, &wanted);
    let layout = Layout::Strided(Strided::dense(&shape, item, Order::C, 0, 128).ok()?);
    let user = order.strides(&section.shape(), item).ok()?;
    Some(Asked { layout, table: None, section, user, direction, terms })
}

/// Chunks with a table in which any number may be wrong.
fn chunked(chance: &mut Chance) -> Option<Asked> {
    let shape = vec![modest(chance), modest(chance)];
    let (item, chunk) = (modest(chance), vec![modest(chance), modest(chance)]);
    let mut strides = chance.of(&[Order::C, Order::F]).strides(&chunk, item).unwrap_or(vec![1, 1]);
    if chance.one_in(8) {
        strides[chance.place(2)] = chance.extreme();
    }
    let bytes = chunk.iter().fold(item, |n, m| n.saturating_mul(*m));
    let encoded = chance.one_in(2);
    let bound = if chance.one_in(8) { chance.extreme() } else { bytes.saturating_add(64) };
    let layout = Chunked { shape, item, chunk, strides, encoded, encoded_bound: bound };
    let (direction, terms) = (direction(chance), terms(chance));
    layout.validate().ok()?;
    let section = fitting(&layout.shape, &chance.extremes::<4>());
    let cells = layout.touched(&section).unwrap().cells().unwrap_or(i64::MAX);
    let batch = layout.batches(&section, 5).unwrap().next();
    assert_eq!(batch.is_none(), section.is_empty());
    let batch = batch?;
    let section = if cells <= 5 { section } else { batch.section };
    let touched = layout.touched(&section).unwrap();
    let mut at = chance.below(1000) as i64;
    let mut stored = Vec::new();
    for _ in 0..touched.cells().unwrap() {
        let mut one = Stored { file: 0, offset: at, len: bytes, mask: 0 };
        at = at.saturating_add(bytes);
        match chance.below(24) {
            0 => one.offset = chance.extreme(),
            1 => one.len = chance.extreme(),
            _ => {}
        }
        stored.push((!chance.one_in(4)).then_some(one));
    }
    let mut user = Order::C.strides(&section.shape(), item).unwrap_or(vec![0, 0]);
    if chance.one_in(8) {
        user[chance.place(2)] = chance.extreme();
    }
    let table = Some(ChunkTable { lo: touched.lo, count: touched.count, stored });
    Some(Asked { layout: Layout::Chunked(layout), table, section, user, direction, terms })
}

/// Checks that there are enough of both, because otherwise the inputs are useless; a few inputs
/// prove nothing.
fn balanced((accepted, refused): (u64, u64)) {
    let all = accepted + refused;
    assert!(all < 100 || accepted.min(refused) > all / 20, "{accepted} accepted of {all}");
}

#[test]
fn plans_of_strided_arrays() {
    balanced(run("plans_of_strided_arrays", 50_000, strided, judge));
}

#[test]
fn plans_of_large_arrays() {
    balanced(run("plans_of_large_arrays", 50_000, dense, judge));
}

#[test]
fn plans_of_chunks() {
    balanced(run("plans_of_chunks", 50_000, chunked, judge));
}
