"""Models of machines, and the measurements of the papers for comparison."""
