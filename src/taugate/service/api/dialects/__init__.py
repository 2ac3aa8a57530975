"""Search APIs of other products, each switched on with TAUGATE_DIALECTS."""
