"""Under which names the service may be asked: what a page in a browser cannot get around by DNS rebinding.

A page of evil.example may have its name resolve to 127.0.0.1, after which the browser takes the service for the page's
own server and lets it read replies. Its requests still name evil.example in the header Host.
"""

import ipaddress
from functools import lru_cache

from starlette.types import Scope

from taugate.service.errors import Forbidden
from taugate.service.settings import Settings

_LONGEST_NAME = 100  # of what a message repeats
_REMEMBERED = 128  # more than any deployment has names


class Hosts:
    """The names of TAUGATE_ALLOWED_HOSTS. An IP address passes too: no DNS has given it another meaning."""

    def __init__(self, settings: Settings) -> None:
        listed = (name.strip().lower() for name in settings.access.allowed_hosts.split(","))
        names = {settings.listen.host.lower(), *listed} - {""}  # "a,,b" allows no request without a name
        self._any = "*" in names
        self._known = names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._passes = lru_cache(_REMEMBERED)(self._is_allowed)

    def check(self, scope: Scope) -> None:
        """Raises Forbidden for a name that is not one of them. HTTP/1.0 may name none, which no browser speaks."""
        host = dict(scope["headers"]).get(b"host", b"")
        if not self._any and host and not self._passes(host):
            name = _without_port(host)[:_LONGEST_NAME]
            raise Forbidden(f"{name} is not a name of this service: add it to TAUGATE_ALLOWED_HOSTS")

    def _is_allowed(self, host: bytes) -> bool:
        name = _without_port(host)
        return name in self._known or name.endswith(self._suffixes) or _is_address(name)


def _without_port(host: bytes) -> str:
    """`[::1]:8000` is ::1, `LOCALHOST:8000` localhost."""
    name = host.decode("latin-1").lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0].rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
