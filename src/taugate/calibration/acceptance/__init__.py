"""Accepts anything cheaper than exact search in float32 only by evidence."""
