"""`python -m taugate.service.process.healthcheck` checks whether the service of this container is ready.

An image has no curl. It imports nothing but the standard library, so that a check takes a few hundredths of a second.
"""

import http.client
import os
import sys

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (addresses to listen on; nobody can connect to them)
_TIMEOUT_SECONDS = 3  # less than the image's own, so that the reason is shown


def main() -> int:
    """Return 0 when /readyz is 200, else 1, and write the reason to stdout, which `docker inspect` shows."""
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
