"""Prevents imported libraries from reporting usage to their vendors, unless the user turns it on."""

import os

SETTING = "TAUGATE_TELEMETRY"
# The variables that switch off the reports of libraries. Libraries read them when imported; ONNX Runtime does so in C++
# as its module loads, so setting them later has no effect.
OFF = {
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime 1.29 and later: an id of the machine, and events over HTTPS
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface-hub and transformers: versions, session and agent in each request
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray: a report of every cluster that it starts
}
_ON = frozenset({"1", "on", "t", "true", "y", "yes"})  # pydantic's values for true, as in other settings


def switch_off_reports() -> None:
    """Set the variables of all libraries in the environment of this process, which its subprocesses inherit.

    Existing values are replaced, because only TAUGATE_TELEMETRY turns reports on. If it is on, variables keep their
    values, so that a single library can still be switched off.
    """
    if not _turned_on():
        os.environ.update(OFF)


def _turned_on() -> bool:
    """Return whether the user turned reports on; the setting's name may have any case."""
    values = [value for name, value in os.environ.items() if name.upper() == SETTING]
    return bool(values) and values[0].lower() in _ON
