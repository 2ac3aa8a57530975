"""Settings of the service: TAUGATE_* variables, read at startup."""

from taugate.service.settings.groups import DIALECTS, MAX_QUERIES, Dialect, Part
from taugate.service.settings.settings import FIELDS, VARIABLES, Settings, Variable, read_settings

__all__ = ["DIALECTS", "FIELDS", "MAX_QUERIES", "VARIABLES", "Dialect", "Part", "Settings", "Variable", "read_settings"]
