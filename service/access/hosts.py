"""Allowed hosts: the names that requests may use for the service, against DNS rebinding.

A page of evil.example may have its name resolve to 127.0.0.1, after which the browser takes the service for the page's
own server and lets it read replies. Its requests still name evil.example in the header Host.
"""

import ipaddress
from functools import lru_cache

from taugate.service.errors import Forbidden
from taugate.service.settings import Settings

_MAX_SHOWN_CHARS = 100  # of a name that a message repeats
_CACHED_HOSTS = 128  # more names than any deployment has


class AllowedHosts:
    """The names of TAUGATE_ALLOWED_HOSTS. An IP address always passes: DNS cannot give it another meaning."""

    def __init__(self, settings: Settings) -> None:
        """Read the names.

        settings: `allowed_hosts` are names by commas, "*.example.org" for all below one and "*" for any; `host` is
        allowed as well.
        """
        listed = (name.strip().lower() for name in settings.allowed_hosts.split(","))
        names = {settings.host.lower(), *listed} - {""}  # "a,,b" allows no request without a name
        self._allow_any = "*" in names
        self._names = names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._cached_is_allowed = lru_cache(_CACHED_HOSTS)(self._is_allowed)

    def check(self, host: bytes) -> None:
        """Check the header Host of a request.

        host: its value, empty where there is none, as HTTP/1.0 allows and no browser sends. Raises Forbidden for a name
        that is not allowed.
        """
        if not self._allow_any and host and not self._cached_is_allowed(host):
            name = _without_port(host)[:_MAX_SHOWN_CHARS]
            raise Forbidden(f"{name} is not a name of this service: add it to TAUGATE_ALLOWED_HOSTS")

    def _is_allowed(self, host: bytes) -> bool:
        name = _without_port(host)
        return name in self._names or name.endswith(self._suffixes) or _is_address(name)


def _without_port(host: bytes) -> str:
    """Return the name alone: ::1 for `[::1]:8000`, localhost for `LOCALHOST:8000`."""
    name = host.decode("latin-1").lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
