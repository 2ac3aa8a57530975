"""The directory of releases: which are there, which is current, and how that changes."""
