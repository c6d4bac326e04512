use std::cell::{Cell, RefCell};

use super::*;
use crate::testing::{budget, chunked, dense, open, section, Button, Never, TestDir};

/// Bytes of an element of the value: two for one byte of the array, which gets the lower one.
const ITEM: i64 = 2;

fn value(elements: i64) -> Vec<u8> {
    (0..elements).flat_map(|k| [(k % 251) as u8, 7]).collect()
}

/// A cast of `value`, element by element.
fn assign(value: &[u8], strides: &[i64], piece: &Piece<'_>, into: &mut [u8]) {
    let all = Section::whole(piece.count).unwrap();
    for index in all.indices() {
        let walk = |strides: &[i64]| index.iter().zip(strides).map(|(i, s)| i * s).sum::<i64>();
        let from = (piece.shift + walk(strides)) as usize;
        into[walk(piece.strides) as usize] = value[from];
    }
}

fn written(open: &Open, rows: i64, columns: i64, hints: &Hints) -> Result<Vec<i64>, Fault> {
    let (section, value) = (Section::whole(&[rows, columns])?, value(rows * columns));
    let strides = [columns * ITEM, ITEM];
    let pieces = RefCell::new(Vec::new());
    let assign = |piece: &Piece<'_>, into: &mut [u8]| {
        pieces.borrow_mut().push(piece.count.iter().product());
        assign(&value, &strides, piece, into);
        Ok(())
    };
    let cast = Cast { open, hints, strides: &strides, assign: &assign };
    cast.write(&section, rows * columns, &Never)?;
    Ok(pieces.into_inner())
}

#[test]
fn a_value_is_cast_within_a_quarter_of_the_budget() {
    let dir = TestDir::new("cast-dense");
    let path = dir.file("a", &vec![0; 1000 * 300]);
    let array = open(dense(&path, &[1000, 300], 1));
    let _one = budget(40 << 10);
    Arena::global().reset_peak();
    let pieces = written(&array, 1000, 300, &Hints::default()).unwrap();
    assert!(pieces.iter().all(|elements| *elements <= 10 << 10), "{pieces:?}");
    assert!(Arena::global().peak() <= 40 << 10);
    let expected: Vec<u8> = (0..300_000).map(|k| (k % 251) as u8).collect();
    assert!(expected == std::fs::read(&path).unwrap());
    assert_eq!(0, Arena::global().used());
}

#[test]
fn parts_are_whole_chunks_where_these_fit() {
    let dir = TestDir::new("cast-chunks");
    let described = chunked(dir.path(), &[100, 100], &[10, 10], 0);
    let described = match described.layout {
        Layout::Chunked(layout) => {
            let layout = Layout::Chunked(Chunked { encoded: true, encoded_bound: 200, ..layout });
            crate::described::Described { layout, ..described }
        }
        Layout::Strided(_) => unreachable!(),
    };
    let array = Open::new(std::sync::Arc::new(described), true);
    let (array, hints) = (array.unwrap(), Hints::default());
    let (strides, assign) = ([100, 1], |_: &Piece<'_>, _: &mut [u8]| Ok(()));
    let cast = Cast { open: &array, hints: &hints, strides: &strides, assign: &assign };
    let section = section(&[(0, 100, 1), (0, 50, 2)]);
    assert_eq!(vec![50], cast.cells(&section).map(|(_, cell)| cell).collect::<Vec<_>>());
    assert_eq!(50, cast.elements(&section, 160), "a chunk is not cut for a quarter of it");
    let mut parts = Vec::new();
    cast.each_part(&section, 120, &mut |part| {
        parts.push((part.at.clone(), part.section.shape()));
        Ok(())
    })
    .unwrap();
    assert!(parts.iter().all(|(_, count)| *count == [10, 10]), "{parts:?}");
    assert_eq!(50, parts.len());
    let mut cut = 0;
    cast.each_part(&section, 20, &mut |part| {
        cut += part.section.count()?;
        assert!(part.section.count()? <= 20);
        Ok(())
    })
    .unwrap();
    assert_eq!(5000, cut);
}

#[test]
fn a_part_whose_turn_begins_again_goes_on_behind_what_is_written() {
    let dir = TestDir::new("cast-again");
    let path = dir.file("a", &vec![0; 1 << 20]);
    let array = open(dense(&path, &[1 << 20], 1));
    let _one = budget(8 << 20);
    let (hints, calls) = (Hints::default(), Cell::new(0));
    let assign = |_: &Piece<'_>, into: &mut [u8]| -> Result<(), Fault> {
        calls.set(calls.get() + 1);
        into.fill(calls.get());
        match calls.get() {
            3 => Err(crate::Reason::Busy.into()),
            _ => Ok(()),
        }
    };
    let cast = Cast { open: &array, hints: &hints, strides: &[1], assign: &assign };
    let section = Section::whole(&[1 << 20]).unwrap();
    let slab = Slab { section: section.clone(), at: vec![0] };
    let mut done = Written { limit: 1 << 18, pieces: 0 };
    let mut again = || cast.pieces(&slab, &mut done, Mode::Nested, &Never);
    assert!(again().unwrap_err().is_about_memory());
    again().unwrap();
    let file = std::fs::read(&path).unwrap();
    let seen: Vec<u8> = file.chunks(1 << 18).map(|piece| piece[0]).collect();
    assert_eq!(vec![1, 2, 4, 5], seen, "two pieces were written before, two after");
}

#[test]
fn a_cast_is_smaller_where_others_hold_the_memory_for_long() {
    let dir = TestDir::new("cast-held");
    let path = dir.file("a", &vec![0; 1 << 20]);
    let array = open(dense(&path, &[1 << 20, 1], 1));
    let _one = budget(8 << 20);
    let most = written(&array, 1 << 20, 1, &Hints::default()).unwrap();
    assert_eq!(vec![1 << 20], most);
    let _held = Arena::global().reserve("a test", 7 << 20).unwrap();
    let fewer = written(&array, 1 << 20, 1, &Hints::default()).unwrap();
    assert!(fewer.len() > 1 && fewer.iter().sum::<i64>() == 1 << 20, "{fewer:?}");
}

#[test]
fn an_interrupt_ends_a_cast_between_parts() {
    let dir = TestDir::new("cast-interrupt");
    let path = dir.file("a", &vec![0; 1 << 20]);
    let array = open(dense(&path, &[1 << 20], 1));
    let _one = budget(64 << 10);
    let (hints, button, calls) = (Hints::default(), Button::default(), Cell::new(0));
    let assign = |_: &Piece<'_>, _: &mut [u8]| {
        calls.set(calls.get() + 1);
        button.press();
        Ok(())
    };
    let cast = Cast { open: &array, hints: &hints, strides: &[1], assign: &assign };
    let section = Section::whole(&[1 << 20]).unwrap();
    let stopped = cast.write(&section, 1 << 20, &button).unwrap_err();
    assert!(stopped.is_cancelled());
    assert_eq!(1, calls.get());
}
