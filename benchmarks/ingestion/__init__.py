"""Measurements of importing."""
