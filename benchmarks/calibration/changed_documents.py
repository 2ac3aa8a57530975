"""Counts the promises that a release breaks once its documents have changed.

`TAUGATE_DATA=… python -m benchmarks.calibration.changed_documents` prints a table. Each promise of the manifest is asked
of the release as its words say it: a loss "to τ" with τ as the threshold of the request, other losses by plain searches.
Labelled queries have to keep it; for queries that were kept aside it counts as broken if an exact 95 % limit says so.
The rows *check* are of `taugate recalibrate --no-promote`, which keeps the thresholds. The exit code is 1 if any promise
is broken.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.calibration.changing_sets import CHANGES, FIELD, ChangingSet, Questions, Rows
from benchmarks.markdown import table
from benchmarks.page import data_folder
from taugate.cli import main as cli
from taugate.data.questions import off_topic_table
from taugate.policy.arrays import Float32
from taugate.release.promises import (
    AnsweredQuestions,
    LimitedError,
    LimitedLoss,
    LimitedLostAnswers,
    LimitedStratumLoss,
    Promise,
    promises,
    stated,
)
from taugate.retrieval.encoder.encoder import Encoder, Tokens
from taugate.retrieval.reader import Release, load
from taugate.service.api.schemas import SearchFields, to_query
from taugate.service.pipeline.record import search_fields

SETS = {"squad_v2_dev": "test", "scifact": "train", "mixed_large": "test"}
OPTIONS = {
    "loss": ["--max-loss"],
    "ndcg": ["--metric", "ndcg", "--max-loss"],
    "strata": ["--strata", f"metadata.{FIELD}", "--max-loss"],
    "answered": ["--max-answered", "0.2", "--max-empty", "0.8", "--max-loss"],
    "labels": ["--labels", "human", "--max-loss"],
}
_LOSSES = (0.1, 0.15, 0.25)  # the first that can be certified
_QUERIES, _UNANSWERABLE, _OTHERS, _FEW = 220, 100, 100, 70
_BATCH = 50
_CONFIDENCE = 0.95
Fields = Mapping[str, object]  # of a request, beside the query
_PLAIN: Fields = {}
_NO_CUT = -1e9  # below every value that a policy compares
_FOREIGN = ("clinc150_oos", "banking77_test")
_MAX_FOREIGN = 200
_VECTORS = dict[str, dict[tuple[int, ...], Float32]]()  # of queries, by the digest of their encoder


class RememberingEncoder:
    """An encoder that encodes each query once, for all releases with the same encoder.

    Args:
        encoder: The encoder.
        vectors: Vectors by token ids.
    """

    def __init__(self, encoder: Encoder, vectors: dict[tuple[int, ...], Float32]) -> None:
        self._encoder, self._vectors = encoder, vectors

    def __getattr__(self, name: str) -> object:
        return getattr(self._encoder, name)

    def embed(self, tokens: Sequence[Tokens]) -> Float32:
        """Return unit vectors, (n, d) float32."""
        new = {tuple(text.ids): text for text in tokens if tuple(text.ids) not in self._vectors}
        if new:
            self._vectors |= dict(zip(new, self._encoder.embed([*new.values()]), strict=True))
        return np.stack([self._vectors[tuple(text.ids)] for text in tokens])


@dataclass(frozen=True)
class PromiseCheck:
    """Checks the promises of a release against its own replies.

    Attributes:
        release: The release.
        questions: The queries of its data set, and those kept aside.
        foreign: Questions of other people about other subjects.
        parts: Stratum of each document.
    """

    release: Release
    questions: Questions
    foreign: Sequence[str]
    parts: Mapping[str, str]

    def broken(self) -> Iterator[str]:
        """Yield a sentence on each promise that is broken, and on each reply that says more than the manifest."""
        manifest = self.release.manifest
        limits = [promise.limit for promise in self.promises if isinstance(promise, LimitedLoss)]
        for reply in self.replies([self.questions.texts[query] for query in self.questions.relevant]):
            certified = reply.get("certified")
            if (certified and certified["max_loss"] not in limits) or (
                reply["calibrated"] and manifest.state != "calibrated"
            ):
                yield f"a reply says calibrated: {reply['calibrated']}, certified: {certified}; the release is {manifest.state}"
                break
        for promise in self.promises:
            for whose, unseen in (("labelled", False), ("unseen", True)):
                losses = self._losses(promise, unseen=unseen)
                if losses is not None and (share := _at_least(losses, unseen=unseen)) > promise.limit + 1e-9:
                    yield f"{promise.name}: {losses.mean():.3f} (at least {share:.3f}) of {len(losses)} {whose}, promised {promise.limit:.3f}"

    @cached_property
    def promises(self) -> list[Promise]:
        """What the manifest promises."""
        manifest = self.release.manifest
        return [*promises(stated(manifest, manifest.strata))]

    def _losses(self, promise: Promise, *, unseen: bool) -> NDArray[np.float64] | None:
        """Return the loss of each query that a promise is about, 0 to 1; None if there is none."""
        questions = self.questions
        relevant = questions.unseen if unseen else questions.relevant
        none = questions.unseen_unanswerable if unseen else questions.unanswerable
        policy, metric = self.release.manifest.policy, self.release.manifest.policy.metric
        refusal = self.release.manifest.refusal
        limited = refusal is not None and refusal.limits is not None
        alone: Fields = {"threshold": policy.tau} if limited or policy.statement == "labels" else {}
        values: NDArray[np.float64]
        match promise:
            case LimitedLoss(name="empty"):
                values = self._empty([questions.texts[query] for query in relevant], alone)
            case LimitedLoss():
                values = self._lost(relevant, metric, alone)
            case LimitedStratumLoss(stratum=stratum):
                mine = {
                    query: ids
                    for query, ids in relevant.items()
                    if {self.parts[name] for name in ids} == {stratum.value}
                }
                values = np.zeros(0) if stratum.tau_without_filter is None else self._lost(mine, metric)
                if stratum.tau is not None:
                    filtered = self._lost(mine, metric, {"filter": {FIELD: stratum.value}})
                    values = max(values, filtered, key=np.sum)
            case LimitedError(place=0):
                values = 1 - self._empty([questions.texts[query] for query in none])
            case LimitedError():
                values = self._empty([questions.texts[query] for query in relevant])
            case AnsweredQuestions(kind="unanswerable"):
                values = 1 - self._empty([questions.texts[query] for query in none])
            case AnsweredQuestions(kind=kind):
                shipped = (each for each in off_topic_table() if each.language == "English" and not each.chooses)
                own = [each.text for each in shipped if each.is_request == (kind == "request")]
                values = 1 - self._empty(self.foreign if unseen else own)
            case LimitedLostAnswers():
                found = [query for query, hit in zip(relevant, self._found(relevant), strict=True) if hit]
                values = self._empty([questions.texts[query] for query in found])
        return values if len(values) else None

    def replies(self, texts: Sequence[str], fields: Fields = _PLAIN) -> Iterator[dict[str, Any]]:
        """Search for texts, with further fields of the request; yields replies as the service sends them."""
        release = self.release
        encoder = RememberingEncoder(
            release.retriever.encoder, _VECTORS.setdefault(release.manifest.encoder.sha256, {})
        )
        retriever = replace(release.retriever, encoder=cast("Encoder", encoder))
        queries = [to_query(SearchFields.model_validate({"query": text, **fields}), release) for text in texts]
        for start in range(0, len(queries), _BATCH):
            for answer in retriever.search(queries[start : start + _BATCH]):
                yield search_fields(answer, answer.read(release.documents), release.manifest)

    def _empty(self, texts: Sequence[str], fields: Fields = _PLAIN) -> NDArray[np.float64]:
        return np.array([not reply["results"] for reply in self.replies(texts, fields)], dtype=np.float64)

    def _measured(self, relevant: Mapping[str, list[str]], metric: str, fields: Fields = _PLAIN) -> NDArray[np.float64]:
        """Return accuracy or NDCG of the replies to queries."""
        k, values = self.release.manifest.policy.k, list[float]()
        discounts = 1 / np.log2(np.arange(2, k + 2))
        texts = [self.questions.texts[query] for query in relevant]
        for ids, reply in zip(relevant.values(), self.replies(texts, fields), strict=True):
            hits = np.array([result["document_id"] in ids for result in reply["results"][:k]], dtype=np.float64)
            ideal = discounts[: min(k, len(ids))].sum()
            values.append(float(hits.any()) if metric == "accuracy" else float(hits @ discounts[: len(hits)]) / ideal)
        return np.array(values, dtype=np.float64)

    def _lost(self, relevant: Mapping[str, list[str]], metric: str, fields: Fields = _PLAIN) -> NDArray[np.float64]:
        uncut = self._measured(relevant, metric, {**fields, "threshold": _NO_CUT})
        return uncut - self._measured(relevant, metric, fields)

    def _found(self, relevant: Mapping[str, list[str]]) -> NDArray[np.float64]:
        return self._measured(relevant, "accuracy", {"threshold": _NO_CUT})


def _at_least(losses: NDArray[np.float64], *, unseen: bool) -> float:
    """Return the mean loss of labelled queries, or its lower 95 % limit for unseen ones (exact if losses are 0 or 1)."""
    mean, count = float(losses.mean()), len(losses)
    if not unseen:
        return mean
    if set(losses.tolist()) <= {0.0, 1.0}:
        lost = losses.sum()
        return float(stats.beta.ppf(1 - _CONFIDENCE, lost, count - lost + 1)) if lost else 0.0
    return mean - float(stats.t.ppf(_CONFIDENCE, count - 1) * losses.std(ddof=1) / np.sqrt(count))


def command(*words: object) -> tuple[int, str]:
    """Run a command of `taugate` in this process; returns its exit code and what it printed.

    Raises:
        RuntimeError: If the command cannot be carried out.
    """
    out, error = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        code = cli.main([str(word) for word in words])
    if code in {1, 2}:
        raise RuntimeError(error.getvalue().strip().splitlines()[-1])
    return code, out.getvalue()


def measure(changing: ChangingSet, options: str, work: Path, foreign: Sequence[str]) -> Iterator[list[str]]:
    """Calibrate, change the documents in every way, follow by every command; yields a row for each release."""
    releases, few = work / "releases", _FEW if options == "labels" else 0
    start = changing.questions.write(work / "start", changing.rows, few=few)
    for loss in _LOSSES:
        began, out = command("calibrate", start, "--releases", releases, *OPTIONS[options], loss, "--force", "--json")
        if began == 0:
            break
    first = json.loads(out)["release"]
    parts = {row["_id"]: row["metadata"][FIELD] for row in changing.rows}

    def row(release: str, questions: Questions, change: str, verb: str, code: int) -> list[str]:
        opened = load(releases / release)
        try:
            asked = PromiseCheck(opened, questions, foreign, parts)
            names = [promise.name for promise in asked.promises]
            withdrawn = [record.promise for record in opened.manifest.withdrawn or ()]
            wrong = [*asked.broken()]
        finally:
            opened.close()
        return [
            change,
            f"{verb} ({code})",
            ", ".join(names) or "–",
            ", ".join(withdrawn) or "–",
            "; ".join(wrong) or "0",
        ]

    yield row(first, changing.questions, f"δ = {loss:g}", "calibrate", began)
    for change in CHANGES:
        rows: Rows = changing.changed(change)
        questions = changing.questions.on(rows)
        newer = questions.write(work / "newer", rows, few=few)
        gone = sorted({row["_id"] for row in changing.rows} - {row["_id"] for row in rows})
        for verb in ("check", "recalibrate", *(["erase"] if gone else [])):
            command("release", "promote", first, "--releases", releases, "--force")
            try:
                if verb == "erase":
                    code, out = command("release", "erase", first, *gone, "--releases", releases)
                    release = out.strip()
                else:
                    code, out = command(
                        "recalibrate",
                        newer,
                        "--releases",
                        releases,
                        "--json",
                        *(["--no-promote"] if verb == "check" else []),
                    )
                    release = json.loads(out)["release"]
            except RuntimeError as error:
                yield [change, verb, "–", "–", f"no release: {error}"]
            else:
                yield row(release, questions, change, verb, code)


def main() -> int:
    """Measure the requested sets and options, and print a row for each release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", choices=[*SETS], default=[*SETS])
    parser.add_argument("--options", nargs="*", choices=[*OPTIONS], default=[*OPTIONS])
    parser.add_argument("--seed", type=int, default=0)
    arguments, data, wrong = parser.parse_args(), data_folder(), 0
    lines = (data / "ood_queries" / "queries.jsonl").read_text("utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["metadata"]["set"] in _FOREIGN]
    foreign = [record["text"] for record in records[:: len(records) // _MAX_FOREIGN]]
    for name in arguments.sets:
        changing = ChangingSet.read(data / name, SETS[name], _QUERIES, _UNANSWERABLE, _OTHERS, arguments.seed)
        print(
            f"{name}: {len(changing.rows)} documents, {len(changing.questions.relevant)} labelled queries", flush=True
        )
        for options in arguments.options:
            with tempfile.TemporaryDirectory() as work:
                rows = [*measure(changing, options, Path(work), foreign)]
                shutil.rmtree(work, ignore_errors=True)
            wrong += sum(row[-1] != "0" and not row[-1].startswith("no release") for row in rows)
            print(f"\n### {name}, {' '.join(OPTIONS[options])}\n")
            print(table(["change", "command (exit code)", "promised", "withdrawn", "broken"], rows), flush=True)
    print(f"\n{wrong} releases break a promise")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
