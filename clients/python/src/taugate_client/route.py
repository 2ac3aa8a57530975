"""How a service is reached: its URL, and the proxy on the way, which errors name."""

import ipaddress
import os
import socket
from dataclasses import dataclass
from urllib.request import getproxies, proxy_bypass

import httpx2

from taugate_client.errors import InvalidConfiguration

_PORTS = {"http": 80, "https": 443}
_PROXY_SCHEMES = {"http", "https", "socks5", "socks5h"}


@dataclass(frozen=True, slots=True)
class Route:
    """The way to a service.

    Attributes:
        url: Of the service.
        proxy: URL of the proxy that is asked, None if the service is reached directly.
        variable: The environment variable that names the proxy.
    """

    url: httpx2.URL
    proxy: str | None = None
    variable: str = ""

    def place(self, path: str) -> str:
        """Return a path's URL and the proxy on the way, for people: without the passwords that either may hold."""
        there = f"{shown(str(self.url)).rstrip('/')}{path}"
        return there if self.proxy is None else f"{there} through the proxy {shown(self.proxy)} of {self.variable}"


def route_to(url: str) -> Route:
    """Find the way to a service, as the environment has it: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.

    A loopback address is reached directly whatever they say: a proxy would look for it on its own machine, and would
    read the query.

    Args:
        url: Of the service.

    Raises:
        InvalidConfiguration: For a URL that nothing can be sent to.
    """
    if not url.startswith(("http://", "https://")):
        raise InvalidConfiguration(f"url: {shown(url)!r} does not begin with http:// or https://")
    parsed = _parsed(url)
    if parsed is None:
        raise InvalidConfiguration(f"url: {shown(url)!r} is no URL of a host")
    proxies = getproxies()
    scheme = next((name for name in (parsed.scheme, "all") if proxies.get(name)), None)
    if scheme is None or is_loopback(parsed.host) or _is_excluded(parsed, proxies.get("no", "")):
        return Route(parsed)
    proxy = proxies[scheme]
    route = Route(parsed, proxy if "://" in proxy else f"http://{proxy}", _variable(scheme))
    place = _parsed(str(route.proxy))
    if place is None or place.scheme not in _PROXY_SCHEMES:
        raise InvalidConfiguration(
            f"cannot ask {route.place('')}: it is not a usable proxy URL; correct the variable, or add the host to "
            "NO_PROXY"
        )
    return route


def _parsed(url: str) -> httpx2.URL | None:
    """Parse a URL; None unless it names a host and, if any, a port that there can be."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        return None
    usable = parsed.host and " " not in url and (parsed.port is None or 0 < parsed.port < 1 << 16)
    return parsed if usable else None


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is one that only this machine has."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(name))  # 127.1, as the system reads it
        except OSError:
            return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def shown(url: str) -> str:
    """Return a URL without the user's name and password."""
    scheme, separator, rest = url.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _is_excluded(url: httpx2.URL, no_proxy: str) -> bool:
    """Return whether NO_PROXY lists a host: by name, domain, address or network, with a port or without."""
    port = url.port or _PORTS[url.scheme]
    if proxy_bypass(f"{url.host}:{port}"):
        return True
    for entry in filter(None, map(str.strip, no_proxy.split(","))):
        if entry == "*" or (entry.startswith("*.") and url.host.lower().endswith(entry[1:].lower())):
            return True
        try:
            if ipaddress.ip_address(url.host) in ipaddress.ip_network(entry.strip("[]"), strict=False):
                return True
        except ValueError:  # a name on either side
            continue
    return False


def _variable(scheme: str) -> str:
    """Name the variable that a proxy comes from, as it is spelt there; the system's settings may have it instead."""
    names = (f"{scheme}_proxy", f"{scheme}_PROXY".upper())
    return next((name for name in names if os.environ.get(name)), "the system's settings")
