"""Which URLs are of this machine, and are therefore reached without a proxy."""

import ipaddress
from urllib.parse import urlsplit


def is_on_loopback(url: str) -> bool:
    """Return whether a URL names a loopback address.

    A proxy would look for it on its own machine, and would read what is sent.

    Args:
        url: Http:// or https://.
    """
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return bool((getattr(address, "ipv4_mapped", None) or address).is_loopback)
