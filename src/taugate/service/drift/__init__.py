"""Live traffic beside the calibration: what is watched, told and alarmed of."""
