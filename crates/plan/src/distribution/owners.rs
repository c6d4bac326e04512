//! Owners of elements: the patterns of all axes over a grid of ranks.

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::axis::{self, Axis, Ghost, Strip, MOST_PIECES};
use super::grid::Grid;
use super::pattern::{affine, Align, Pattern};
use crate::error::PlanError;
use crate::section::{Range, Section};

/// Distribution of one axis of the array.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// Assignment of cells.
    pub pattern: Pattern,
    /// The axis of the grid; `None` exactly for [`Pattern::Whole`].
    pub axis: Option<usize>,
    /// Alignment of indices with cells.
    pub align: Align,
}

/// A regular section of the array, and its place in the memory of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The elements in the whole array.
    pub global: Section,
    /// Their places, in the same order.
    pub local: Section,
}

/// The owner of each index of an array.
///
/// Equal values have equal representations: BLOCK(k) and CYCLIC(k) that are equivalent to plain
/// BLOCK or CYCLIC are equal to these, and a template of minimal length is equal to an omitted one.
/// Two unequal distributions may still divide an array in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Distribution {
    pub(super) shape: Vec<i64>,
    pub(super) grid: Grid,
    pub(super) mappings: Vec<Mapping>,
    pub(super) axes: Vec<Axis>,
}

fn bad<T>(why: String) -> Result<T, PlanError> {
    Err(PlanError::BadDistribution(why))
}

impl Distribution {
    /// Creates a distribution of an array of this shape, with one mapping per axis.
    pub fn new(
        shape: Vec<i64>,
        grid: Grid,
        mut mappings: Vec<Mapping>,
    ) -> Result<Distribution, PlanError> {
        if mappings.len() != shape.len() {
            let (n, m) = (shape.len(), mappings.len());
            return bad(format!(
                "there are {m} formats for an array of {n} axes; give one per axis"
            ));
        }
        let mut used = vec![false; grid.ndim()];
        let mut axes = Vec::with_capacity(shape.len());
        for (d, (len, mapping)) in shape.iter().zip(&mut mappings).enumerate() {
            if *len < 0 || *len == i64::MAX {
                return bad(format!("axis {d} has length {len}; give 0 to 2**63 - 2"));
            }
            let over = match (mapping.axis, &mapping.pattern) {
                (None, Pattern::Whole) => 1,
                (None, _) => {
                    return bad(format!("axis {d} is distributed, but along no axis of the grid"));
                }
                (Some(_), Pattern::Whole) => {
                    return bad(format!(
                        "axis {d} is '*' but has an axis of the grid; omit that axis"
                    ));
                }
                (Some(axis), _) => match (grid.shape().get(axis), used.get_mut(axis)) {
                    (Some(over), Some(used)) if !*used => {
                        *used = true;
                        *over
                    }
                    (Some(_), _) => {
                        return bad(format!(
                            "axis {axis} of the grid is used twice; use a different one for each \
                             axis of the array"
                        ));
                    }
                    _ => {
                        return bad(format!(
                            "axis {d} is distributed along axis {axis} of a grid of {grid}; give 0 \
                             to {}",
                            grid.ndim().saturating_sub(1)
                        ));
                    }
                },
            };
            normalize(*len, over, mapping)?;
            axes.push(Axis::new(*len, over, &mapping.pattern, &mapping.align)?);
        }
        Ok(Distribution { shape, grid, mappings, axes })
    }

    /// Length of each axis.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The grid of ranks.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Distribution of each axis.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Axes of the grid along which every rank has the same elements.
    pub fn replicated(&self) -> Vec<usize> {
        let used = |axis| self.mappings.iter().any(|m| m.axis == Some(axis));
        (0..self.grid.ndim()).filter(|axis| !used(*axis)).collect()
    }

    /// Number of ranks that have each element.
    pub fn copies(&self) -> i64 {
        self.replicated().iter().map(|axis| self.grid.shape()[*axis]).product()
    }

