"""What a calibration leaves behind: the contents of a release and the words of its manifest."""
