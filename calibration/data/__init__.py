"""Reading a labelled data set in the layout of docs/calibration.md."""