    /// The rank that owns an element: the lowest one if several have it.
    pub fn owner(&self, index: &[i64]) -> Result<i64, PlanError> {
        self.check_index(index)?;
        let mut coordinates = vec![0; self.grid.ndim()];
        for ((mapping, axis), i) in self.mappings.iter().zip(&self.axes).zip(index) {
            if let Some(along) = mapping.axis {
                coordinates[along] = axis.owner(*i);
            }
        }
        self.grid.rank(&coordinates)
    }

    /// Returns whether a rank owns its elements; otherwise it has copies.
    pub fn is_owner(&self, rank: i64) -> Result<bool, PlanError> {
        let at = self.grid.coordinates(rank)?;
        Ok(self.replicated().iter().all(|axis| at[*axis] == 0))
    }

    /// Place of an element in the memory of the ranks that have it (without ghosts).
    pub fn local_index(&self, index: &[i64]) -> Result<Vec<i64>, PlanError> {
        self.check_index(index)?;
        let place = |(axis, i): (&Axis, &i64)| axis.below(axis.owner(*i), *i);
        Ok(self.axes.iter().zip(index).map(place).collect())
    }

    /// The index of the element that a rank stores at `local` (without ghosts).
    pub fn global_index(&self, rank: i64, local: &[i64]) -> Result<Vec<i64>, PlanError> {
        let coordinates = self.along(rank)?;
        if local.len() != self.axes.len() {
            return self.too_many(local.len());
        }
        let mut index = Vec::with_capacity(local.len());
        for (d, (k, (axis, c))) in local.iter().zip(self.axes.iter().zip(coordinates)).enumerate() {
            let len = axis.count(c);
            if !(0..len).contains(k) {
                return Err(PlanError::OutOfBounds { section: format!("[{k}]"), axis: d, len });
            }
            index.push(axis.index(c, *k));
        }
        Ok(index)
    }

    /// Shape of the memory of a rank, with this many ghosts per axis (none: an empty list).
    pub fn local_shape(&self, rank: i64, ghosts: &[Ghost]) -> Result<Vec<i64>, PlanError> {
        self.check_ghosts(ghosts)?;
        let axes = self.axes.iter().zip(self.along(rank)?).enumerate();
        axes.map(|(d, (axis, c))| axis.kept_count(c, ghost(ghosts, d))).collect()
    }

    /// The elements of a rank as regular sections, with their places in its memory.
    ///
    /// The memory includes ghosts. With `all`, the ghosts are among the elements.
    pub fn pieces(&self, rank: i64, ghosts: &[Ghost], all: bool) -> Result<Vec<Piece>, PlanError> {
        self.check_ghosts(ghosts)?;
        let mut strips = Vec::with_capacity(self.axes.len());
        for (d, c) in self.along(rank)?.into_iter().enumerate() {
            let axis = &self.axes[d];
            strips.push(axis.strips(c, ghost(ghosts, d), all, axis.whole())?);
        }
        products(&strips)
    }

    /// The sections of [`Distribution::pieces`], in the whole array.
    pub fn sections(&self, rank: i64, ghosts: &[Ghost]) -> Result<Vec<Section>, PlanError> {
        let pieces = self.pieces(rank, ghosts, !ghosts.is_empty())?;
        Ok(pieces.into_iter().map(|piece| piece.global).collect())
    }

    /// Coordinate of a rank along each axis of the array.
    pub(super) fn along(&self, rank: i64) -> Result<Vec<i64>, PlanError> {
        let at = self.grid.coordinates(rank)?;
        Ok(self.mappings.iter().map(|m| m.axis.map_or(0, |axis| at[axis])).collect())
    }

    /// Number of a rank among the ranks that have the same elements.
    pub(super) fn copy_of(&self, coordinates: &[i64]) -> i64 {
        let step = |n, axis: &usize| n * self.grid.shape()[*axis] + coordinates[*axis];
        self.replicated().iter().fold(0, step)
    }

    fn too_many<T>(&self, given: usize) -> Result<T, PlanError> {
        Err(PlanError::BadSection {
            what: format!("of {given} indices"),
            why: "the array has another number of axes",
        })
    }

