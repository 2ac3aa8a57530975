"""What one run measures, and `taugate queries` as a command."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Two domains: abstracts of medical papers, and paragraphs of an encyclopedia.
SETS = ("pubmedqa_labelled", "squad_v2_dev")


@dataclass(frozen=True)
class QueriesPlan:
    """The plan of one run.

    Attributes:
        data: Folder of the data sets.
        documents: Of each set that the local model is asked about.
        requests: Documents that the endpoint is asked about.
        seed: Of all random choices.
    """

    data: Path
    documents: int
    requests: int
    seed: int

    def copy(self, name: str, work: Path) -> Path:
        """Copy a public data set to a folder that may be written to, and return the copy."""
        return Path(shutil.copytree(self.data / name, work / name))


def command(data: Path, *options: str) -> list[str]:
    """Return the command line of `taugate queries` on a data set."""
    return [sys.executable, "-m", "taugate", "queries", str(data), "--json", *options]


def queries(data: Path, *options: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run `taugate queries` and return what it prints.

    Args:
        environment: Variables beside those of this process.
    """
    words, variables = command(data, *options), {**os.environ, **(environment or {})}
    done = subprocess.run(words, env=variables, stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def written(data: Path) -> list[dict[str, str]]:
    """Return the queries of a data set that a language model wrote."""
    lines = (data / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record.get("origin") == "llm"]
