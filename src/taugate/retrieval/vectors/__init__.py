"""Unit vectors: similarity and projections."""
