"""The versioned artifact: its files, its manifest, how it is verified and read."""
