"""The documentation site, and the program that builds it."""
