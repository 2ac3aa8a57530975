"""Statistics as pure functions: scored queries in, records out; no file, no network."""
