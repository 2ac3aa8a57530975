"""Measure how many human and cropped queries count as copies, and how many planted near-duplicates are found."""

import json
from pathlib import Path

import numpy as np

from benchmarks.calibrated import IndexedSet
from benchmarks.generated.sets import PublicSet
from benchmarks.label_checks.plan import LabelCheckPlan, had_a_say, spool_in
from benchmarks.markdown import Target, share, table, targets
from taugate.calibration.encoding.source import DEFAULT_ENCODER
from taugate.calibration.query_set.warnings import COPYING, wording_warnings
from taugate.calibration.query_set.wording import MIN_WORDS, Wording, compare_wording, words
from taugate.ingestion.dataset.beir import CORPUS
from taugate.ingestion.dataset.judgements import GENERATED, HUMAN
from taugate.ingestion.queries.generate import MAX_QUERIES, generate_crops

HEADING = "Copied questions and repeated answers"
_PLANTED = 100  # documents of a set that are put into it once more
_LEFT_OUT = 0.02  # of the words of such a copy


def section(plan: LabelCheckPlan) -> str:
    """Compare the words of human and of cropped queries with their documents, and plant copies of documents."""
    rows, unseen_human, unseen_crops, found = [], [], [], []
    for public in plan.sets:
        with plan.copied(public) as folder:
            generate_crops(folder, MAX_QUERIES, plan.seed)
            people, of_people = _compared(folder, HUMAN)
            crops, of_crops = _compared(folder, GENERATED)
            planted = _planted(folder, public, plan.seed)
        long = [len(words(query.text)) >= MIN_WORDS for query in crops.dataset.answerable]
        copying, copied = len(of_people.copies) / len(people.dataset.answerable), len(of_crops.copies) / sum(long)
        queries = people.dataset.answerable
        found.append(planted)
        if had_a_say(public.name) == "unseen":
            unseen_human.append(copying)
            unseen_crops.append(copied)
        warned = wording_warnings(of_people, queries, np.ones(len(queries)))
        rows.append(
            [
                public.name,
                had_a_say(public.name),
                f"{len(queries):,}",
                share(copying),
                share(copied),
                share(len(of_crops.copies) / len(long)),
                len(of_people.repeated),
                len(of_people.unlabelled),
                share(planted, 2),
                "; ".join("copies" if "copy" in each else "repeated answers" for each in warned),
            ]
        )
    wanted = [
        Target(
            "human queries that count as copies, largest share of an unseen set", max(unseen_human), at_most=COPYING
        ),
        Target("crops that count as copies, smallest share of an unseen set", min(unseen_crops), at_least=0.9),
        Target("queries about planted copies that are found, smallest share", min(found), at_least=0.95),
    ]
    header = ["set", "limits", "human queries", "copies among them", f"among crops of {MIN_WORDS} words or more"]
    header += [
        "among all crops",
        "repeated answers",
        "without a label",
        "queries about planted copies found",
        "warned of",
    ]
    return f"""\
A query *copies* its document when at least 60 % of its three-word sequences stand there. Human queries should not count as copies, and
crops should. A crop of fewer than {MIN_WORDS} words never counts: people, too, take a name or a phrase from a document. The warning needs
{100 * COPYING:.0f} % of the queries.

An answer is *repeated* when another document shares 80 % of its three-word sequences. What is found in the public sets is real: their
labels name one copy, and the other counts as wrong. To know what is missed, {_PLANTED} relevant documents of each set are put into its corpus
once more, each with {100 * _LEFT_OUT:.0f} % of its words left out.

Copies are missed in short documents: of twenty words, one that is left out changes a sixth of the sequences.

{targets(wanted)}

{table(header, rows)}
"""


def _compared(folder: Path, split: str) -> tuple[IndexedSet, Wording]:
    indexed = IndexedSet.read(folder, split, DEFAULT_ENCODER, spool_in(folder, split))
    return indexed, compare_wording(indexed.dataset, indexed.encoded, indexed.index)


def _planted(folder: Path, public: PublicSet, seed: int) -> float:
    """Put relevant documents into the corpus once more; returns the share of the queries about them that is found."""
    before = IndexedSet.read(folder, HUMAN, DEFAULT_ENCODER, spool_in(folder, "before"))
    documents = before.dataset.documents
    relevant = sorted({position for query in before.dataset.answerable for position in query.relevant})
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(relevant)[:_PLANTED].tolist()
    lines = []
    for position in chosen:
        document = documents[position]
        kept = [word for word in document.text.split() if rng.random() >= _LEFT_OUT]
        copy = {"_id": f"copy of {document.id}", "title": document.title or "", "text": " ".join(kept) or document.text}
        lines.append(json.dumps(copy) + "\n")
    with (folder / CORPUS).open("a", encoding="utf-8") as corpus:
        corpus.writelines(lines)
    _, after = _compared(folder, HUMAN)
    reported = {each.row for each in after.repeated}
    asked = {row for row, query in enumerate(before.dataset.answerable) if query.relevant.keys() & {*chosen}}
    return len(asked & reported) / len(asked)
