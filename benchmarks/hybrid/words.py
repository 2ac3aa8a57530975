"""How much room the postings take, and what other ways to split a text into words would give."""

import re
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.experiment import Experiment
from benchmarks.hybrid.fused import SETS, Edit, fused_set, ranked_set
from benchmarks.markdown import Target, share, table, targets
from taugate.retrieval.index.lexical import LexicalIndex

HEADING = "Words and the room they take"
_WEIGHT = 0.7
_ALLOWED = 0.6  # of the texts' bytes
# Unicode Standard Annex 29 keeps a word whole at an apostrophe or a full stop between letters (rules WB6 and WB7) and at a full stop
# or a comma between digits (WB11 and WB12). Words here are runs of \w, so they are joined by deleting the mark.
_INSIDE = re.compile(r"(?<=[^\W\d])['’.](?=[^\W\d])|(?<=\d)[.,](?=\d)")
_WORD = re.compile(r"\w+")


def section(experiment: Experiment) -> str:
    """Save the postings of each set, and search with other words."""
    sizes, rows, largest, edits = [], [], 0.0, _edits()
    for name in experiment.wanted(name for name in SETS if "/" not in name):
        read, (ranked, _) = fused_set(experiment.data, name), ranked_set(experiment.data, name)
        lexical = LexicalIndex.of(read.texts)
        with tempfile.TemporaryDirectory() as folder:
            lexical.save(Path(folder) / "postings")
            of_texts = (Path(folder) / "postings").stat().st_size / sum(len(text.encode()) for text in read.texts)
        largest = max(largest, of_texts)
        counts = (len(lexical), len(lexical.vocabulary), len(lexical.documents))
        sizes.append([name, *(f"{count:,}" for count in counts), share(of_texts, 2)])
        tried = [outcomes[_WEIGHT] for outcomes in (ranked, *(read.ranked(edit) for edit in edits.values()))]
        rows.append([name, *(f"{share(each.accuracy.mean())} / {share(each.ndcg.mean())}" for each in tried)])
    return f"""\
The file of the lexical index over the texts in UTF-8:

{table(["set", "documents", "distinct words", "pairs of word and document", "file / texts"], sizes)}

{targets([Target("file / texts, largest", largest, at_most=_ALLOWED)])}

Accuracy@5 / NDCG@10 at w = {share(_WEIGHT, 1)} by kind of word. *Joined*: by Unicode Standard Annex 29, which keeps "don't" and "3.14" whole. *Stems*:
Snowball's for English.

{table(["set", "as built in", *edits], rows)}
"""


def _edits() -> dict[str, Edit]:
    edits: dict[str, Edit] = {"joined": lambda text: _INSIDE.sub("", text)}
    if find_spec("Stemmer"):
        stemmer = import_module("Stemmer").Stemmer("english")
        edits["stems"] = lambda text: " ".join(stemmer.stemWords(_WORD.findall(text.casefold())))
    else:
        print("stems are left out: install PyStemmer")
    return edits
