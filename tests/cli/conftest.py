"""A releases directory with one release, current, that a test may change: that of the releases' own tests."""

from tests.registry.conftest import copy, first

__all__ = ["copy", "first"]
