"""The offline job: measures, chooses and certifies a threshold, and writes a release."""

import warnings

# Of joblib, which scikit-learn loads, on a machine without shared memory; nothing here uses several processes of it.
warnings.filterwarnings("ignore", ".*joblib will operate in serial mode")
