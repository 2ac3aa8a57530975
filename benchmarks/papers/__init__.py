"""Measures what can be repeated here of the papers' tables, beside their figures, for docs/papers.md."""
