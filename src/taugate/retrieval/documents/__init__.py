"""The documents of a release: texts, metadata, and filters over it."""
