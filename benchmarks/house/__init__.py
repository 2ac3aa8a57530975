"""Measurements of the repository itself: its shape, and the files that a search and a calibration run."""
