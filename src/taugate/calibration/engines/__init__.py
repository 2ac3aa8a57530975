"""A corpus in an engine: uploaded once, verified, and searched as a calibration searches it."""
