"""Encodes a corpus into shards, in this process or by Ray workers: `taugate encode`."""
