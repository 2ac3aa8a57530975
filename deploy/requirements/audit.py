"""Ask an advisory service about every pinned package: `make audit`, or `python -m deploy.requirements.audit`.

Exit status: 0 none of them has a known vulnerability; 1 some have, and are listed; 3 no service could be asked about
all of them, which says nothing about any. pip-audit itself ends with 0 where an index answers, but has no advisories.
"""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
FILES = ["service.txt", "milvus.txt", "calibration.txt", "torch.txt", "gpu.txt", "mcp.txt", "build.txt"]
SERVICES = {"pypi": "the package index", "osv": "OSV"}  # those that pip-audit knows; the first needs no further host


def main() -> int:
    """The status of the first service that answers for every package, or 3."""
    for service, name in SERVICES.items():
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        failure = next((why for file in FILES if (why := _ask(service, FOLDER / file, found))), None)
        if failure is None:
            return _say(found, name)
        sys.stderr.write(f"audit: {name} could not be asked: {failure}\n")
    sys.stderr.write("audit: NOT AUDITED: run it where one of these services can be reached\n")
    return 3


def _ask(service: str, path: Path, found: dict[tuple[str, str], list[dict[str, Any]]]) -> str | None:
    """Put what a service knows of a file's packages into `found`; the reason where it does not know all of them."""
    pip_audit = [f"{sysconfig.get_path('scripts')}/pip-audit", "--vulnerability-service", service, "--format", "json"]
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--requirement", str(path)]
    done = subprocess.run([*pip_audit, *options], capture_output=True, text=True, check=False)  # noqa: S603
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        return (done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode}"])[-1]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped:
        return (
            f"it has no advisories on {len(skipped)} of {len(packages)} packages of {path.name}, such as {skipped[0]}"
        )
    found |= {(package["name"], package["version"]): package["vulns"] for package in packages}
    return None


def _say(found: dict[tuple[str, str], list[dict[str, Any]]], service: str) -> int:
    hit = [(name, version, each) for (name, version), known in sorted(found.items()) for each in known]
    for name, version, each in hit:
        fixed = ", ".join(each["fix_versions"]) or "no version"
        sys.stdout.write(f"{name} {version}: {each['id']}, fixed in {fixed}\n")
    sys.stdout.write(f"audit: {len(found)} packages, {len(hit)} known vulnerabilities, says {service}\n")
    return 1 if hit else 0


if __name__ == "__main__":
    sys.exit(main())
