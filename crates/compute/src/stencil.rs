//! Weighted sums of neighbours.
