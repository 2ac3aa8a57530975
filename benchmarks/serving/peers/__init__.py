"""The services that taugate is measured beside."""
