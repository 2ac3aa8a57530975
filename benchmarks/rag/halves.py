"""squad_v2_dev in two halves of its paragraphs: one calibrates, and questions about the other are asked."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import orjson

SET = "squad_v2_dev"
OFF_TOPIC = "ood_queries"
SPLIT = "calibration"  # of the data set that `write` makes


@dataclass(frozen=True)
class Question:
    """A question to ask.

    Attributes:
        relevant: The id of the paragraph that answers it, None where none does.
    """

    text: str
    relevant: str | None


@dataclass(frozen=True)
class Halves:
    """Lines of the qrels: a question's id, the paragraph that it was written about, and whether that answers it.

    An unanswerable question of SQuAD 2 was written about a paragraph, too, which looks as if it held the answer. So both
    kinds are divided by paragraph, and no question that is asked is about a paragraph that calibrated.
    """

    data: Path
    calibrating: list[tuple[str, str, int]]
    asked: list[tuple[str, str, int]]

    @classmethod
    def of(cls, data: Path, seed: int) -> Self:
        """Draw the halves.

        Args:
            data: The folder with the public data sets.
            seed: Of the draw.
        """
        lines = (data / SET / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
        judged = [(query, paragraph, int(score)) for query, paragraph, score in (line.split("\t") for line in lines)]
        paragraphs = sorted({paragraph for _, paragraph, _ in judged})
        random.Random(seed).shuffle(paragraphs)  # noqa: S311 (a sample, no secret)
        first = {*paragraphs[: len(paragraphs) // 2]}
        return cls(
            data,
            [each for each in judged if each[1] in first],
            [each for each in judged if each[1] not in first],
        )

    def write(self, folder: Path) -> None:
        """Write the data set that calibrates: the whole corpus, and the questions about one half of it.

        Args:
            folder: Is made.
        """
        (folder / "qrels").mkdir(parents=True)
        for name in ("corpus.jsonl", "queries.jsonl"):
            (folder / name).symlink_to(self.data / SET / name)
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, each)) for each in self.calibrating)]
        (folder / "qrels" / f"{SPLIT}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def questions(self, most: int, seed: int) -> dict[str, list[Question]]:
        """Draw questions of three kinds: answerable, unanswerable, and about other topics (`ood_queries`).

        Args:
            most: Of each kind.
            seed: Of the draw.
        """
        texts = _texts(self.data / SET)
        of_kind = {
            "answerable": [Question(texts[query], paragraph) for query, paragraph, score in self.asked if score],
            "unanswerable": [Question(texts[query], None) for query, _, score in self.asked if not score],
            "off topic": [Question(text, None) for text in _texts(self.data / OFF_TOPIC).values()],
        }
        draw = random.Random(seed)  # noqa: S311
        return {kind: draw.sample(each, min(most, len(each))) for kind, each in of_kind.items()}


def _texts(folder: Path) -> dict[str, str]:
    records = map(orjson.loads, (folder / "queries.jsonl").read_bytes().splitlines())
    return {record["_id"]: record["text"] for record in records}
