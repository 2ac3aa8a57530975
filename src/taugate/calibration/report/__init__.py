"""The report of a release, as one HTML page and as a table for the terminal."""
