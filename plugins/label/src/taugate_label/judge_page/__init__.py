"""The files of the page of `taugate judge`."""
