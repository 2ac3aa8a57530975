"""Judging results on a page in a browser."""
