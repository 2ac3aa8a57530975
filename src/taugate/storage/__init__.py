"""Atomic file replacement, locks, digests and object stores, which depend on the operating system only."""
