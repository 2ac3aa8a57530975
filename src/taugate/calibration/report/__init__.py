"""The report of a release, as an HTML page and as a table for the terminal."""
