"""Anything cheaper than exact search in float32 is admitted by evidence, or not at all."""
