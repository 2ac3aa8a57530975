"""Look up known vulnerabilities of every pinned package: `make audit`, or `python -m deploy.requirements.audit`.

It also lists the images that the Dockerfile, docker-compose.yml and the chart take from a registry.

Exit status: 0 if no package has a known vulnerability; 1 if some have, which are listed; 3 if no service has advisories
on all packages, so that nothing is known; else 2 if an image is named without its digest.
pip-audit itself exits with 0 if an index answers but has no advisories.
"""

import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
_NAMES = "service milvus calibration sample sentence-transformers torch gpu mcp build"
FILES = [f"{name}.txt" for name in _NAMES.split()]
SERVICES = {"pypi": "the package index", "osv": "OSV"}  # services of pip-audit; the first needs no further host


# `FROM` names stages, or the argument PYTHON; images of our own are built, not pulled.
_NAMED = re.compile(r"^(?:ARG PYTHON=|\s*image: )(?!taugate/)(?P<image>\S+)", re.MULTILINE)
_NAMING = ["deploy/docker/Dockerfile", "docker-compose.yml", "deploy/compose/milvus.yml"]


def main() -> int:
    """Return the exit status: that of the packages, or if they are well, that of the images."""
    status, images = _packages(), unpinned()
    for image in images:
        sys.stderr.write(
            f"audit: {image} has no digest, which `docker buildx imagetools inspect {image}` prints on a machine that "
            f"reaches its registry; name it {image}@sha256:…\n"
        )
    return status or (2 if images else 0)


def unpinned() -> list[str]:
    """Return the images that a file names by a tag alone. The chart's are those of docker-compose.yml."""
    texts = [(FOLDER.parents[1] / path).read_text(encoding="utf-8") for path in _NAMING]
    return sorted({image for text in texts for image in _NAMED.findall(text) if "@sha256:" not in image})


def _packages() -> int:
    """Return the exit status by the first service that has advisories on every package, or 3."""
    for service, name in SERVICES.items():
        advisories: dict[tuple[str, str], list[dict[str, Any]]] = {}
        failure = next((why for file in FILES if (why := _look_up(service, FOLDER / file, advisories))), None)
        if failure is None:
            return _report(advisories, name)
        sys.stderr.write(f"audit: no answer from {name}: {failure}\n")
    sys.stderr.write("audit: NOT AUDITED: run it on a machine that can reach one of these services\n")
    return 3


def _look_up(service: str, path: Path, advisories: dict[tuple[str, str], list[dict[str, Any]]]) -> str | None:
    """Add the advisories on the packages of a file; returns the reason if the service does not cover all of them."""
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
    advisories |= {(package["name"], package["version"]): package["vulns"] for package in packages}
    return None


def _report(advisories: dict[tuple[str, str], list[dict[str, Any]]], service: str) -> int:
    vulnerable = [(*package, advisory) for package, listed in sorted(advisories.items()) for advisory in listed]
    for name, version, advisory in vulnerable:
        fixed = ", ".join(advisory["fix_versions"]) or "no version"
        sys.stdout.write(f"{name} {version}: {advisory['id']}, fixed in {fixed}\n")
    sys.stdout.write(
        f"audit: {len(advisories)} packages, {len(vulnerable)} known vulnerabilities according to {service}\n"
    )
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
