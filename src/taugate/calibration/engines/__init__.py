"""A corpus in an engine: uploaded once, verified, and searched by a calibration."""
