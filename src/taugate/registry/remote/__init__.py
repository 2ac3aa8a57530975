"""Releases in another directory or an object store."""
