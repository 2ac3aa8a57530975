"""What `taugate calibrate` refuses before it reads anything."""

from functools import cache
from typing import Any

from taugate.calibration.settings import CalibrationSettings
from taugate.cli.calibrate import command
from taugate.errors import InputError
from tests.pairs.factors import ANY, BY_NAME, CONFLICTS, Kind, Row

_FLAGS = {"accept_vectors"}


def refusal(row: Row) -> str | None:
    """Return the message with which the options of a row are refused; None if they are accepted.

    Conflicts that only a calibration finds, because they depend on the data or the model, are those of `CONFLICTS`.
    """
    for conflict in CONFLICTS:
        if all(
            row.get(name) == value or (value == ANY and row.get(name) is not None) for name, value in conflict.items()
        ):
            return f"known at run time: {conflict}"
    for name, value in row.items():
        needed = BY_NAME[name].needed(value)
        if any(row.get(other, expected) in {None, BY_NAME[other].values[0]} for other, expected in needed.items()):
            return f"{name} needs {needed}"
    return option_refusal(row)


def option_refusal(row: Row) -> str | None:
    """Return the message with which `taugate calibrate` refuses the options of a row before it reads anything."""
    return _refusal(
        tuple((name, value) for name, value in row.items() if value is not None and BY_NAME[name].kind is Kind.OPTION)
    )


@cache
def _refusal(given: tuple[tuple[str, str], ...]) -> str | None:
    known = {param.name: param for param in command.params}
    values: dict[str, Any] = {}
    for name, value in given:
        param = known[name]
        values[name] = True if name in _FLAGS else param.type(value, param, None)
    own = {"encoder", "dimensions", "query_prompt", "document_prompt", "max_length", "similarity"}
    try:
        CalibrationSettings.from_options({name: value for name, value in values.items() if name not in own})
    except InputError as error:
        return str(error)
    return None
