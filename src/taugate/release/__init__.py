"""The release, a versioned artifact: its manifest and records, the names of its files, and its verification."""
