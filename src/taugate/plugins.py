"""Plug-ins: distributions beside the core that add commands, file formats, engines, pages and more.

What a plug-in adds, it declares as entry points in groups whose names begin with `taugate.` (docs/plugins.md). An entry
point is loaded only by what needs it, so an installed plug-in costs nothing until it is used.
"""

import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal, get_args

from taugate.errors import InputError

Group = Literal["commands", "importers", "engines", "stores", "rerankers", "encoders", "datasets", "pages"]

# The plug-ins of this repository and what they add, so that the message about a missing one can name it.
_OURS: Final[dict[str, dict[Group, tuple[str, ...]]]] = {
    "taugate-import": {"commands": ("import",), "datasets": ("beir", "hf", "ir_datasets", "mteb")},
    "taugate-label": {"commands": ("judge", "queries", "traffic")},
    "taugate-adapt": {"commands": ("adapt",)},
    "taugate-engines": {"commands": ("encode",), "engines": ("milvus", "pgvector"), "stores": ("milvus", "pgvector")},
    "taugate-kernel": {"encoders": ("kernel",)},
    "taugate-playground": {"pages": ("playground",)},
}


def provided(group: Group) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, of all installed plug-ins; nothing is imported."""
    return {point.name: point for point in entry_points(group=f"taugate.{group}")}


def distributions() -> list[str]:
    """Return the names of the core and of all installed plug-ins, which may have extras."""
    groups = get_args(Group)
    return ["taugate", *{point.dist.name for group in groups for point in provided(group).values() if point.dist}]


def distribution(group: Group, name: str) -> str:
    """Return the name of the distribution that has an entry point, which is installed."""
    dist = provided(group)[name].dist
    return dist.name if dist else "taugate"


def load_one(group: Group, name: str) -> Any:  # noqa: ANN401 (the group says what it is)
    """Import what a plug-in adds under a name.

    Raises:
        InputError: If no installed plug-in has it, or the plug-in cannot be imported. A missing package of one of its
            extras is a ModuleNotFoundError, whose message the command line completes.
    """
    point = provided(group).get(name)
    if point is None:
        raise InputError(missing(group, name))
    try:
        return point.load()
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise InputError(f"{_origin(point)} cannot be imported: {error}; install it again, or remove it") from error


def load_all(group: Group) -> Iterator[tuple[str, Any]]:
    """Yield name and object of all entry points of a group; those that cannot be imported are logged and left out."""
    for name, point in provided(group).items():
        try:
            yield name, point.load()
        except Exception as error:  # noqa: BLE001 (the code of others, without which the rest works)
            logging.getLogger(__name__).warning("%s cannot be imported: %s", _origin(point), error)


def _origin(point: EntryPoint) -> str:
    return f"the plug-in {point.dist.name}" if point.dist else f"the plug-in of {point.value}"


def missing(group: Group, name: str) -> str:
    """Return a sentence that says that something is not installed, and what to install."""
    for plugin, added in _OURS.items():
        if name in added.get(group, ()):
            folder = plugin.removeprefix("taugate-")
            return f"{name} is not installed: it is in the plug-in {plugin} (in a clone: pip install plugins/{folder})"
    return f"{name} is not installed; the installed plug-ins have {', '.join(provided(group)) or 'none'}"
