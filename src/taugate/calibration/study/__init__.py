"""What a calibration finds out about a data set, before anything is written."""
