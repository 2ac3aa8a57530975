"""Live traffic against the calibration: watched beside the requests, and told to Prometheus."""
