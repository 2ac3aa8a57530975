"""Which release is served, and how another one takes its place."""
