"""One row: a calibration, its service, newer data, and the same calibration elsewhere."""

import json
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from threadpoolctl import threadpool_limits

from tests.pairs.calibrated import WRITTEN, Ended, calibrate, command, dropped_in_silence, explains
from tests.pairs.data import CHANGES, Workshop, changed, lines
from tests.pairs.factors import BY_NAME, DEFAULTS, Kind, Row
from tests.pairs.served import Served
from tests.pairs.settings import refusal


@dataclass
class Outcome:
    """What came of a row.

    Attributes:
        row: The row.
        code: Exit code of the calibration.
        conflict: The values of the row without which it is not refused; empty if it ran.
        message: The last line of a refusal.
        problems: What is wrong.
        seconds: Processor time.
    """

    row: Row
    code: int | None = None
    conflict: Row = field(default_factory=dict)
    message: str = ""
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def run_row(number: int, row: Row, shop: Workshop, folder: Path) -> Outcome:
    """Run a row in an empty folder."""
    began, outcome = time.process_time(), Outcome(row)
    try:
        with patch.dict(os.environ, TAUGATE_RERANK_URL=shop.reranker.url):
            _run(number, outcome, shop, folder)
    except Exception as error:  # noqa: BLE001 (the other rows are tried all the same)
        outcome.problems.append(f"{type(error).__name__}: {error}")
    finally:
        outcome.seconds = time.process_time() - began
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _run(number: int, outcome: Outcome, shop: Workshop, folder: Path) -> None:
    row, problems = outcome.row, outcome.problems
    data, releases = shop.data(row), folder / "releases"
    ended = calibrate(row, shop, releases, data)
    outcome.code, outcome.message = ended.code, ended.last
    if ended.code is None:
        problems.append(f"traceback: {ended.last}")
        return
    if ended.code not in WRITTEN:
        outcome.conflict = _conflict(row, shop, data, folder, ended)
        named = explains(ended, row)
        if ended.code != 2 or not any(name in named for name in outcome.conflict):
            problems.append(f"exit {ended.code}, which names no option of {outcome.conflict}: {ended.last}")
        if len([*outcome.conflict]) < 2 and not any(BY_NAME[name].needs for name in outcome.conflict):
            problems.append(f"{outcome.conflict} is refused alone: {ended.last}")
        if releases.exists() and [path for path in releases.iterdir() if path.is_dir()]:
            problems.append(f"something is written after exit {ended.code}")
        return
    release, manifest = json.loads(ended.out)["release"], json.loads(ended.out)["manifest"]
    problems += dropped_in_silence(row, manifest, ended.error)
    problems += _screens(release, manifest, releases)
    if not (releases / "current").exists():
        command("release", "promote", release, "--releases", str(releases), "--force")
    served = Served(row, shop, releases, data, problems)
    served.check()
    if served.log.exists():
        problems += _learned(served, folder)
    if number % 3 == 0:
        problems += _elsewhere(row, shop, data, release, folder)
    _changed(number, row, shop, folder, served)


def _conflict(row: Row, shop: Workshop, data: Path, folder: Path, ended: Ended) -> Row:
    """Return the values of a refused row that are refused without the others."""
    left = {name: value for name, value in row.items() if value != DEFAULTS[name]}
    for name in [*left]:
        tried = DEFAULTS | {other: value for other, value in left.items() if other != name}
        if refusal(tried) is not None or BY_NAME[name].kind in {Kind.SETTING, Kind.REQUEST}:
            left = left if refusal(tried) else {n: v for n, v in left.items() if n != name}
            continue
        again = calibrate(tried, shop, folder / f"without {name}", shop.data(tried))
        if again.code == ended.code and again.last.split(":")[1:2] == ended.last.split(":")[1:2]:
            del left[name]
    return left


def _screens(release: str, manifest: dict[str, object], releases: Path) -> list[str]:
    """The list and `show` say what the manifest says."""
    listed = json.loads(command("release", "list", "--releases", str(releases), "--json").out)["releases"]
    policy = manifest["policy"]
    assert isinstance(policy, dict)
    mine = next(each for each in listed if each["release"] == release)
    pairs = {"tau": policy.get("tau"), "policy": policy["kind"], "k": policy["k"], "summary": manifest.get("summary")}
    return [f"release list has another {name}" for name, value in pairs.items() if mine.get(name) != value]


def _elsewhere(row: Row, shop: Workshop, data: Path, release: str, folder: Path) -> list[str]:
    """The digest depends on no order, locale, number of threads or folder."""
    copy = shutil.copytree(data, folder / "a copy of the data" / data.name)
    place = folder / "elsewhere"
    place.mkdir()
    with patch.dict(os.environ, LC_ALL="tr_TR.UTF-8", TZ="Asia/Tokyo", OMP_NUM_THREADS="2"), threadpool_limits(2):
        again = calibrate(row, shop, place / "releases", copy, turned=True)
    if again.code not in WRITTEN:
        return [f"elsewhere: exit {again.code}: {again.last}"]
    digests = [name.rpartition("-")[2] for name in (release, json.loads(again.out)["release"])]
    return [f"another digest elsewhere: {' ≠ '.join(digests)}"] if len({*digests}) > 1 else []


def _learned(served: Served, folder: Path) -> list[str]:
    """Judged replies that cannot be compared make no query unanswerable."""
    target = shutil.copytree(served.data, folder / "traffic" / served.data.name)
    (target / "qrels" / "traffic.tsv").unlink()
    ended = command("traffic", str(served.log), "--to", str(target))
    if ended.code is None:
        return [f"taugate traffic: traceback: {ended.last}"]
    if not (target / "qrels" / "traffic.tsv").exists():
        return []
    texts = {row["_id"]: row["text"].strip() for row in lines(target / "queries.jsonl")}
    scores: dict[str, list[int]] = {}
    for line in (target / "qrels" / "traffic.tsv").read_text("utf-8").splitlines()[1:]:
        query, _, score = line.split("\t")[:3]  # and propensities
        scores.setdefault(texts[query], []).append(int(score))
    wrong = [text for text in served.judged_texts if text in scores and not any(scores[text])]
    return [f"judgement of an incomparable reply makes a query unanswerable: {wrong[0][:60]!r}"] if wrong else []


def _changed(number: int, row: Row, shop: Workshop, folder: Path, served: Served) -> None:
    """Newer documents: an update, a recalibration or an erasure, whose promises hold over HTTP."""
    verb = ("update", "recalibrate", "erase")[number % 3]
    releases, problems, way = served.releases, served.problems, CHANGES[number % len(CHANGES)]
    if verb == "erase":
        gone = [row["_id"] for row in lines(served.data / "corpus.jsonl")[3:9]]
        ended = command("release", "erase", served.release.name, *gone, "--releases", str(releases))
        newer = served.data
    else:
        newer = changed(served.data, folder / "newer" / served.data.name, way)
        if (newer / "vectors.npy").exists():
            shop.add_vectors(newer)
        ended = command(verb, str(newer), "--releases", str(releases))
    if ended.code is None:
        problems.append(f"{verb} after {way}: traceback: {ended.last}")
        return
    if ended.code not in WRITTEN:
        if ended.code != 2 or "taugate" not in ended.last:
            problems.append(f"{verb} after {way}: exit {ended.code}: {ended.last}")
        return
    if (releases / "current").read_text("ascii").strip() == served.release.name:
        return
    later = Served(row, shop, releases, newer)
    later.check(judged=False)
    problems += [f"after {verb} ({way}): {problem}" for problem in later.problems]
