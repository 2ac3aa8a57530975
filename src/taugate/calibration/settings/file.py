"""The settings file of `taugate calibrate`: what few calibrations need is a key in TOML in place of an option."""

import tomllib
from pathlib import Path

from taugate.calibration.settings.settings import Accepted, CandidateSettings
from taugate.errors import InputError

KEYS = ("accept",)


def accepted_in(path: Path) -> tuple[Accepted, ...]:
    """Return the key `accept` of a settings file: candidates that are used although the gate does not accept them.

    Raises:
        InputError: If the file cannot be read, is not TOML, or has an unknown key or an invalid value.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--settings {path}: {error.strerror}; give a readable file") from error
    except ValueError as error:
        raise InputError(f"--settings {path}: not TOML in UTF-8: {error}") from error
    if unknown := [key for key in values if key not in KEYS]:
        raise InputError(f"--settings {path}: unknown key {unknown[0]}; the keys are {', '.join(KEYS)}")
    try:
        return CandidateSettings(**values).accept
    except InputError as error:
        raise InputError(f"--settings {path}: {str(error).removeprefix('--')}") from error
