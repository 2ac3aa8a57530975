"""The settings of the service: TAUGATE_* variables, read when it starts."""

from taugate.service.settings.groups import MOST_QUERIES
from taugate.service.settings.reading import read_settings
from taugate.service.settings.settings import VARIABLES, Settings, Variable

__all__ = ["MOST_QUERIES", "VARIABLES", "Settings", "Variable", "read_settings"]
