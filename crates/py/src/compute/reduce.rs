//! Reductions.

use numpy::{Element, PyReadonlyArrayDyn, PyReadwriteArrayDyn, PyUntypedArrayMethods};
use outcore_compute::reduce::{
    accumulate, Arg, ArgOfNodes, ArgPairs, ArgPairsOfNodes, Axis, Exact, Fold, Max, Merge, Min,
    Moments, MomentsOfNodes, NanMax, NanMin, NanSum, Nonzero, Numbers, Pairs, Part, Piece, Prod,
    Sum, SumSquares, Tree, LEAF,
};
use pyo3::prelude::*;

use crate::errors::{Class, Fault};

/// A reduction of one axis of blocks of one type.
#[pyclass(module = "outcore._core", frozen)]
pub struct Reduction(Box<dyn Erased>);

trait Erased: Send + Sync {
    fn types(&self) -> (&'static str, Vec<&'static str>);
    fn state(&self, outputs: usize) -> usize;
    fn scratch(&self, outputs: usize) -> usize;
    fn fold(
        &self,
        blocks: &[Bound<'_, PyAny>],
        place: Place,
        memory: [&Bound<'_, PyAny>; 2],
    ) -> PyResult<()>;
    fn whole(
        &self,
        blocks: &[Bound<'_, PyAny>],
        axis: usize,
        outs: &[Bound<'_, PyAny>],
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()>;
    fn finish(&self, state: &Bound<'_, PyAny>, outs: &[Bound<'_, PyAny>]) -> PyResult<()>;
    fn node(
        &self,
        state: &Bound<'_, PyAny>,
        count: usize,
        outs: &[Bound<'_, PyAny>],
    ) -> PyResult<()>;
    fn whole_node(
        &self,
        blocks: &[Bound<'_, PyAny>],
        place: Place,
        outs: &[Bound<'_, PyAny>],
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()>;
    fn join(
        &self,
        nodes: &Bound<'_, PyAny>,
        outs: &[Bound<'_, PyAny>],
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()>;
}

/// An axis of a block, and the global numbers of its first index and of the segment's first index.
#[derive(Clone, Copy)]
struct Place {
    axis: usize,
    first: usize,
    base: usize,
}

struct Typed<F> {
    axis: Axis<F>,
    length: usize,
    acc: &'static str,
    outs: Vec<&'static str>,
}

/// NumPy's name of a type.
trait Named: Element {
    const NAME: &'static str;
}

macro_rules! named {
    ($($type:ty: $name:expr),*) => {$(
        impl Named for $type {
            const NAME: &'static str = $name;
        }
    )*};
}

named!(u8: "u1", i8: "i1", u16: "u2", i16: "i2", u32: "u4", i32: "i4", u64: "u8", i64: "i8", f32: "f4", f64: "f8");

fn wrong(text: &str) -> PyErr {
    Fault::new(Class::Internal, "bad-block", text.to_owned()).into()
}

fn piece(shape: &[usize], Place { axis, first, base }: Place) -> PyResult<Piece> {
    let rows = *shape.get(axis).ok_or_else(|| wrong("the axis does not exist"))?;
    let outer = shape[..axis].iter().product();
    let inner = shape[axis + 1..].iter().product();
    match base <= first && base.is_multiple_of(LEAF) {
        true => Ok(Piece { outer, rows, inner, first, base }),
        false => Err(wrong("the segment begins after the block, or inside a leaf")),
    }
}

fn read<'py, T: Element>(of: &[Bound<'py, PyAny>]) -> PyResult<Vec<PyReadonlyArrayDyn<'py, T>>> {
    let all: PyResult<Vec<PyReadonlyArrayDyn<'py, T>>> =
        of.iter().map(|one| one.extract()).collect();
    let all = all?;
    if !all.iter().all(|one| one.is_c_contiguous() && one.shape() == all[0].shape()) {
        return Err(wrong("blocks must be dense, in C order, and have one shape"));
    }
    Ok(all)
}

fn write<'py, T: Element>(of: &Bound<'py, PyAny>) -> PyResult<PyReadwriteArrayDyn<'py, T>> {
    let one: PyReadwriteArrayDyn<'py, T> = of.extract()?;
    match one.is_c_contiguous() {
        true => Ok(one),
        false => Err(wrong("state, scratch and results must be dense, in C order")),
    }
}

impl<F> Typed<F>
where
    F: Fold + Send + 'static,
    F::In: Named,
    F::Acc: Named,
    F::Out: Named + Sync,
{
    fn boxed(how: F, (length, threads): (usize, Option<usize>)) -> Box<dyn Erased> {
        let axis = Axis::new(how, length);
        let axis = match threads {
            Some(threads) => axis.with_threads(threads),
            None => axis,
        };
        Box::new(Typed { axis, length, acc: F::Acc::NAME, outs: vec![F::Out::NAME; F::PLANES] })
    }

    fn slices<'a, T: Element>(
        of: &'a [PyReadonlyArrayDyn<'_, T>],
        piece: &Piece,
    ) -> PyResult<Vec<&'a [T]>> {
        let all: PyResult<Vec<&[T]>> = of.iter().map(|one| Ok(one.as_slice()?)).collect();
        let size = piece.outputs() * piece.rows;
        match all?.as_slice() {
            all if all.iter().all(|one| one.len() == size) && !all.is_empty() => Ok(all.to_vec()),
            _ => Err(wrong("there is no block")),
        }
    }

    fn results<'py, T: Element>(
        outs: &[Bound<'py, PyAny>],
        outputs: Option<usize>,
    ) -> PyResult<Vec<PyReadwriteArrayDyn<'py, T>>> {
        let all: Vec<PyReadwriteArrayDyn<'py, T>> =
            outs.iter().map(write).collect::<PyResult<_>>()?;
        let size = outputs.or(all.first().map(|one| one.len()));
        match all.len() == F::PLANES && all.iter().all(|one| Some(one.len()) == size) {
            true => Ok(all),
            false => Err(wrong("the results do not have the size that the block requires")),
        }
    }

    /// Reduces everything in the block to results, or to a node.
    fn all<T: Element + Send>(
        &self,
        blocks: &[Bound<'_, PyAny>],
        place: Place,
        outs: &[Bound<'_, PyAny>],
        scratch: &Bound<'_, PyAny>,
        work: impl FnOnce(&[&[F::In]], &Piece, &mut [&mut [T]], &mut [F::Acc]) + Send,
    ) -> PyResult<()> {
        let blocks_ = read::<F::In>(blocks)?;
        let shape = blocks_.first().ok_or_else(|| wrong("there is no block"))?.shape();
        let piece = piece(shape, place)?;
        let x = Self::slices(&blocks_, &piece)?;
        let mut outs_ = Self::results::<T>(outs, Some(piece.outputs()))?;
        let mut views = views(&mut outs_)?;
        let mut scratch_ = write::<F::Acc>(scratch)?;
        let scratch_ = scratch_.as_slice_mut()?;
        if scratch_.len() < self.axis.scratch(piece.outputs()) {
            return Err(wrong("the scratch memory is too small"));
        }
        scratch.py().detach(|| work(&x, &piece, &mut views, scratch_));
        Ok(())
    }

    /// Converts the state to results, or to a node.
    fn close<T: Element + Send>(
        &self,
        state: &Bound<'_, PyAny>,
        outs: &[Bound<'_, PyAny>],
        work: impl FnOnce(&mut [F::Acc], &mut [&mut [T]]) + Send,
    ) -> PyResult<()> {
        let mut outs_ = Self::results::<T>(outs, None)?;
        let outputs = outs_.first().map_or(0, |one| one.len());
        let mut views = views(&mut outs_)?;
        let mut state_ = write::<F::Acc>(state)?;
        let state_ = state_.as_slice_mut()?;
        if state_.len() != self.axis.state(outputs) {
            return Err(wrong("the state has another size"));
        }
        state.py().detach(|| work(state_, &mut views));
        Ok(())
    }
}

fn views<'a, T: Element>(outs: &'a mut [PyReadwriteArrayDyn<'_, T>]) -> PyResult<Vec<&'a mut [T]>> {
    outs.iter_mut().map(|one| Ok(one.as_slice_mut()?)).collect()
}

impl<F> Erased for Typed<F>
where
    F: Fold + Send + 'static,
    F::In: Named,
    F::Acc: Named,
    F::Out: Named + Sync,
{
    fn types(&self) -> (&'static str, Vec<&'static str>) {
        (self.acc, self.outs.clone())
    }

    fn state(&self, outputs: usize) -> usize {
        self.axis.state(outputs)
    }

    fn scratch(&self, outputs: usize) -> usize {
        self.axis.scratch(outputs)
    }

    fn fold(
        &self,
        blocks: &[Bound<'_, PyAny>],
        place: Place,
        [state, scratch]: [&Bound<'_, PyAny>; 2],
    ) -> PyResult<()> {
        let blocks_ = read::<F::In>(blocks)?;
        let shape = blocks_.first().ok_or_else(|| wrong("there is no block"))?.shape();
        let piece = piece(shape, place)?;
        let x = Self::slices(&blocks_, &piece)?;
        let (mut state_, mut scratch_) = (write::<F::Acc>(state)?, write::<F::Acc>(scratch)?);
        let (state_, scratch_) = (state_.as_slice_mut()?, scratch_.as_slice_mut()?);
        let outputs = piece.outputs();
        if state_.len() != self.axis.state(outputs) || scratch_.len() < self.axis.scratch(outputs) {
            return Err(wrong("the state has another size, or the scratch memory is too small"));
        }
        state.py().detach(|| self.axis.fold(&x, &piece, state_, scratch_));
        Ok(())
    }

    fn whole(
        &self,
        blocks: &[Bound<'_, PyAny>],
        axis: usize,
        outs: &[Bound<'_, PyAny>],
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let place = Place { axis, first: 0, base: 0 };
        self.all(blocks, place, outs, scratch, |x, piece, outs, scratch| {
            self.axis.whole(x, piece, outs, scratch)
        })
    }

    fn whole_node(
        &self,
        blocks: &[Bound<'_, PyAny>],
        place: Place,
        outs: &[Bound<'_, PyAny>],
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.all(blocks, place, outs, scratch, |x, piece, outs, scratch| {
            self.axis.whole_node(x, piece, outs, scratch)
        })
    }

    fn finish(&self, state: &Bound<'_, PyAny>, outs: &[Bound<'_, PyAny>]) -> PyResult<()> {
        self.close(state, outs, |state, outs| self.axis.finish(state, outs))
    }

    fn node(
        &self,
        state: &Bound<'_, PyAny>,
        count: usize,
        outs: &[Bound<'_, PyAny>],
    ) -> PyResult<()> {
        self.close(state, outs, |state, outs| self.axis.node(state, count, outs))
    }

    fn join(
        &self,
        nodes: &Bound<'_, PyAny>,
        outs: &[Bound<'_, PyAny>],
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let nodes_: PyReadonlyArrayDyn<'_, F::Acc> = nodes.extract()?;
        let mut outs_ = Self::results::<F::Out>(outs, None)?;
        let outputs = outs_.first().map_or(0, |one| one.len());
        let mut views = views(&mut outs_)?;
        let mut scratch_ = write::<F::Acc>(scratch)?;
        let scratch_ = scratch_.as_slice_mut()?;
        let size = F::PLANES * (self.length / LEAF) * outputs;
        if nodes_.len() != size || !self.length.is_multiple_of(LEAF) {
            return Err(wrong("the number of nodes differs from the number of leaves"));
        }
        if scratch_.len() < self.axis.scratch(outputs) {
            return Err(wrong("the scratch memory is too small"));
        }
        let nodes = nodes_.as_slice()?;
        scratch.py().detach(|| self.axis.join(nodes, outputs, &mut views, scratch_));
        Ok(())
    }
}

/// Expands to one line for each type of element.
macro_rules! by_type {
    ($dtype:expr, $length:expr, $($type:ty => $how:expr),*) => {
        match $dtype {
            $(name if name == <$type>::NAME => Some(Typed::boxed($how, $length)),)*
            _ => None,
        }
    };
}

/// Makes the reduction of a type that needs a separate one; blocks of other types are converted.
fn make(name: &str, dtype: &str, n: (usize, Option<usize>), step: i64) -> Option<Box<dyn Erased>> {
    macro_rules! tree {
        ($($op:ident $input:ident $acc:ident),*) => {
            by_type!(dtype, n, $($input => Tree::<$op<$input, $acc>>::new()),*)
        };
    }
    macro_rules! exact {
        ($op:ident: $($input:ident),*) => {
            by_type!(dtype, n, $($input => Exact::<$op<$input>>::new()),*)
        };
    }
    macro_rules! integers {
        ($op:ident: $($input:ident $acc:ident),*) => {
            by_type!(dtype, n, $($input => Exact::<$op<$input, $acc>>::new()),*)
        };
    }
    macro_rules! moments {
        ($nan:literal: $($input:ident),*) => {
            by_type!(dtype, n, $($input => Moments::<$input, $nan>::new()),*)
        };
    }
    macro_rules! place {
        ($nan:literal, $largest:literal: $($input:ident),*) => {
            by_type!(dtype, n, $($input => Arg::<$input, $nan>::new($largest)),*)
        };
    }
    macro_rules! pairs {
        ($merge:ident) => {
            by_type!(dtype, n,
                f32 => Pairs::<f32>::new(Merge::$merge), f64 => Pairs::<f64>::new(Merge::$merge))
        };
    }
    macro_rules! place_of_pairs {
        ($nan:literal, $largest:literal) => {
            by_type!(dtype, n,
                f32 => ArgPairs::<f32>::new($largest, $nan),
                f64 => ArgPairs::<f64>::new($largest, $nan))
        };
    }
    match name {
        "sum" => tree!(Sum f32 f32, Sum f64 f64).or_else(
            || integers!(Sum: u8 u64, i8 i64, u16 u64, i16 i64, u32 u64, i32 i64, u64 u64, i64 i64),
        ),
        "sum in float64" => tree!(Sum f32 f64, Sum f64 f64, Sum u64 f64, Sum i64 f64),
        "nansum" => tree!(NanSum f32 f32, NanSum f64 f64),
        "prod" => tree!(Prod f32 f32, Prod f64 f64).or_else(|| integers!(Prod: u64 u64, i64 i64)),
        "squares" => tree!(SumSquares f32 f64, SumSquares f64 f64),
        "min" => exact!(Min: u8, i8, u16, i16, u32, i32, u64, i64, f32, f64),
        "max" => exact!(Max: u8, i8, u16, i16, u32, i32, u64, i64, f32, f64),
        "nanmin" => exact!(NanMin: f32, f64),
        "nanmax" => exact!(NanMax: f32, f64),
        "nonzero" => exact!(Nonzero: u8, u16, u32, u64, f32, f64),
        "numbers" => exact!(Numbers: f32, f64),
        "moments" => moments!(false: i32, i64, f32, f64),
        "nanmoments" => moments!(true: f32, f64),
        "more moments" => by_type!(dtype, n, f64 => MomentsOfNodes),
        "argmin" => place!(false, false: u8, i32, u64, i64, f32, f64),
        "argmax" => place!(false, true: u8, i32, u64, i64, f32, f64),
        "nanargmin" => place!(true, false: f32, f64),
        "nanargmax" => place!(true, true: f32, f64),
        "more places" => by_type!(dtype, n, i64 => ArgOfNodes::new(step)),
        // For complex numbers, which are two columns each.
        "complex prod" => pairs!(Prod),
        "complex prod of products" => pairs!(More),
        "complex min" => pairs!(Min),
        "complex max" => pairs!(Max),
        "complex nanmin" => pairs!(NanMin),
        "complex nanmax" => pairs!(NanMax),
        "complex argmin" => place_of_pairs!(false, false),
        "complex argmax" => place_of_pairs!(false, true),
        "complex nanargmin" => place_of_pairs!(true, false),
        "complex nanargmax" => place_of_pairs!(true, true),
        "more complex places" => by_type!(dtype, n, i64 => ArgPairsOfNodes::new(step)),
        _ => None,
    }
}

/// Compute products of all complex numbers up to each one along an axis, in place. The last axis has their
/// parts. `before`: factors for the first ones.
#[pyfunction]
#[pyo3(signature = (y, axis, before = None))]
pub fn accumulate_products(
    y: &Bound<'_, PyAny>,
    axis: usize,
    before: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    fn of<T: Part + Element>(
        y: &Bound<'_, PyAny>,
        axis: usize,
        before: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let mut y_ = write::<T>(y)?;
        let Piece { outer, rows, inner, .. } =
            piece(y_.shape(), Place { axis, first: 0, base: 0 })?;
        let before_ = before.map(|one| read::<T>(std::slice::from_ref(one))).transpose()?;
        let before = match &before_ {
            Some(before) => Some(before[0].as_slice()?),
            None => None,
        };
        if axis + 1 == y_.ndim() || before.is_some_and(|before| before.len() != outer * inner) {
            return Err(wrong("the number of products differs from the number of lines"));
        }
        let all = y_.as_slice_mut()?;
        y.py().detach(|| accumulate(all, rows, inner, before));
        Ok(())
    }
    let is_single = y.extract::<PyReadonlyArrayDyn<'_, f32>>().is_ok();
    match is_single {
        true => of::<f32>(y, axis, before),
        false => of::<f64>(y, axis, before),
    }
}

#[pymethods]
impl Reduction {
    /// Create the reduction `name` of `length` elements of type `dtype`, such as `"f8"`. `step`: for `more
    /// places`, the amount that the next index of the axis adds. `threads`: limit of threads, by default all.
    #[new]
    #[pyo3(signature = (name, dtype, length, step = 0, threads = None))]
    fn new(
        name: &str,
        dtype: &str,
        length: usize,
        step: i64,
        threads: Option<usize>,
    ) -> PyResult<Reduction> {
        let made = make(name, dtype, (length, threads), step);
        made.map(Reduction)
            .ok_or_else(|| wrong(&format!("there is no reduction {name:?} of dtype {dtype:?}")))
    }

    /// Type of state and scratch memory, and of each result.
    #[getter]
    fn types(&self) -> (&'static str, Vec<&'static str>) {
        self.0.types()
    }

    /// Return the number of elements of the state between pieces.
    fn state(&self, outputs: usize) -> usize {
        self.0.state(outputs)
    }

    /// Return the number of elements of scratch memory.
    fn scratch(&self, outputs: usize) -> usize {
        self.0.scratch(outputs)
    }

    /// Add a piece of the axis, whose first index is `first`. `base`: first index of the segment of the
    /// state.
    #[pyo3(signature = (blocks, axis, first, state, scratch, base = 0))]
    fn fold(
        &self,
        blocks: Vec<Bound<'_, PyAny>>,
        axis: usize,
        first: usize,
        state: &Bound<'_, PyAny>,
        scratch: &Bound<'_, PyAny>,
        base: usize,
    ) -> PyResult<()> {
        self.0.fold(&blocks, Place { axis, first, base }, [state, scratch])
    }

    /// Reduce the whole axis.
    fn whole(
        &self,
        blocks: Vec<Bound<'_, PyAny>>,
        axis: usize,
        outs: Vec<Bound<'_, PyAny>>,
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.0.whole(&blocks, axis, &outs, scratch)
    }

    /// Write the results, after all pieces were added.
    fn finish(&self, state: &Bound<'_, PyAny>, outs: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.0.finish(state, &outs)
    }

    /// Write the node of a segment that begins at `base` and is in the block: values of the state's type.
    fn whole_node(
        &self,
        blocks: Vec<Bound<'_, PyAny>>,
        axis: usize,
        base: usize,
        outs: Vec<Bound<'_, PyAny>>,
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.0.whole_node(&blocks, Place { axis, first: base, base }, &outs, scratch)
    }

    /// Write the node of a segment of `count` indices, after all its pieces were added.
    fn node(
        &self,
        state: &Bound<'_, PyAny>,
        count: usize,
        outs: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.0.node(state, count, &outs)
    }

    /// Write the results of an axis whose leaves are nodes of segments: plane by plane, segment by segment.
    fn join(
        &self,
        nodes: &Bound<'_, PyAny>,
        outs: Vec<Bound<'_, PyAny>>,
        scratch: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.0.join(nodes, &outs, scratch)
    }
}
