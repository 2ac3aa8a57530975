"""The release, a versioned artifact: its files, its manifest, verification and loading."""
