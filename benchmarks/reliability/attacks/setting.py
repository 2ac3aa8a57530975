"""The setting of an attack: a service of a checkout, API keys, and the row of its result."""

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.checkout import environment, python_path, quickstart
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate
from taugate.release.layout import CURRENT, MANIFEST

_START_SECONDS = 60.0  # a service starts within two


@dataclass(frozen=True)
class AttackResult:
    """One line of the table: the attack, what was measured, its limit, and whether the service held."""

    attack: str
    measured: str
    limit: str
    held: bool


@dataclass(frozen=True)
class AttackSetting:
    """A checkout under attack, with releases and keys of its own.

    Attributes:
        root: The checkout that is attacked.
        releases: A releases directory made by it.
        size: Distinct queries to ask.
        keys: Secrets by name. `good` is the client that must not be disturbed, `other` the key of another client, `slow`
            one with a rate of one query a second, `admin` and `metrics` have these scopes.
    """

    root: Path
    releases: Path
    size: int
    keys: dict[str, str] = field(default_factory=lambda: {name: secrets.token_urlsafe(32) for name in _SCOPES})

    @contextmanager
    def service(
        self,
        *arguments: str,
        keys: bool = True,
        wrap: Callable[[list[str]], list[str]] = list,
        patience: float = _START_SECONDS,
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[Server]:
        """Run the checkout's service until the block ends."""
        plain = taugate(self.releases, "float32", cache=True)
        variables = {
            "PYTHONPATH": python_path(self.root),
            "TAUGATE_DRAIN_SECONDS": "0",
            **{f"TAUGATE_{name}": value for name, value in (settings or {}).items()},
        }
        headers = {"X-API-Key": self.keys["good"]} if keys else {}
        if keys:
            variables["TAUGATE_KEYS"] = self.key_file()
        service = replace(
            plain,
            command=lambda port: wrap([*plain.command(port), *arguments]),
            environment=variables,
            folder=self.root,
            headers=headers,
        )
        with Server(service, patience=patience) as server:
            yield server

    def another_release(self, number: int = 1) -> str:
        """Add a copy of the current release, of another time: an id is the time and the digest of the content."""
        source = self.releases / (self.releases / CURRENT).read_text().strip()
        name = f"20200101T{number:06d}Z-{source.name.split('-')[1]}"
        shutil.copytree(source, self.releases / name, copy_function=os.link)
        manifest = self.releases / name / MANIFEST
        renamed = manifest.read_bytes().replace(source.name.encode(), name.encode())
        manifest.unlink()  # the other name of the source's own
        manifest.write_bytes(renamed)
        return name

    def key_file(self) -> str:
        """Return the list of all keys, as TAUGATE_KEYS takes it."""
        return json.dumps(
            [
                {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **_SCOPES[name]}
                for name, key in self.keys.items()
            ]
        )

    def run(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command of the checkout's own taugate."""
        return subprocess.Popen(
            [sys.executable, "-m", "taugate", *arguments],
            cwd=self.root,
            env=environment(self.root),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


_SCOPES: dict[str, dict[str, object]] = {
    "good": {"scopes": ["search", "feedback"]},
    "other": {"scopes": ["search", "feedback"]},
    "slow": {"scopes": ["search"], "queries_per_second": 1},
    "admin": {"scopes": ["admin"]},
    "metrics": {"scopes": ["metrics"]},
}


@contextmanager
def prepared(root: Path, size: int, releases: Path | None = None) -> Iterator[AttackSetting]:
    """Prepare a checkout for attacks; without releases, with that of its quickstart."""
    with tempfile.TemporaryDirectory(prefix="taugate-attacks-") as folder:
        if releases is None:
            releases = quickstart(Path(folder), root.resolve())
        yield AttackSetting(root.resolve(), releases.resolve(), size)
