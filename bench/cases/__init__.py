"""One file per question. Each offers ``run(options) -> None`` and prints its tables."""
