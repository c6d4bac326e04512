//! Sorting and merging.
//!
//! Blocks are C-contiguous arrays of unsigned integers; `width` of them make an element. `kind` specifies the
//! type of elements: one of NumPy's letters, or `"w"` for words that are compared directly, the first of an
//! element before the others.

use numpy::{Element, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn};
use numpy::{PyReadwriteArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use outcore_compute::merge;
use outcore_compute::merge::select::select;
use outcore_compute::order::{complex_key, decode, encode, key};
use outcore_compute::order::{Complex, Kind, Order, Plain, Word, Words};
use outcore_compute::sort::{each_part, sort_lines};
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
        _ => Err(bad(format!("elements of kind {kind:?} cannot be ordered"))),
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
            n => Err(bad(format!("words of {n} bytes are not supported"))),
        }
    };
}

/// Calls `$run` with the order of elements of this many words of type `W`.
macro_rules! ordered {
    ($width:expr, $kind:expr, $run:ident($($arg:expr),* $(,)?)) => {
        match ($width, $kind) {
            (1, _) => $run::<Plain<W>>($($arg),*),
            (2, "c") => $run::<Complex<W>>($($arg),*),
            (2, _) => $run::<Words<W, 2>>($($arg),*),
            (3, _) => $run::<Words<W, 3>>($($arg),*),
            (n, _) => Err(bad(format!("elements of {n} words are not supported"))),
        }
    };
}

fn changed<'py, W: Element>(array: Array<'_, 'py>) -> Result<PyReadwriteArrayDyn<'py, W>, Fault> {
    let array = array.cast::<PyArrayDyn<W>>().map_err(|_| bad("blocks have different dtypes"))?;
    array.try_readwrite().map_err(|_| bad("a block is used twice, or is not writable"))
}

fn read<'py, W: Element>(array: Array<'_, 'py>) -> Result<PyReadonlyArrayDyn<'py, W>, Fault> {
    let array = array.cast::<PyArrayDyn<W>>().map_err(|_| bad("blocks have different dtypes"))?;
    array.try_readonly().map_err(|_| bad("a block is being written"))
}

fn contiguous<T>(found: Result<T, impl std::fmt::Debug>) -> Result<T, Fault> {
    found.map_err(|_| bad("a block is not contiguous"))
}

/// Replace elements by their words and sort each line of `line` elements, in place.
#[pyfunction]
#[pyo3(name = "sort_lines")]
pub fn sort_words(
    py: Python<'_>,
    words: Array<'_, '_>,
    width: usize,
    kind: &str,
    line: usize,
) -> Result<(), Fault> {
    fn of<W: Word + Element>(
        (py, words, width, kind, line): (Python<'_>, Array<'_, '_>, usize, &str, usize),
    ) -> Result<(), Fault> {
        let mut words = changed::<W>(words)?;
        let words = contiguous(words.as_slice_mut())?;
        ordered!(width, kind, sorted(py, words, line, kind_of(kind)?))
    }
    typed!(words, of((py, words, width, kind, line)))
}

fn sorted<O: Order>(
    py: Python<'_>,
    words: &mut [O::Word],
    line: usize,
    kind: Kind,
) -> Result<(), Fault> {
    detached(py, || {
        sort_lines::<O>(O::items(words), line, cores(), |part| encode(O::words(part), kind));
        Ok(())
    })
}

/// Turn words back into elements, in place.
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

/// Elements that a thread processes in one piece if each needs little work.
const PART: usize = 1 << 16;

/// Return the number of elements of scratch memory that `merge_runs` can use.
#[pyfunction]
pub fn merge_scratch(runs: usize, nbytes: usize) -> usize {
    merge::scratch(runs, cores(), nbytes)
}

/// Merge sorted runs of words, each given by first element and length, until `out` is full. The first
/// `skipped` elements of all runs are omitted; elements are written if `decoded`, otherwise words.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn merge_runs(
    py: Python<'_>,
    words: Array<'_, '_>,
    runs: Vec<(usize, usize)>,
    skipped: usize,
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
        (runs, skipped): (&[(usize, usize)], usize),
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
        ordered!(width, kind, merged(py, blocks, (runs, skipped), back))
    }
    typed!(words, of(py, (words, out, scratch), (&runs, skipped), width, (kind, decoded)))
}

