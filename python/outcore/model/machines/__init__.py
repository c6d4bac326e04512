"""Models of machines, and the measurements of the papers that they are compared with."""
