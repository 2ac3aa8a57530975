"""Retrieval with a similarity threshold that is calibrated, not guessed."""

from taugate.telemetry import switch_off_unless_wanted

switch_off_unless_wanted()  # before any module of the package can import one of these libraries
