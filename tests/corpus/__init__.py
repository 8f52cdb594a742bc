"""Models that no one here wrote, through the whole of graphopt; see ``python -m tests.corpus --help``."""
