//! Sorting and merging.
//!
//! Blocks come as arrays of unsigned integers, C-contiguous; `width` of them make an element. `kind` says
//! what they are: one of NumPy's letters, or `"w"` for words that are ordered as they are, the first of an
//! element before the others.

use numpy::{Element, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn};
use numpy::{PyReadwriteArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use outcore_compute::merge;
use outcore_compute::merge::select::{narrow, Range};
use outcore_compute::order::{complex_key, decode, encode, key};
use outcore_compute::order::{Complex, Kind, Order, Plain, Word, Words};
use outcore_compute::sort::{each_part, sort};
use outcore_io::cpu::cores;
use pyo3::prelude::*;

use crate::errors::{detached, Class, Fault};

type Array<'a, 'py> = &'a Bound<'py, PyUntypedArray>;

fn bad(message: impl Into<String>) -> Fault {
    Fault::new(Class::Usage, "bad-dtype", message)
}

fn kind_of(kind: &str) -> Result<Kind, Fault> {
    match kind {
        "b" | "u" | "w" => Ok(Kind::Unsigned),
        "i" => Ok(Kind::Signed),
        "f" | "c" => Ok(Kind::Float),
        "m" | "M" => Ok(Kind::Date),
        _ => Err(bad(format!("elements of kind {kind:?} have no order here"))),
    }
}

/// Calls `$run` with the type of the words of an array.
macro_rules! typed {
    ($array:expr, $run:ident($($arg:expr),* $(,)?)) => {
        match $array.dtype().itemsize() {
            1 => $run::<u8>($($arg),*),
            2 => $run::<u16>($($arg),*),
            4 => $run::<u32>($($arg),*),
            8 => $run::<u64>($($arg),*),
            n => Err(bad(format!("words of {n} bytes"))),
        }
    };
}

/// Calls `$run` with the order of elements of so many words of type `W`.
macro_rules! ordered {
    ($width:expr, $kind:expr, $run:ident($($arg:expr),* $(,)?)) => {
        match ($width, $kind) {
            (1, _) => $run::<Plain<W>>($($arg),*),
            (2, "c") => $run::<Complex<W>>($($arg),*),
            (2, _) => $run::<Words<W, 2>>($($arg),*),
            (3, _) => $run::<Words<W, 3>>($($arg),*),
            (n, _) => Err(bad(format!("elements of {n} words"))),
        }
    };
}

fn changed<'py, W: Element>(array: Array<'_, 'py>) -> Result<PyReadwriteArrayDyn<'py, W>, Fault> {
    let array = array.cast::<PyArrayDyn<W>>().map_err(|_| bad("blocks are of several types"))?;
    array.try_readwrite().map_err(|_| bad("a block that is used twice, or cannot be written"))
}

fn read<'py, W: Element>(array: Array<'_, 'py>) -> Result<PyReadonlyArrayDyn<'py, W>, Fault> {
    let array = array.cast::<PyArrayDyn<W>>().map_err(|_| bad("blocks are of several types"))?;
    array.try_readonly().map_err(|_| bad("a block that is being written"))
}

fn contiguous<T>(found: Result<T, impl std::fmt::Debug>) -> Result<T, Fault> {
    found.map_err(|_| bad("a block that is not contiguous"))
}

/// Replaces elements by their words and sorts each part of `part` elements, in place.
#[pyfunction]
pub fn sort_parts(
    py: Python<'_>,
    words: Array<'_, '_>,
    width: usize,
    kind: &str,
    part: usize,
) -> Result<(), Fault> {
    fn of<W: Word + Element>(
        (py, words, width, kind, part): (Python<'_>, Array<'_, '_>, usize, &str, usize),
    ) -> Result<(), Fault> {
        let mut words = changed::<W>(words)?;
        let words = contiguous(words.as_slice_mut())?;
        ordered!(width, kind, sorted(py, words, part.saturating_mul(width), kind_of(kind)?))
    }
    typed!(words, of((py, words, width, kind, part)))
}

fn sorted<O: Order>(
    py: Python<'_>,
    words: &mut [O::Word],
    part: usize,
    kind: Kind,
) -> Result<(), Fault> {
    detached(py, || {
        each_part(words, part, cores(), |part| {
            encode(part, kind);
            sort::<O>(O::items(part));
        });
        Ok(())
    })
}

/// Turns words back into elements, in place.
#[pyfunction]
pub fn decode_words(py: Python<'_>, words: Array<'_, '_>, kind: &str) -> Result<(), Fault> {
    fn of<W: Word + Element>(
        (py, words, kind): (Python<'_>, Array<'_, '_>, &str),
    ) -> Result<(), Fault> {
        let mut words = changed::<W>(words)?;
        let (words, kind) = (contiguous(words.as_slice_mut())?, kind_of(kind)?);
        detached(py, || {
            each_part(words, PART, cores(), |part| decode(part, kind));
            Ok(())
        })
    }
    typed!(words, of((py, words, kind)))
}

/// Elements that a thread takes at once where there is little to do with each.
const PART: usize = 1 << 16;

/// How many elements of scratch `merge_runs` can make use of.
#[pyfunction]
pub fn merge_scratch(runs: usize, bytes: usize) -> usize {
    merge::scratch(runs, cores(), bytes)
}

/// Merges sorted runs of words that lie behind each other into `out`; elements come out if `decoded`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn merge_runs(
    py: Python<'_>,
    words: Array<'_, '_>,
    lens: Vec<usize>,
    out: Array<'_, '_>,
    scratch: Array<'_, '_>,
    width: usize,
    kind: &str,
    decoded: bool,
) -> Result<(), Fault> {
    type Blocks<'a, 'py> = (Array<'a, 'py>, Array<'a, 'py>, Array<'a, 'py>);
    fn of<W: Word + Element>(
        py: Python<'_>,
        (words, out, scratch): Blocks<'_, '_>,
        lens: &[usize],
        width: usize,
        (kind, decoded): (&str, bool),
    ) -> Result<(), Fault> {
        let mut words = changed::<W>(words)?;
        let (mut out, mut scratch) = (changed::<W>(out)?, changed::<W>(scratch)?);
        let blocks = (
            contiguous(words.as_slice_mut())?,
            contiguous(out.as_slice_mut())?,
            contiguous(scratch.as_slice_mut())?,
        );
        let back = if decoded { kind_of(kind)? } else { Kind::Unsigned };
        ordered!(width, kind, merged(py, blocks, lens, back))
    }
    typed!(words, of(py, (words, out, scratch), &lens, width, (kind, decoded)))
}

type Slices<'a, W> = (&'a mut [W], &'a mut [W], &'a mut [W]);

fn merged<O: Order>(
    py: Python<'_>,
    (words, out, scratch): Slices<'_, O::Word>,
    lens: &[usize],
    back: Kind,
) -> Result<(), Fault> {
    let (words, out, scratch) = (O::items(words), O::items(out), O::items(scratch));
    if lens.iter().sum::<usize>() != words.len()
        || words.len() != out.len()
        || scratch.len() < 2 * lens.len().max(1)
    {
        return Err(bad("runs that do not fit their blocks"));
    }
    let mut runs = Vec::with_capacity(lens.len());
    let mut rest: &[O::Item] = words;
    for &len in lens {
        let (run, after) = rest.split_at(len);
        runs.push(run);
        rest = after;
    }
    detached(py, || {
        merge::merge::<O>(&runs, out, scratch, cores(), |part| decode(O::words(part), back));
        Ok(())
    })
}

/// Narrows the ranges in which cuts of runs on disk lie, from the elements at equal distances in each.
#[pyfunction]
pub fn narrow_cuts(
    ranges: Vec<(usize, usize)>,
    rank: usize,
    distance: usize,
    seen: Array<'_, '_>,
    width: usize,
    kind: &str,
) -> Result<Vec<(usize, usize)>, Fault> {
    fn of<W: Word + Element>(
        ranges: Vec<(usize, usize)>,
        rank: usize,
        distance: usize,
        seen: Array<'_, '_>,
        (width, kind): (usize, &str),
    ) -> Result<Vec<(usize, usize)>, Fault> {
        let mut seen = changed::<W>(seen)?;
        let seen = contiguous(seen.as_slice_mut())?;
        let mut ranges: Vec<Range> =
            ranges.into_iter().map(|(least, most)| Range { least, most }).collect();
        ordered!(width, kind, narrowed(&mut ranges, rank, distance.max(1), seen))?;
        Ok(ranges.into_iter().map(|range| (range.least, range.most)).collect())
    }
    typed!(seen, of(ranges, rank, distance, seen, (width, kind)))
}

fn narrowed<O: Order>(
    ranges: &mut [Range],
    rank: usize,
    distance: usize,
    seen: &mut [O::Word],
) -> Result<(), Fault> {
    narrow::<O>(ranges, rank, distance, O::items(seen));
    Ok(())
}

/// Writes keys of elements with their places, counted from the first of `places` on in each
/// line of so many elements as the second says: key and place
/// in one word if `out` has one for each element (keys of at most 32 bits, before a place of 32), else words
/// of the key, then the place.
#[pyfunction]
pub fn keys_with_places(
    py: Python<'_>,
    words: Array<'_, '_>,
    width: usize,
    kind: &str,
    places: (u64, u64),
    out: Array<'_, '_>,
) -> Result<(), Fault> {
    fn of<W: Word + Element>(
        (py, words, width, kind): (Python<'_>, Array<'_, '_>, usize, &str),
        (first, line): (u64, u64),
        out: Array<'_, '_>,
    ) -> Result<(), Fault> {
        let (words, mut out) = (read::<W>(words)?, changed::<u64>(out)?);
        let (words, out) = (contiguous(words.as_slice())?, contiguous(out.as_slice_mut())?);
        let kind = kind_of(kind)?;
        let count = words.len() / width.max(1);
        let each = out.len() / count.max(1);
        let bits = 8 * std::mem::size_of::<W>();
        let fits = match each {
            1 => width == 1 && bits <= 32,
            2 => width == 1 || bits <= 32,
            3 => width == 2,
            _ => false,
        };
        if count > 0 && (!fits || out.len() != each * count) {
            return Err(bad("places that do not fit their block"));
        }
        let work = std::sync::Mutex::new(
            words.chunks(PART * width).zip(out.chunks_mut((PART * each).max(1))).enumerate(),
        );
        let take = || work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
        detached(py, || {
            outcore_io::cpu::side_by_side(cores(), &|_| {
                while let Some((number, (words, out))) = take() {
                    let mut next = (number * PART) as u64 % line.max(1);
                    let count = words.len() / width;
                    let each = std::iter::repeat_with(|| {
                        let place = first + next;
                        next = if next + 1 == line { 0 } else { next + 1 };
                        place
                    });
                    write_places(words, width, kind, each, out.len() / count.max(1), out);
                }
            });
            Ok(())
        })
    }
    typed!(words, of((py, words, width, kind), places, out))
}

/// `each` words for an element.
fn write_places<W: Word>(
    words: &[W],
    width: usize,
    kind: Kind,
    places: impl Iterator<Item = u64>,
    each: usize,
    out: &mut [u64],
) {
    match (width, each) {
        (1, 1) => out.iter_mut().zip(words).zip(places).for_each(|((out, word), place)| {
            *out = key(*word, kind).wide() << 32 | place;
        }),
        (1, _) => {
            let pairs = out.as_chunks_mut::<2>().0;
            pairs.iter_mut().zip(words).zip(places).for_each(|((out, word), place)| {
                *out = [key(*word, kind).wide(), place];
            });
        }
        (_, 2) => {
            let pairs = out.as_chunks_mut::<2>().0.iter_mut().zip(words.as_chunks::<2>().0);
            pairs.zip(places).for_each(|((out, [re, im]), place)| {
                let [re, im] = complex_key(*re, *im);
                *out = [re.wide() << 32 | im.wide(), place];
            });
        }
        _ => {
            let triples = out.as_chunks_mut::<3>().0.iter_mut().zip(words.as_chunks::<2>().0);
            triples.zip(places).for_each(|((out, [re, im]), place)| {
                let [re, im] = complex_key(*re, *im);
                *out = [re.wide(), im.wide(), place];
            });
        }
    }
}
