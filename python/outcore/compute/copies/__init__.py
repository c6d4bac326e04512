"""Elements that only change their place: transposed, rechunked, converted."""
