"""Damage office files, mails, notebooks and books, and look for words that are lost without a note."""

import html
import io
import json
import os
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.ingestion.mutated_files import DAMAGES, outcome
from benchmarks.ingestion.office_writers import WRITERS, archive, decoded_parts
from benchmarks.ingestion.plan import ImportPlan
from benchmarks.markdown import Target, table, targets

HEADING = "Damaged office files"
_CORPUS = "scifact"
_TAGS_LEFT = 0.7  # of the damages are within members of an archive
_OUTCOMES = ("whole", "named with a note", "skipped with a reason", "words lost in silence")


def section(plan: ImportPlan) -> str:
    """Damage files and read them, and return the table."""
    corpus = Path(os.environ["TAUGATE_DATA"]) / _CORPUS / "corpus.jsonl"
    texts = [json.loads(line)["text"] for line in corpus.read_text(encoding="utf-8").split("\n") if line]
    rng = random.Random(plan.seed)  # noqa: S311 (no secret is made of it)
    shown, silent = [], 0
    for kind, write in WRITERS.items():
        outcomes = dict.fromkeys(_OUTCOMES, 0)
        for _ in range(plan.mutated_files):
            sample = rng.sample(texts, rng.randint(2, 30))
            raw = write(sample)
            in_member = raw.startswith(b"PK") and rng.random() < _TAGS_LEFT
            damage = rng.choice(MEMBER_DAMAGES) if in_member else rng.choice(DAMAGES)
            damaged = damage(rng, raw)
            outcomes[outcome(plan.work / f"x.{kind}", damaged, sample, _without_tags)] += 1
        silent += outcomes["words lost in silence"]
        shown.append([kind, plan.mutated_files, *outcomes.values()])
    rows = [Target("files that lose words in silence", silent, at_most=0)]
    return (
        "Files are damaged as above; of archives, members are dropped and tags are removed or renamed as well. A file is "
        "*whole* if its documents have 98 % of the words that are in the original texts and still in the file, its "
        f"archive unpacked.\n\n{targets(rows)}\n\n{table(['kind', 'files', *_OUTCOMES], shown)}\n"
    )


def _without_tags(raw: bytes) -> str:
    return html.unescape(re.sub("<[^>]*>", " ", decoded_parts(raw)))


def _in_member(change: Callable[[random.Random, str], str | None]) -> Callable[[random.Random, bytes], bytes]:
    """Return a damage of one member of an archive."""

    def damage(rng: random.Random, raw: bytes) -> bytes:
        with zipfile.ZipFile(io.BytesIO(raw)) as file:
            parts = {name: file.read(name).decode() for name in file.namelist()}
        name = rng.choice([*parts])
        changed = change(rng, parts.pop(name))
        return archive(parts if changed is None else parts | {name: changed})

    return damage


def _without_tag(rng: random.Random, xml: str) -> str:
    tag = rng.choice([*re.finditer("<[^>]+>", xml)])
    return xml[: tag.start()] + xml[tag.end() :]


def _without_element(rng: random.Random, xml: str) -> str:
    """Remove the tags around a text, so that it stands in the element above."""
    elements = [*re.finditer(r"<([\w:]+)(?:\s[^>]*)?>([^<]+)</\1>", xml)]
    if not elements:
        return xml
    element = rng.choice(elements)
    return xml[: element.start()] + element[2] + xml[element.end() :]


def _renamed(rng: random.Random, xml: str) -> str:
    name = rng.choice(re.findall(r"<([\w:]+)", xml))
    return re.sub(rf"(</?){re.escape(name)}\b", rf"\1{name}x", xml)


MEMBER_DAMAGES = (
    _in_member(lambda rng, xml: None),
    _in_member(_without_tag),
    _in_member(_without_element),
    _in_member(_renamed),
)
