"""HTTP/1.1 conformance by h1spec (https://github.com/uNetworking/h1spec), which others wrote.

`python -m benchmarks.reliability.conformance H1SPEC [--root DIR]`; H1SPEC is a clone of it. It runs on Deno, which npm
installs (`npm install deno`). h1spec asks for `/` of a server that echoes; this service has no such path, so that 404 is
how it answers a request that it accepts, and never how it refuses one.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.reliability.attacks.setting import prepared

_SECONDS = 60.0
_LINE = re.compile(r"^\S+ (.+): Response Status Code (\d+), Expected ranges: (.+)$", re.MULTILINE)
_WAITED = re.compile(r"^\S+ (.+): (Server waited successfully|Read operation timed out)$", re.MULTILINE)
_HOSTS = "example.com,example.org,localhost,127.0.0.1"


def main() -> None:
    """Run it and print each case; the exit status is 1 where one is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("h1spec", type=Path, help="clone of h1spec")
    parser.add_argument("--deno", default=shutil.which("deno") or "deno", help="the program deno")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="checkout to ask")
    arguments = parser.parse_args()
    if shutil.which(arguments.deno) is None:
        sys.exit("skipped: deno is not installed; `npm install deno`, and name its program by --deno")
    with prepared(arguments.root, 0) as setting, setting.service(settings={"ALLOWED_HOSTS": _HOSTS}) as server:
        command = [arguments.deno, "run", "--no-check", "--allow-net", str(arguments.h1spec / "http_test.ts")]
        run = subprocess.run(
            [*command, "127.0.0.1", str(server.port)], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    found = cases(run.stdout + run.stderr)
    rows = [
        [case, told, "as it should be" if right else "**not as it should be**"] for case, (told, right) in found.items()
    ]
    print(table(["case", "answer", ""], rows))
    right = sum(right for _, right in found.values())
    print(f"\n{right} of {len(found)}")
    sys.exit(0 if found and right == len(found) else 1)


def cases(said: str) -> dict[str, tuple[str, bool]]:
    """Parse the answer of each case, and whether it is right for a service that has no path `/`."""
    found = {name: (told.lower(), told.startswith("Server waited")) for name, told in _WAITED.findall(said)}
    for name, status, ranges in _LINE.findall(said):
        wanted, is_accepted = json.loads(ranges), int(status) == 404
        accepts = any(low <= 200 <= high for low, high in wanted)
        refused = any(low <= int(status) <= high for low, high in wanted)
        found[name] = (status, accepts if is_accepted else refused)
    return found


if __name__ == "__main__":
    main()
