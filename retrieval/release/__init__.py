"""The versioned, self-contained artifact where calibration and service meet (docs/calibration.md)."""