    fn check_index(&self, index: &[i64]) -> Result<(), PlanError> {
        if index.len() != self.shape.len() {
            return self.too_many(index.len());
        }
        for (axis, (i, len)) in index.iter().zip(&self.shape).enumerate() {
            if !(0..*len).contains(i) {
                return Err(PlanError::OutOfBounds { section: format!("[{i}]"), axis, len: *len });
            }
        }
        Ok(())
    }

    /// Checks that this array can be stored with these ghosts.
    pub fn check_ghosts(&self, ghosts: &[Ghost]) -> Result<(), PlanError> {
        if ghosts.is_empty() {
            return Ok(());
        }
        if ghosts.len() != self.shape.len() {
            let (n, m) = (self.shape.len(), ghosts.len());
            return bad(format!(
                "there are ghost widths for {m} axes of an array with {n}; give one pair per axis"
            ));
        }
        for (ghost, axis) in ghosts.iter().zip(&self.axes) {
            if ghost.low < 0 || ghost.high < 0 {
                let Ghost { low, high } = ghost;
                return bad(format!("ghost widths are ({low}, {high}); give 0 or more"));
            }
            axis.kept_count(0, *ghost)?;
        }
        Ok(())
    }
}

pub(super) fn ghost(ghosts: &[Ghost], axis: usize) -> Ghost {
    ghosts.get(axis).copied().unwrap_or_default()
}

/// Replaces a mapping by its simplest equivalent.
fn normalize(len: i64, over: i64, mapping: &mut Mapping) -> Result<(), PlanError> {
    let cells = axis::extent(len, &mapping.align)?;
    let needed = axis::extent(len, &Align { extent: None, ..mapping.align });
    if mapping.align.extent.is_some() && needed == Ok(cells) {
        mapping.align.extent = None;
    }
    match mapping.pattern {
        // The alignment of an undivided axis has no effect.
        Pattern::Whole => mapping.align = Align::default(),
        Pattern::Block(Some(size)) if size == axis::block(cells, over) => {
            mapping.pattern = Pattern::Block(None);
        }
        _ => {}
    }
    Ok(())
}

/// The sections that the strips of all axes form, the last axis fastest.
pub(super) fn products(strips: &[Vec<Strip>]) -> Result<Vec<Piece>, PlanError> {
    let count = strips.iter().try_fold(1_i64, |n, axis| n.checked_mul(axis.len() as i64));
    let Some(count) = count.filter(|n| *n <= MOST_PIECES) else {
        return bad(format!(
            "a rank has more than {MOST_PIECES} regular sections; use longer CYCLIC blocks, or fewer \
             CYCLIC axes"
        ));
    };
    let mut pieces = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let lengths = strips.iter().map(|axis| Range { start: 0, count: axis.len() as i64, step: 1 });
    for number in Section::new(lengths.collect()).indices() {
        let chosen = strips.iter().zip(&number).map(|(axis, k)| axis[*k as usize]);
        let (global, local) = chosen.map(|strip| (strip.global, strip.local)).unzip();
        pieces.push(Piece { global: Section::new(global), local: Section::new(local) });
    }
    Ok(pieces)
}

// ------------------------------------------------------------------------------------------- text

impl core::fmt::Display for Mapping {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.pattern)?;
        let Align { stride, offset, extent } = self.align;
        if (stride, offset) != (1, 0) || extent.is_some() {
            write!(f, " of t({})", affine(stride, offset))?;
        }
        extent.map_or(Ok(()), |extent| write!(f, " in 0:{extent}"))
    }
}

impl core::fmt::Display for Distribution {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let words: Vec<String> = self.mappings.iter().map(Mapping::to_string).collect();
        write!(f, "({}) onto {}", words.join(", "), self.grid)?;
        let used: Vec<usize> = self.mappings.iter().filter_map(|m| m.axis).collect();
        if !used.is_sorted() {
            let axes: Vec<String> = used.iter().map(usize::to_string).collect();
            write!(f, ", along its axes {}", axes.join(", "))?;
        }
        let replicated: Vec<String> = self.replicated().iter().map(usize::to_string).collect();
        match replicated.len() {
            0 => Ok(()),
            1 => write!(f, ", replicated along its axis {}", replicated[0]),
            _ => write!(f, ", replicated along its axes {}", replicated.join(", ")),
        }
    }
}
