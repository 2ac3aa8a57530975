"""How many files a process may open, of which connections are most."""

import contextlib
import sys

_OTHERS = 256  # the release, logs, Redis, the listening socket, and what a library opens for a moment


def raise_limit() -> None:
    """Allow as many as the system lets this process have: the soft limit is often 1,024, for the sake of select()."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS says "unlimited" and takes less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_that_fit(wanted: int) -> int:
    """So many connections, or as many as files are left for."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - _OTHERS))
