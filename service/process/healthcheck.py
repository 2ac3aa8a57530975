"""`python -m taugate.service.process.healthcheck`: whether the service of this container is ready.

An image has no curl. Imports nothing but the standard library, so that asking takes a few hundredths of a second.
"""

import http.client
import os
import sys

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (addresses to listen on, that nobody can connect to)
_SECONDS = 3  # less than the image's own patience, so that what is wrong is said


def main() -> int:
    """0 when /readyz is 200, else 1 and the reason on stdout, which `docker inspect` shows."""
    host = os.environ.get("TAUGATE_HOST", "127.0.0.1")
    port = int(os.environ.get("TAUGATE_PORT", "8000"))
    connection = http.client.HTTPConnection(_ANY.get(host, host), port, timeout=_SECONDS)
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
