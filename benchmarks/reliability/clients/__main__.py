"""Check that usual HTTP clients get answers: `python -m benchmarks.reliability.clients [--root DIR]`.

Java, Go, Node, curl and ab are those of the system (on Debian: default-jdk-headless, golang-go, nodejs, curl,
apache2-utils); one that is not there is skipped, and said so.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.reliability.attacks.setting import prepared

_HERE = Path(__file__).resolve().parent
_COUNT = 100
_BODY = '{"query":"Who is liable for hidden defects when I buy a house?"}'
_SECONDS = 120.0  # Java and Go compile first


@dataclass(frozen=True)
class Client:
    """A kind of HTTP client, run as its own program.

    Attributes:
        program: That it needs.
        answered: Of a URL, a key and a scratch folder, how many of 100 POSTs were answered.
    """

    name: str
    program: str
    answered: Callable[[str, str, Path], int]


def _by_program(*command: str) -> Callable[[str, str, Path], int]:
    """Run a program that prints how many requests were answered."""
    return lambda url, key, _: int(_said([*command, url, key, _BODY, str(_COUNT)]) or 0)


def _curl(*options: str) -> Callable[[str, str, Path], int]:
    def answered(url: str, key: str, folder: Path) -> int:
        headers = ["-H", "Content-Type: application/json", "-H", f"X-API-Key: {key}"]
        command = [
            "curl",
            "-s",
            *options,
            *headers,
            "-d",
            _BODY,
            "-o",
            str(folder / "reply"),
            "-w",
            "%{http_code}",
            url,
        ]
        return sum(_said(command) == "200" and b'"query_id"' in (folder / "reply").read_bytes() for _ in range(_COUNT))

    return answered


def _ab(*options: str) -> Callable[[str, str, Path], int]:
    def answered(url: str, key: str, folder: Path) -> int:
        (folder / "body").write_text(_BODY)
        command = [
            "ab",
            "-q",
            *options,
            "-n",
            str(_COUNT),
            "-c",
            "4",
            "-p",
            str(folder / "body"),
            "-T",
            "application/json",
        ]
        said = _said([*command, "-H", f"X-API-Key: {key}", url])
        whole = int(*re.findall(r"^Complete requests:\s+(\d+)", said, re.MULTILINE))
        refused = sum(map(int, re.findall(r"^(?:Non-2xx responses|Failed requests):\s+(\d+)", said, re.MULTILINE)))
        return whole - refused

    return answered


CLIENTS = [
    Client("Java `HttpClient`", "java", _by_program("java", str(_HERE / "Search.java"))),
    Client("`curl --http2`", "curl", _curl("--http2")),
    Client("`curl`", "curl", _curl()),
    Client("Go `net/http`", "go", _by_program("go", "run", str(_HERE / "search.go"))),
    Client("Node `fetch` and `http`", "node", _by_program("node", str(_HERE / "search.mjs"))),
    Client("`ab` (HTTP/1.0)", "ab", _ab("-l")),  # replies have ids of their own: -l lets lengths differ
    Client("`ab -k` (HTTP/1.0, kept)", "ab", _ab("-l", "-k")),
]


def main() -> None:
    """Ask with each client; the exit status is 1 if a request was not answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--root", type=Path, default=_HERE.parents[2], help="checkout whose service is asked")
    arguments = parser.parse_args()
    rows, missing = [], 0
    with prepared(arguments.root, 0) as setting, setting.service() as server, tempfile.TemporaryDirectory() as folder:
        for client in CLIENTS:
            if shutil.which(client.program) is None:
                rows.append([client.name, f"skipped: {client.program} is not installed"])
                continue
            answered = client.answered(f"http://127.0.0.1:{server.port}/search", setting.keys["good"], Path(folder))
            missing += _COUNT - answered
            rows.append([client.name, f"{answered} of {_COUNT}"])
    print(table(["client", "POSTs answered"], rows))
    sys.exit(1 if missing else 0)


def _said(command: list[str]) -> str:
    """Standard output of a client, whatever its exit status.

    Raises:
        TimeoutExpired: .
    """
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False).stdout.strip()


if __name__ == "__main__":
    main()
