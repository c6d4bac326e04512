"""The lane `irregular`: index lists, files, candidates and rows of one process and of many ranks."""
