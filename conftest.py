"""Fixtures of all tests: those of the core in tests/, and those of each plug-in."""

pytest_plugins = ["tests.fixtures"]
