"""Where keys come from: the file of TAUGATE_KEYS_FILE, and TAUGATE_KEYS."""

import ipaddress
from pathlib import Path

from taugate.errors import InputError
from taugate.service.access.keys import Key, keys_of, parse_entries
from taugate.service.settings import Settings

Mark = tuple[int, int, int]  # changes when a file does: a new one in its place has another inode
_VARIABLE = "TAUGATE_KEYS"


def configured(settings: Settings) -> bool:
    """Whether keys are asked for, even where there are none yet."""
    return settings.keys_file is not None or settings.keys is not None


def read_keys(settings: Settings) -> tuple[Key, ...]:
    """Keys of both places. Raises InputError, which names the place and the entry."""
    entries, places = [], []
    if settings.keys_file is not None:
        places.append(str(settings.keys_file))
        entries += parse_entries(_content(settings.keys_file), places[-1])
    if settings.keys is not None:
        places.append(_VARIABLE)
        entries += parse_entries(settings.keys.get_secret_value().encode(), places[-1])
    return keys_of(entries, " and ".join(places))


def mark(path: Path) -> Mark | None:
    """What tells whether the file changed; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def check(settings: Settings) -> None:
    """What has to be so before anything listens.

    Raises InputError for keys that cannot be read, and for an address that others reach without keys in force.
    """
    if configured(settings):
        read_keys(settings)
    elif not (settings.allow_anyone or _is_loopback(settings.host)):
        raise InputError(
            f"other machines reach {settings.host or 'all addresses'}, and there are no keys: name a file of them with "
            "TAUGATE_KEYS_FILE (`taugate key new` makes one), or let anyone in with TAUGATE_ALLOW_ANYONE=true"
        )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; TAUGATE_KEYS_FILE has to name a file of keys, as `taugate key new` makes one"
        ) from error


def _is_loopback(host: str) -> bool:
    """A name other than localhost may stand for any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
