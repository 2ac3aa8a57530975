"""Analyses a data set for a calibration, before anything is written."""
