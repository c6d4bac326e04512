//! Reduction of elements: rows of elements, the state of outputs, nodes of the tree.

/// Number of lanes of a leaf.
pub const LANES: usize = 8;

/// Number of indices of a leaf.
pub const LEAF: usize = 128;

/// Maximum number of columns of short rows, several of which are processed as one.
pub(super) const NARROW: usize = 32;

/// The state of some adjacent outputs: a row of values for each slot.
pub struct Rows<'a, A> {
    pub(super) data: &'a mut [A],
    pub(super) width: usize,
    pub(super) column: usize,
    /// Number of outputs.
    pub len: usize,
}

impl<A> Rows<'_, A> {
    /// The values of one slot.
    #[inline(always)]
    pub fn row(&mut self, slot: usize) -> &mut [A] {
        &mut self.data[slot * self.width + self.column..][..self.len]
    }

    /// The values of two slots, `a` below `b`.
    #[inline(always)]
    pub fn two(&mut self, a: usize, b: usize) -> (&mut [A], &mut [A]) {
        let (low, high) = self.data.split_at_mut(b * self.width);
        (&mut low[a * self.width + self.column..][..self.len], &mut high[self.column..][..self.len])
    }
}

/// Rows of some adjacent outputs.
pub struct Run<'a, I> {
    pub(super) planes: &'a [&'a [I]],
    pub(super) start: usize,
    pub(super) stride: usize,
    /// Number of outputs.
    pub len: usize,
    /// Number of rows.
    pub rows: usize,
    /// Global number of the first row.
    pub first: usize,
    /// Global number of the row at which the state begins, at an edge of leaves.
    pub base: usize,
}

impl<'a, I> Run<'a, I> {
    /// One row of a plane.
    #[inline(always)]
    pub fn row(&self, plane: usize, number: usize) -> &'a [I] {
        &self.planes[plane][self.start + number * self.stride..][..self.len]
    }

    /// Rows from `number` on, `count` of them, which must be consecutive without gaps and short.
    #[inline(always)]
    pub fn dense(&self, number: usize, count: usize) -> &'a [I] {
        &self.planes[0][self.start + number * self.stride..][..count * self.stride]
    }

    /// Returns whether rows are short and without gaps.
    #[inline(always)]
    pub fn narrow(&self) -> bool {
        self.len == self.stride && self.len <= NARROW
    }
}

/// A reduction of elements.
pub trait Fold: Sync {
    /// Type of elements.
    type In: Copy + Sync;
    /// Type of the state's values.
    type Acc: Copy + Send + Sync;
    /// Type of results.
    type Out: Copy + Send;
    /// Number of values of one node of the tree, and of one result.
    const PLANES: usize;
    /// True if vectors make it faster, so that it is compiled for each instruction set.
    const WIDE: bool = true;

    /// Number of slots of the state of one output, for nodes of `levels` levels.
    fn slots(levels: usize) -> usize;
    /// Adds rows.
    ///
    /// If they begin at the base of the state, its previous contents are ignored.
    fn fold(&self, state: &mut Rows<'_, Self::Acc>, run: &Run<'_, Self::In>, levels: usize);
    /// Adds a node: `2^level` leaves from row `at` of the state on, a multiple of that many leaves.
    fn push(&self, state: &mut Rows<'_, Self::Acc>, node: &Node<'_, Self::Acc>, levels: usize);
    /// Computes the node of all `count` rows so far, in the first slots after the levels.
    fn root(&self, state: &mut Rows<'_, Self::Acc>, count: usize, levels: usize);
    /// The slot in which `root` leaves a plane.
    fn place(plane: usize, levels: usize) -> usize;
    /// Converts a value of a node to a result.
    fn seal(value: Self::Acc) -> Self::Out;
}

/// A node of the tree for some outputs: `planes` rows of values.
pub struct Node<'a, A> {
    pub(super) values: &'a [A],
    pub(super) width: usize,
    pub(super) column: usize,
    pub(super) len: usize,
    /// Number of rows of the state before the node.
    pub at: usize,
    /// Level of the node.
    pub level: usize,
}

impl<A> Node<'_, A> {
    /// The values of one plane.
    #[inline(always)]
    pub fn plane(&self, number: usize) -> &[A] {
        &self.values[number * self.width + self.column..][..self.len]
    }
}

/// Number of levels of nodes for the whole leaves of an axis of this length.
pub fn levels(length: usize) -> usize {
    (usize::BITS - (length / LEAF).leading_zeros()) as usize
}
