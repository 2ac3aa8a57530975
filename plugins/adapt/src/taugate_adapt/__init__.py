"""Encoders and rerankers adapted to a data set, for Taugate."""