/// Returns runs with these numbers of elements, which are stored one after another; None if there are too few
/// elements.
fn runs<'a, T>(mut items: &'a [T], lens: &[usize]) -> Option<Vec<&'a [T]>> {
    let mut runs = Vec::with_capacity(lens.len());
    for &len in lens {
        let (run, rest) = items.split_at_checked(len)?;
        runs.push(run);
        items = rest;
    }
    Some(runs)
}

type Slices<'a, W> = (&'a mut [W], &'a mut [W], &'a mut [W]);

fn merged<O: Order>(
    py: Python<'_>,
    (words, out, scratch): Slices<'_, O::Word>,
    (runs, skipped): (&[(usize, usize)], usize),
    back: Kind,
) -> Result<(), Fault> {
    let (words, out, scratch) = (O::items(words), O::items(out), O::items(scratch));
    let part = |&(begin, len): &(usize, usize)| words.get(begin..)?.get(..len);
    let found: Option<Vec<&[O::Item]>> = runs.iter().map(part).collect();
    let mut runs = found.unwrap_or_default();
    let all = runs.iter().map(|run| run.len()).sum();
    let fits = skipped.saturating_add(out.len()) <= all && scratch.len() >= 2 * runs.len().max(1);
    if !fits {
        return Err(bad("runs do not fit their blocks"));
    }
    detached(py, || {
        let (begin, end) = (select::<O>(&runs, skipped), select::<O>(&runs, skipped + out.len()));
        for (run, (begin, end)) in runs.iter_mut().zip(begin.into_iter().zip(end)) {
            *run = &run[begin..end];
        }
        merge::merge::<O>(&runs, out, scratch, cores(), |part| decode(O::words(part), back));
        Ok(())
    })
}

/// Write how many elements of each run, which are stored one after another in `words`, are among the first
/// `n` of all: a row of `out` for each `n` in `ranks`.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn cut_runs(
    py: Python<'_>,
    words: Array<'_, '_>,
    lens: Vec<usize>,
    ranks: Vec<usize>,
    out: Array<'_, '_>,
    width: usize,
    kind: &str,
) -> Result<(), Fault> {
    fn of<W: Word + Element>(
        py: Python<'_>,
        (words, out): (Array<'_, '_>, Array<'_, '_>),
        (lens, ranks): (&[usize], &[usize]),
        (width, kind): (usize, &str),
    ) -> Result<(), Fault> {
        let (mut words, mut out) = (changed::<W>(words)?, changed::<i64>(out)?);
        let words = contiguous(words.as_slice_mut())?;
        let out = contiguous(out.as_slice_mut())?;
        ordered!(width, kind, cut(py, words, (lens, ranks), out))
    }
    typed!(words, of(py, (words, out), (&lens, &ranks), (width, kind)))
}

fn cut<O: Order>(
    py: Python<'_>,
    words: &mut [O::Word],
    (lens, ranks): (&[usize], &[usize]),
    out: &mut [i64],
) -> Result<(), Fault> {
    let fits = !lens.is_empty() && out.len() == lens.len() * ranks.len();
    let runs = runs(O::items(words), lens).filter(|_| fits);
    let runs = runs.ok_or_else(|| bad("runs do not fit their blocks"))?;
    let all: usize = lens.iter().sum();
    detached(py, || {
        for (row, rank) in out.chunks_mut(lens.len()).zip(ranks) {
            let cuts = select::<O>(&runs, all.min(*rank));
            row.iter_mut().zip(cuts).for_each(|(to, cut)| *to = cut as i64);
        }
        Ok(())
    })
}

/// Write keys of elements with their places. `places` gives the first place and the number of elements of a
/// line, in each of which counting starts again. Key and place are in one word if `out` has one word for each
/// element (keys of at most 32 bits, before a place of 32); otherwise words of the key are followed by the
/// place.
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
            return Err(bad("places do not fit their block"));
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

/// Writes `each` words for an element.
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
