"""The versioned, self-contained artifact where calibration and service meet (contract §3)."""
