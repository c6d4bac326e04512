//! Sums and other reductions, in an order that depends on the indices alone.
