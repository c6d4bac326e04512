"""Passes over arrays that cut some axes and hold the others whole, for families that need several."""
