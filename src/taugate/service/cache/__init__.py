"""Caches of replies and vectors, in memory and in Redis."""
