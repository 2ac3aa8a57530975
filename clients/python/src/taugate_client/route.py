"""The route to a service: its URL, and the proxy in between, both of which errors name."""

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
    """The route to a service.

    Attributes:
        url: URL of the service.
        proxy: URL of the proxy, None if the service is reached directly.
        variable: Environment variable that names the proxy.
    """

    url: httpx2.URL
    proxy: str | None = None
    variable: str = ""

    def place(self, path: str) -> str:
        """Return the URL of a path, and the proxy, for messages. Passwords are omitted."""
        target = f"{shown(str(self.url)).rstrip('/')}{path}"
        return target if self.proxy is None else f"{target} through the proxy {shown(self.proxy)} of {self.variable}"


def route_to(url: str) -> Route:
    """Return the route to a service, according to HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.

    A loopback address is always reached directly: a proxy would look for it on its own machine, and could read the
    query.

    Args:
        url: URL of the service.

    Raises:
        InvalidConfiguration: If the URL or the proxy cannot be used.
    """
    if not url.startswith(("http://", "https://")):
        raise InvalidConfiguration(f"url: {shown(url)!r} does not begin with http:// or https://")
    parsed = _parsed(url)
    if parsed is None:
        raise InvalidConfiguration(f"url: {shown(url)!r} is not a valid URL of a host")
    proxies = getproxies()
    scheme = next((name for name in (parsed.scheme, "all") if proxies.get(name)), None)
    if scheme is None or is_loopback(parsed.host) or _is_excluded(parsed, proxies.get("no", "")):
        return Route(parsed)
    proxy = proxies[scheme]
    route = Route(parsed, proxy if "://" in proxy else f"http://{proxy}", _variable(scheme))
    place = _parsed(str(route.proxy))
    if place is None or place.scheme not in _PROXY_SCHEMES:
        raise InvalidConfiguration(
            f"cannot connect to {route.place('')}: it is not a usable proxy URL; correct the variable, or add the host "
            "to NO_PROXY"
        )
    return route


def _parsed(url: str) -> httpx2.URL | None:
    """Parse a URL; return None if it lacks a host or has an invalid port."""
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        return None
    usable = parsed.host and " " not in url and (parsed.port is None or 0 < parsed.port < 1 << 16)
    return parsed if usable else None


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is a loopback one."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        try:
            address = ipaddress.ip_address(socket.inet_aton(name))  # 127.1 and similar, as the system reads them
        except OSError:
            return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def shown(url: str) -> str:
    """Return a URL without the user's name and password."""
    scheme, separator, remainder = url.rpartition("://")
    authority, slash, path = remainder.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _is_excluded(url: httpx2.URL, no_proxy: str) -> bool:
    """Return whether NO_PROXY lists a host by name, domain, address or network, with or without a port."""
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
    """Return the name of the variable that a proxy comes from, or "the system's settings"."""
    names = (f"{scheme}_proxy", f"{scheme}_PROXY".upper())
    return next((name for name in names if os.environ.get(name)), "the system's settings")
