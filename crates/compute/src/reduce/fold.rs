//! How elements are reduced: rows of them, the state of outputs, nodes of the tree.

/// Lanes of a leaf.
pub const LANES: usize = 8;

/// Indices of a leaf.
pub const LEAF: usize = 128;

/// Columns up to which a row is shorter than a vector is long, and several rows are taken as one.
pub(super) const NARROW: usize = 32;

/// The state of some outputs side by side: a row of values for each slot.
pub struct Rows<'a, A> {
    pub(super) data: &'a mut [A],
    pub(super) width: usize,
    pub(super) column: usize,
    /// How many outputs.
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

/// Rows of some outputs side by side.
pub struct Run<'a, I> {
    pub(super) planes: &'a [&'a [I]],
    pub(super) start: usize,
    pub(super) stride: usize,
    /// Outputs.
    pub len: usize,
    /// Rows.
    pub rows: usize,
    /// Global number of the first.
    pub first: usize,
    /// Global number of the row where the state begins, at an edge of leaves.
    pub base: usize,
}

impl<'a, I> Run<'a, I> {
    /// One row of a plane.
    #[inline(always)]
    pub fn row(&self, plane: usize, number: usize) -> &'a [I] {
        &self.planes[plane][self.start + number * self.stride..][..self.len]
    }

    /// Rows from `number` on, `count` of them, if they follow each other without gaps and are short.
    #[inline(always)]
    pub fn dense(&self, number: usize, count: usize) -> &'a [I] {
        &self.planes[0][self.start + number * self.stride..][..count * self.stride]
    }

    /// Whether rows are short and without gaps.
    #[inline(always)]
    pub fn narrow(&self) -> bool {
        self.len == self.stride && self.len <= NARROW
    }
}

/// How elements are reduced.
pub trait Fold: Sync {
    /// Elements.
    type In: Copy + Sync;
    /// What is kept of them.
    type Acc: Copy + Send + Sync;
    /// Results.
    type Out: Copy + Send;
    /// Values of one node of the tree, and of one result.
    const PLANES: usize;
    /// Whether vectors make it faster, so that it is compiled for each kind of them.
    const WIDE: bool = true;

    /// Slots of the state of one output, where nodes have so many levels.
    fn slots(levels: usize) -> usize;
    /// Takes rows in. Where they begin at the base of the state, it may hold anything before.
    fn fold(&self, state: &mut Rows<'_, Self::Acc>, run: &Run<'_, Self::In>, levels: usize);
    /// Takes a node in: `2^level` leaves from row `at` of the state on, which is an edge of so many.
    fn push(&self, state: &mut Rows<'_, Self::Acc>, node: &Node<'_, Self::Acc>, levels: usize);
    /// The node of all `count` rows so far, in the first slots behind the levels.
    fn root(&self, state: &mut Rows<'_, Self::Acc>, count: usize, levels: usize);
    /// The slot where `root` leaves a plane.
    fn place(plane: usize, levels: usize) -> usize;
    /// A value of a node as a result.
    fn seal(value: Self::Acc) -> Self::Out;
}

/// A node of the tree for some outputs: `planes` rows of values.
pub struct Node<'a, A> {
    pub(super) values: &'a [A],
    pub(super) width: usize,
    pub(super) column: usize,
    pub(super) len: usize,
    /// Rows of the state before it.
    pub at: usize,
    /// Its level.
    pub level: usize,
}

impl<A> Node<'_, A> {
    /// The values of one plane.
    #[inline(always)]
    pub fn plane(&self, number: usize) -> &[A] {
        &self.values[number * self.width + self.column..][..self.len]
    }
}

/// Levels of nodes that whole leaves of an axis of this length have.
pub fn levels(length: usize) -> usize {
    (usize::BITS - (length / LEAF).leading_zeros()) as usize
}
