"""APIs of others that a search can be asked through: switched on one by one with TAUGATE_DIALECTS."""
