"""Test whether reply times tell a filtered key about documents outside its filter, or about other keys' queries."""

import http.client
import json
import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wilcoxon

from benchmarks.drift.traffic import released
from benchmarks.markdown import Target, table, targets
from benchmarks.reliability.plan import ReliabilityPlan
from benchmarks.serving.client import HOST
from benchmarks.serving.servers import Server
from benchmarks.serving.services import ServiceUnderTest, taugate
from taugate.service.access.authorization import digest

HEADING = "What the time of a reply tells a key with a filter"
_SET = "squad_v2_dev"
_SHARES = {"seen": 0.5, "hidden": 0.25, None: 0.25}  # of the passages; those of None are in no release
_WARM = 200  # queries before the first that counts
_SEEN, _ALL = "key-seen", "key-all"
_PLANTED = Path(__file__).resolve().parent / "planted.py"
_DELAY = 200  # microseconds that are planted
_AGAIN = 7  # times that a question is asked again, each with a threshold of its own, so that no reply is known
_LEVEL, _TRIALS = 0.01, 400
_DELAYS = (10, 20, 50, 100, 200, 500)

Pairs = list[tuple[str, str]]  # texts of about the same length
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Questions:
    """Texts of answerable questions by where their passage is, and the data set with the passages that are anywhere."""

    data: Path
    by_owner: dict[str | None, list[str]]

    def pairs(self, most: int, rng: Random) -> Pairs:
        """Pair a query about a hidden passage with one about a passage that does not exist, of as many words and characters."""
        alike: dict[tuple[int, int], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for side, owner in enumerate(("hidden", None)):
            for text in self.by_owner[owner]:
                alike[len(text.split()), len(text) // 10][side].append(text)
        found = [pair for sides in alike.values() for pair in zip(*sides, strict=False)]
        rng.shuffle(found)
        return found[:most]


def section(plan: ReliabilityPlan) -> str:
    """Compare reply times between groups that must look alike."""
    questions = _divided(plan)
    released(plan.work, questions.data.name, plan.work / "releases")
    service = _service(plan.work / "releases" / questions.data.name)
    pairs = questions.pairs(plan.pairs, Random(plan.seed))  # noqa: S311 (no secret)
    others = [one for one, _ in pairs]
    about = _measured(service, pairs, plan.seed)
    asked = _measured(service, pairs, plan.seed, others)
    delayed = _measured(_planted(service, PLANTED_DELAY=str(_DELAY)), pairs, plan.seed)
    shared = _measured(_planted(service, PLANTED_CACHE="1"), pairs, plan.seed, others)
    rows = [
        _row("its passage is hidden", "it is in no release", about),
        _row("a key that sees all has asked the same", "nobody has", asked),
        _row(f"hidden, and {_DELAY} µs planted in the search", "it is in no release", delayed),
        _row("asked by another key, and vectors of all keys planted in one cache", "nobody has", shared),
    ]
    wanted = [
        Target("p of a hidden passage", _p(about), at_least=_LEVEL),
        Target("p of what another key asked", _p(asked), at_least=_LEVEL),
        Target(f"p of {_DELAY} µs planted", _p(delayed), at_most=_LEVEL),
        Target("p of the planted cache", _p(shared), at_most=_LEVEL),
    ]
    return f"""\
Can the time of a reply tell a key about documents outside its filter? At random, half of the passages of {_SET} belong to the key's filter, a
quarter to others, and a quarter to no release. So questions about the last two differ in nothing else. One client asks them in pairs of
equal length, in random order.

To learn what another key has asked, an attacker would time the first reply. To find hidden passages, an attacker would time the least
work: here the fastest of {_AGAIN} replies to the same question with other thresholds, which is not encoded again. p is that of Wilcoxon's
signed-rank test of the differences. If the service treats both questions alike, they can be exchanged.

{table(["one of a pair", "the other", "pairs", "p50 ms", "median difference, µs (95 %)", "p"], rows)}

If the search for hidden passages took longer, the test would find it at p < {_LEVEL} this often, with as many pairs and the measured noise:

{table(["µs", *map(str, _DELAYS)], [["found", *(f"{_power(about, delay, plan.seed):.0%}" for delay in _DELAYS)]])}

{targets(wanted)}
"""


def _divided(plan: ReliabilityPlan) -> Questions:
    """The data set, each of its passages with one owner or left out."""
    rng, source, folder = Random(plan.seed), plan.data / _SET, plan.work / "divided"  # noqa: S311 (no secret)
    (folder / "qrels").mkdir(parents=True)
    owners: dict[str, str | None] = {}
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus:
        for record in map(json.loads, (source / "corpus.jsonl").open(encoding="utf-8")):
            (owner,) = rng.choices([*_SHARES], [*_SHARES.values()])
            owners[record["_id"]] = owner
            if owner is not None:
                corpus.write(json.dumps(record | {"metadata": {"tenant": owner}}) + "\n")
    header, *judged = (source / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    lines = [line.split("\t") for line in judged]
    kept = [line for line in lines if owners[line[1]] is not None]
    (folder / "qrels" / "test.tsv").write_text("\n".join([header, *map("\t".join, kept)]) + "\n", encoding="utf-8")
    texts = {row["_id"]: row["text"] for row in map(json.loads, (source / "queries.jsonl").open(encoding="utf-8"))}
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as queries:
        queries.writelines(json.dumps({"_id": each, "text": texts[each]}) + "\n" for each in {line[0] for line in kept})
    by_owner: dict[str | None, list[str]] = {owner: [] for owner in _SHARES}
    seen: set[str] = set()
    for query, passage, score in lines:
        if int(score) > 0 and texts[query] not in seen:
            seen.add(texts[query])
            by_owner[owners[passage]].append(texts[query])
    return Questions(folder, by_owner)


def _service(releases: Path) -> ServiceUnderTest:
    entries = [
        {"name": "seen", "scopes": ["search"], "filter": {"tenant": "seen"}} | _hashed(_SEEN),
        {"name": "all", "scopes": ["search"]} | _hashed(_ALL),
    ]
    plain = taugate(releases, "float32", cache=True)
    keys = {"TAUGATE_KEYS": json.dumps(entries), "TAUGATE_ENCODER_THREADS": "1"}
    return replace(plain, environment=plain.environment | keys, headers=_bearer(_ALL))


def _planted(service: ServiceUnderTest, **environment: str) -> ServiceUnderTest:
    """Measure the service with a planted fault, which has to be found."""

    def command(port: int) -> list[str]:
        served = service.command(port)
        return [sys.executable, str(_PLANTED), *served[served.index("serve") :]]

    return replace(service, command=command, environment=service.environment | environment)


def _measured(service: ServiceUnderTest, pairs: Pairs, seed: int, others: Sequence[str] = ()) -> Floats:
    """Milliseconds of both of each pair, (n, 2), asked with the key that has a filter."""
    rng = Random(seed)  # noqa: S311 (no secret)
    milliseconds = np.empty((len(pairs), 2))
    with Server(service) as server:
        connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
        for number in range(_WARM):
            _ask(connection, _SEEN, f"{pairs[number % len(pairs)][0]} {secrets.token_hex(4)}")
        for text in others:
            _ask(connection, _ALL, text)
        for row in rng.sample(range(len(pairs)), len(pairs)):
            for side in rng.sample((0, 1), 2):
                seconds = _ask(connection, _SEEN, pairs[row][side])
                if not others:
                    tried = (_ask(connection, _SEEN, pairs[row][side], number / 100) for number in range(_AGAIN))
                    seconds = min(tried)
                milliseconds[row, side] = 1000 * seconds
        connection.close()
    return milliseconds


def _ask(connection: http.client.HTTPConnection, key: str, text: str, threshold: float | None = None) -> float:
    """Return the seconds until the whole reply has arrived."""
    body = json.dumps({"query": text, "threshold": threshold})
    headers = {"Content-Type": "application/json"} | _bearer(key)
    began = time.perf_counter()
    connection.request("POST", "/search", body, headers)
    reply = connection.getresponse()
    content = reply.read()
    seconds = time.perf_counter() - began
    if reply.status != 200:
        raise ValueError(f"{reply.status} {content[:300]!r}")
    return seconds


def _row(one: str, other: str, milliseconds: Floats) -> list[str]:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(milliseconds), (1000, len(milliseconds)))
    differences = 1000 * (milliseconds[:, 0] - milliseconds[:, 1])
    low, high = np.percentile(np.median(differences[rows], axis=1), [2.5, 97.5])
    middle = f"{np.median(differences):,.0f} ({low:,.0f} to {high:,.0f})"
    return [one, other, str(len(milliseconds)), f"{np.median(milliseconds):.2f}", middle, f"{_p(milliseconds):.2g}"]


def _p(milliseconds: Floats) -> float:
    return float(wilcoxon(milliseconds[:, 0], milliseconds[:, 1]).pvalue)


def _power(milliseconds: Floats, microseconds: float, seed: int) -> float:
    """Estimate how often so small a difference is found, with random signs of the measured differences."""
    rng = np.random.default_rng(seed)
    differences = milliseconds[:, 0] - milliseconds[:, 1]
    signs = rng.choice([-1.0, 1.0], (_TRIALS, len(differences)))
    return float(np.mean([wilcoxon(sign * differences + microseconds / 1000).pvalue < _LEVEL for sign in signs]))


def _hashed(key: str) -> dict[str, str]:
    return {"sha256": digest(key.encode()).hex()}


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
