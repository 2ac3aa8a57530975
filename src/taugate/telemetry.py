"""Keeps the libraries that Taugate imports from reporting their use to their makers, unless the user turns it on."""

import os

SETTING = "TAUGATE_TELEMETRY"
# The variable of each library, with the value that switches its reports off. A library reads it when it is imported:
# ONNX Runtime in C++ as its module loads, so that nothing can be done about it afterwards.
OFF = {
    "ORT_DISABLE_TELEMETRY": "1",  # ONNX Runtime 1.29 and later: an id of the machine, and events over HTTPS
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface-hub and transformers: versions, session and agent in each request
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray: a report of each cluster that it starts
}
_ON = frozenset({"1", "on", "t", "true", "y", "yes"})  # what pydantic, which reads the other settings, takes for true


def switch_off_reports() -> None:
    """Set the variables of all libraries in the environment of this process, which its subprocesses inherit.

    A value that a variable has already is replaced: TAUGATE_TELEMETRY alone turns reports on. If it is on, every
    variable keeps its value, so that a single library can still be switched off.
    """
    if not _turned_on():
        os.environ.update(OFF)


def _turned_on() -> bool:
    """Return whether the user turned the reports on; the name may have any case, as that of every setting."""
    values = [value for name, value in os.environ.items() if name.upper() == SETTING]
    return bool(values) and values[0].lower() in _ON
