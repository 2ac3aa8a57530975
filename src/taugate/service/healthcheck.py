"""`python -m taugate.service.healthcheck` checks whether the service in this container is ready.

Container images have no curl. Only the standard library is imported, so that a check takes a few hundredths of a
second.
"""

import http.client
import os
import sys

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (addresses to listen on, not to connect to)
_TIMEOUT_SECONDS = 3  # less than the timeout of the image's health check, so that the reason is shown


def main() -> int:
    """Return 0 if /readyz is 200, else 1. The reason is written to stdout, which `docker inspect` shows."""
    host = os.environ.get("TAUGATE_HOST", "127.0.0.1")
    port = int(os.environ.get("TAUGATE_PORT", "8000"))
    connection = http.client.HTTPConnection(_LOOPBACK.get(host, host), port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/readyz")
        reply = connection.getresponse()
        sys.stdout.write(reply.read(2048).decode(errors="replace") + "\n")
        return 0 if reply.status == http.client.OK else 1
    except (OSError, http.client.HTTPException) as error:
        sys.stdout.write(f"{host} port {port}: {error}\n")
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
