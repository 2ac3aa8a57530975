"""The settings of a calibration, checked before anything is read."""
