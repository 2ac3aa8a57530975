"""How long `taugate update` takes, whether its files are those of a full run, and what kill -9 leaves behind."""
