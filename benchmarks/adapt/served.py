"""A release with an adapted encoder and one with its base, served and asked in turn."""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.adapt.trials import AdaptPlan
from benchmarks.checkout import environment
from benchmarks.markdown import Target, table, targets
from benchmarks.serving.cells import LoadCell, latency, measure, median, rate, ratio
from benchmarks.serving.load import LoadJob
from benchmarks.serving.servers import Server
from benchmarks.serving.services import taugate
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.ingestion.dataset.sample import write_sample

HEADING = "Served"
_ROUNDS, _SECONDS, _CLIENTS = 9, 3.0, 4
_RATIO = 0.98


def section(plan: AdaptPlan) -> str:
    """Adapt the default encoder to the sample, calibrate with both, and let two services take turns.

    Args:
        plan: The seed.
    """
    with tempfile.TemporaryDirectory(prefix="taugate-adapt-") as work:
        folder = Path(work)
        write_sample(folder / "sample")
        adapted = folder / "adapted"
        arguments = ["--to", str(adapted), "--split", "test", "--recipe", "adapter", "--seed", str(plan.seed)]
        _taugate("adapt", str(folder / "sample"), *arguments)
        for name, encoder in (("base", DEFAULT_ENCODER), ("adapted", str(adapted))):
            _taugate(
                "calibrate", str(folder / "sample"), "--releases", str(folder / name), "--encoder", encoder, "--force"
            )
        lines = (folder / "sample" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        before = os.getloadavg()[0]
        cells = _take_turns(folder, texts)
    names = ("base", "adapted")
    figures = [
        [name, f"{median(cells[name], rate):,.0f}", *(f"{median(cells[name], latency(p)):.1f}" for p in (50, 99))]
        for name in names
    ]
    as_fast = ratio(cells["adapted"], cells["base"], rate)
    return f"""\
The sample, {_CLIENTS} clients in a closed loop, no cache, {_ROUNDS} rounds of {_SECONDS:g} s each, in which the two services take turns on the same
machine. Its load average was {before:.1f} when the first round began. Figures are medians, and the ratio is the median of those within a round.

{table(["encoder", "replies/s", "p50 ms", "p99 ms"], figures)}

{targets([Target("replies/s of the adapted release, as a share of its base's", as_fast, at_least=_RATIO)])}"""


def _take_turns(folder: Path, texts: list[str]) -> dict[str, list[LoadCell]]:
    """Load both services, which run side by side, one after the other, in an order that changes every round."""
    services = {name: taugate(folder / name, "float32") for name in ("base", "adapted")}
    cells: dict[str, list[LoadCell]] = defaultdict(list)
    with Server(services["base"]) as base, Server(services["adapted"]) as adapted:
        servers = {"base": base, "adapted": adapted}
        for number in range(-1, _ROUNDS):  # the first round warms up
            for name in sorted(servers, reverse=number % 2 == 0):
                server = servers[name]
                requests = [services[name].request(text) for text in texts]
                job = LoadJob(server.port, list(range(len(texts))), _SECONDS, clients=_CLIENTS)
                cell = measure(server, requests, job)
                if number >= 0:
                    cells[name].append(cell)
    return cells


def _taugate(*arguments: str) -> None:
    """Run the command; an adaptation that is not admitted (4) is written all the same."""
    done = subprocess.run([sys.executable, "-m", "taugate", *arguments], check=False, env=environment())
    if done.returncode not in {0, 4}:
        raise SystemExit(f"taugate {arguments[0]} ended with {done.returncode}")
