"""All pairs of options and settings that change a release or a reply, in few calibrations, with what must hold of each.

`python -m tests.pairs`, which is `make test-pairs`, prints a line per calibration and what it found.
"""
