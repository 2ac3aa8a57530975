"""Figures of the source itself: files that a query runs, and lines of own code."""
