"""Recognize URLs of this machine, which are reached without a proxy."""

import ipaddress
from urllib.parse import urlsplit


def is_on_loopback(url: str) -> bool:
    """Return whether an http:// or https:// URL names a loopback address."""
    # A proxy would resolve the address to its own machine and could read the request.
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return bool((getattr(address, "ipv4_mapped", None) or address).is_loopback)
