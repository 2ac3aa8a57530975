"""The type of values that JSON has: of files, requests and replies whose content is checked after it was parsed."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
