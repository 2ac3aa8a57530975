"""Run schemathesis against a service, and parse its report."""

import os
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import orjson

from taugate.service.settings import DIALECTS

ROOT = Path(__file__).parents[3]
KEY = "the-key-of-the-contract"
# All but those about objects that are created and deleted, of which this API has none.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
    "documented_error",
)


@dataclass(frozen=True)
class Conformance:
    """cases: requests that were checked, `failing` of them outside the contract; report: what schemathesis printed."""

    cases: int
    failing: int
    errors: int
    phases: dict[str, str]
    seconds: float
    report: str

    @property
    def clean(self) -> bool:
        """Nothing found, and nothing that kept it from looking."""
        return not self.failing and not self.errors and {*self.phases.values()} <= {"success"}


def with_keys() -> dict[str, str]:
    """Environment of a service that lets in nobody but schemathesis, which sends KEY unless it tries without.

    The service has every route that it may have: playground and dialects are on.
    """
    hashed = sha256(KEY.encode()).hexdigest()
    scopes = ["search", "feedback", "metrics", "admin"]
    keys = orjson.dumps([{"name": "contract", "sha256": hashed, "scopes": scopes}]).decode()
    return {"TAUGATE_KEYS": keys, "TAUGATE_DIALECTS": ",".join(DIALECTS), "TAUGATE_PLAYGROUND": "on"}


def conformance(url: str, work: Path, examples: int, seed: int, *options: str) -> Conformance:
    """Check a service against its own /openapi.json.

    The same seed sends the same requests, but for ids that the service gave before.

    Args:
        work: An empty folder.
        examples: Of each operation and phase.
    """
    report = work / "report.json"
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--no-color"]
    command += ["--checks", ",".join(CHECKS), "--max-examples", str(examples), "--seed", str(seed)]
    command += ["--continue-on-failure", "--no-shrink", "--generation-database", "none", "--warnings", "off"]
    command += ["--report", "json", "--report-json-path", str(report), "--request-timeout", "60", *options]
    command += ["--header", f"Authorization: Bearer {KEY}"]
    environment = os.environ | {"SCHEMATHESIS_HOOKS": "tests.service.contract.hooks", "PYTHONPATH": str(ROOT)}
    environment |= {"PYTHONHASHSEED": "0"}  # its order of drawing follows that of sets
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if not report.exists():
        raise RuntimeError(f"schemathesis ended with {done.returncode}: {said}")
    found = orjson.loads(report.read_bytes())
    cases = found["test_cases"]
    phases = {name: phase["status"] for name, phase in found["phases"].items()}
    errors = cases["errored"] + len(found["errors"])
    return Conformance(cases["generated"], cases["with_failures"], errors, phases, found["running_time"], said)
