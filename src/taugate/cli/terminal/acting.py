"""The variable TAUGATE_BY: the name that the history records beside user and host."""

from taugate.errors import InputError
from taugate.registry.history import NAMED

BY = "TAUGATE_BY"
BY_HELP = "your name, or that of a job, for the history, which has user and host as well"
_MAX_NAME = 200  # the name of a Kubernetes job has at most 63 characters


def act_as(name: str | None) -> None:
    """Record a name in the history with what this process does from now on."""
    if name is not None and not 0 < len(name.strip()) <= _MAX_NAME:
        raise InputError(f"{BY}: give a name of 1 to {_MAX_NAME} characters")
    NAMED.set(name)
