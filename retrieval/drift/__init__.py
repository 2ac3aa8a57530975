"""Live similarities against those that a release was calibrated on: the same code for the service and for a replay."""
