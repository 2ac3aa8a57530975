"""One calibration from a data set to a release."""
