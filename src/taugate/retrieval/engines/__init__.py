"""Engines are external stores that hold the vectors and documents of a corpus and propose candidates for a query."""
