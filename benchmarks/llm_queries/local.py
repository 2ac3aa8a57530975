"""What a small model on this machine writes about documents of two domains."""

import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.llm_queries.runs import SETS, QueriesPlan, queries, written
from benchmarks.markdown import table

HEADING = "A small model on this machine"
_SHOWN = 20  # of each set
_REASONS = ("empty", "example", "not_question", "duplicate", "round_trip")


def section(plan: QueriesPlan) -> str:
    """Let the model ask about documents of both sets, and return the tables as Markdown."""
    results: dict[str, dict[str, Any]] = {}
    shown: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(prefix="taugate-queries-") as work:
        for name in SETS:
            data = plan.copy(name, Path(work))
            options = ["--method", "local", "--max", str(plan.documents), "--seed", str(plan.seed)]
            results[name] = queries(data, *options)
            shown[name] = [record["text"] for record in written(data)][:_SHOWN]
    lists = "\n\n".join(
        f"**{name}**\n\n"
        + "\n".join(f"{number}. `{text.replace('`', chr(39))}`" for number, text in enumerate(each, 1))
        for name, each in shown.items()
    )
    return f"""\
The examples of the prompt are three labelled queries of each set. *Asked about* counts documents, and each of the other columns is a
part of them: questions kept, nothing written, an example repeated, no question, the same words as another query, document not found.

{_yield(results)}

{_speed(results)}

The time of a question is kept with the reply, so that a run that goes on from the cache shows the times of the runs before it. The load
average of the machine was {os.getloadavg()[2]:.0f} on {len(os.sched_getaffinity(0))} processors when this was written: an idle one is faster.

### First words

The ten most frequent first words of all that was written, kept or not:

{_first_words(results)}

### {_SHOWN * len(SETS)} questions in full

The first {_SHOWN} questions of each set that were kept, in the order of the corpus. None was chosen.

{lists}
"""


def _yield(results: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, result in results.items():
        counts = [result["kept"], *(result["lost"][reason] for reason in _REASONS)]
        asked = sum(counts)
        rows.append([name, asked, *(f"{count} ({count / asked:.0%})".replace("%", " %") for count in counts)])
    return table(["set", "asked about", "kept", "empty", "example", "no question", "duplicate", "round trip"], rows)


def _speed(results: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, result in results.items():
        seconds, asked = result["seconds_per_query"], result["kept"] + sum(result["lost"].values())
        rows.append([name, f"{seconds:.1f}", f"{60 / seconds:.1f}", f"{60 / seconds * result['kept'] / asked:.1f}"])
    return table(["set", "seconds a question", "questions a minute", "of these kept"], rows)


def _first_words(results: dict[str, dict[str, Any]]) -> str:
    columns = [[f"{word} ({count})" for word, count in each["first_words"].items()] for each in results.values()]
    return table([*results], zip(*columns, strict=False))
