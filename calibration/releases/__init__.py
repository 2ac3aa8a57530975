"""`taugate release …`: what operators do with releases. Only comparing them needs the extra `calibration`."""
