"""No framework reports to its makers that it was tested."""

import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when haystack is imported
os.environ["LANGSMITH_TRACING"] = "false"
