"""The subcommand `taugate release`."""
