"""Retrieval with a similarity threshold that is calibrated, not guessed."""

from taugate.telemetry import switch_off_reports

switch_off_reports()  # before any module of the package can import one of these libraries
