"""Unit vectors: their similarity, the overlap of two distributions of it, and projections."""
