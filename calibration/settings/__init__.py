"""What a calibration is asked for, checked before anything is read."""
