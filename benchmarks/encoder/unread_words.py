"""Accuracy@5 by how much of each query the encoder cannot read: the origin of UNREADABLE (retrieval/encoder/unread.py).

`python -m benchmarks.encoder.unread_words DATA ENCODER` prints a table: DATA in the BEIR layout, with the split `test`;
ENCODER a folder with an exported encoder, such as `encoder` in a release. Words of each query, drawn at random, are
replaced by an emoji that no vocabulary of WordPiece has, until these are a share of its characters.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from taugate.retrieval.encoder.encoder import OnnxEncoder

_SHARES = (0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)
_QUERIES, _K, _SEED = 500, 5, 0
_UNKNOWN = "🏗"


def main(data: Path, folder: Path) -> None:
    """Print the table.

    Args:
        data: In the BEIR layout.
        folder: Of the encoder.
    """
    encoder = OnnxEncoder.load(folder)
    corpus = [json.loads(line) for line in (data / "corpus.jsonl").open(encoding="utf-8")]
    queries = {each["_id"]: each["text"] for each in map(json.loads, (data / "queries.jsonl").open(encoding="utf-8"))}
    relevant: defaultdict[str, set[str]] = defaultdict(set)
    for line in (data / "qrels/test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if int(score) > 0:
            relevant[query].add(document)
    ids = list(relevant)[:_QUERIES]
    documents = encoder.encode([f"{each.get('title') or ''} {each['text']}".strip() for each in corpus], "document")
    sys.stdout.write("share replaced\tunread\taccuracy@5\tmean best similarity\n")
    for share in _SHARES:
        rng = np.random.default_rng(_SEED)
        texts = [_replaced(queries[each], share, rng) for each in ids]
        tokens = encoder.tokenize(texts, "query")
        scores = encoder.embed(tokens) @ documents.T
        top = np.argsort(-scores, axis=1, kind="stable")[:, :_K]
        hits = [
            bool(relevant[query] & {corpus[row]["_id"] for row in rows}) for query, rows in zip(ids, top, strict=True)
        ]
        unread = np.mean([each.unread for each in tokens])
        sys.stdout.write(f"{share:.2f}\t{unread:.3f}\t{np.mean(hits):.3f}\t{scores.max(axis=1).mean():.3f}\n")


def _replaced(text: str, share: float, rng: np.random.Generator) -> str:
    """Replace words by unknown ones of their length, drawn at random, until they have the share of the characters."""
    words = text.split()
    total, replaced = sum(map(len, words)), 0
    for place in rng.permutation(len(words)).tolist():
        if replaced >= share * total:
            break
        replaced += len(words[place])
        words[place] = _UNKNOWN * len(words[place])
    return " ".join(words)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
