"""Every table of docs/benchmarks/chunks.md: whole documents found by their chunks, by size and overlap.

Needs TAUGATE_DATA and the extras calibration, import and test. On two CPU cores the whole study takes a night, most of
it for mixed_large. What was encoded or ranked once is kept, so a study that was stopped goes on where it ended.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from benchmarks.checkout import ROOT
from benchmarks.chunks.comparison import PLAIN, ComparedSet, chosen, difference, measured, places, signed, table_of
from benchmarks.chunks.encoders import product_encoder, torch_encoder
from benchmarks.chunks.ranking import SETTINGS, WHOLE, WINDOW, Rankings, Setting, token_counts
from benchmarks.chunks.study_sets import CHOOSING, REPORTING, StudySet
from benchmarks.markdown import share, table
from benchmarks.page import Option, Page, data_folder
from taugate.calibration.encoding.source import DEFAULT_ENCODER, exported_encoder
from taugate.ingestion.chunks import CHUNK_TOKENS, OVERLAP_TOKENS
from taugate.retrieval.encoder.encoder import TOKENIZER

DEFAULT = Setting(CHUNK_TOKENS, OVERLAP_TOKENS)
_CHECKED = "pubmedqa_labelled"  # the set that both encoders rank


@dataclass(frozen=True)
class ChunkPlan:
    """The plan of one run.

    Attributes:
        data: Folder of the public sets.
        rankings: Kept or computed.
        product: Rankings by the product's own encoder.
        tokenizer: The encoder's own, which does not truncate.
        seed: Of the bootstraps.
        bootstraps: How many.
    """

    data: Path
    rankings: Rankings
    product: Rankings
    tokenizer: Tokenizer
    seed: int
    bootstraps: int


class Lengths:
    """How long the documents are."""

    HEADING = "How long the documents are"

    def section(self, plan: ChunkPlan) -> str:
        """Count the tokens of every document.

        Args:
            plan: Of this run.
        """
        rows = []
        for part, readers in (("chooses", CHOOSING), ("other", REPORTING)):
            for name, read in readers.items():
                study_set = read(plan.data)
                counts = token_counts(study_set.documents, plan.tokenizer)
                long = f"{100 * float((counts > WINDOW).mean()):.1f} %"
                sizes = [f"{int(np.median(counts)):,}", f"{counts.max():,}"]
                rows.append([name, part, f"{len(counts):,}", *sizes, long, f"{len(study_set.queries):,}"])
        header = ["set", "part", "documents", "median tokens", "most tokens", f"longer than {WINDOW}", "queries"]
        return f"""\
{table(header, rows)}

*covidqa, articles* are full papers, put together from the passages of covidqa_chunks: ids name the paper and the place in it,
passages do not overlap, and a space joins two of them. *squad_v2_dev, articles* are Wikipedia articles, put together from their
paragraphs. mixed_large is searched as a whole, with the queries of medquad, vaswani_npl, cranfield, msmarco_dl_mini and emanual:
nearly all of its other queries belong to sets in the rows above."""


class Decision:
    """The defaults of `taugate import`, and the figures that they follow from."""

    HEADING = "What follows"

    def section(self, plan: ChunkPlan) -> str:
        """Compare the settings that matter on both parts of the sets.

        Args:
            plan: Of this run.
        """
        first, second = (
            measured(readers, plan.data, plan.rankings, plan.seed, plan.bootstraps) for readers in (CHOOSING, REPORTING)
        )
        best = chosen(first)
        shown = dict.fromkeys([PLAIN, DEFAULT, Setting(64), best])
        header = ["chunks", "vectors", "gain, sets that choose", "gain, other sets", "worst set"]
        rows = [
            [
                f"**{setting}**" if setting == DEFAULT else setting,
                f"{sum(each.rankings[setting].chunks for each in first + second):,}",
                *(signed(difference(part, setting, WHOLE, 1)) for part in (first, second)),
                _worst(first + second, setting),
            ]
            for setting in shown
        ]
        overlaps = [
            [
                setting,
                f"{sum(each.rankings[setting].chunks for each in first + second):,}",
                *(signed(difference(part, setting, Setting(setting.size), 1)) for part in (first, second)),
            ]
            for setting in SETTINGS
            if setting.overlap
        ]
        return f"""\
**Cut long documents.** Even chunks that fill the window find more than beginnings do. Gains are in NDCG@10, in the mean over sets:

{table(header, rows)}

**Chunks of {DEFAULT.size} tokens.** The rule set before the figures were known: chunks fill the window and do not overlap, unless another
setting has a higher NDCG@10 on the sets that choose, with an interval above 0; of several, the one with the highest mean is taken.
That is {best}. It is not the default, because the rule knew nothing of cost and of code. Chunks of 64 lose a good part of the
answers on cosqa, whose documents are functions; they take twice the vectors; and one is two or three sentences, which is little
to answer from. Chunks of {DEFAULT.size} beat those of {PLAIN.size} on both parts and lose little on any set. As this looked at the second part,
its figures are no untouched test of {DEFAULT.size}.

**No overlap.** Beside chunks of the same size without overlap, in NDCG@10:

{table(["chunks", "vectors", "difference, sets that choose", "difference, other sets"], overlaps)}

An overlap of a quarter is not shown to help on the sets that choose, at any size. Half a chunk helps a little at 128, where it
adds a third of the vectors.

All of this is about finding documents with one encoder. What a language model makes of the chunks was not measured."""


def _worst(sets: Sequence[ComparedSet], setting: Setting) -> str:
    """Name the set on which a setting gains the least NDCG@10 over no chunks, or loses the most."""
    gain, name = min((difference([each], setting, WHOLE, 1).mean, each.name) for each in sets)
    return f"{share(gain).replace('-', '−') if round(gain, 3) else '.000'} ({name})"


@dataclass
class Compared:
    """A part of the sets in every setting.

    Attributes:
        HEADING: Of the section.
        readers: Of the sets.
    """

    HEADING: str
    readers: Mapping[str, Callable[[Path], StudySet]]

    def section(self, plan: ChunkPlan) -> str:
        """Measure every set in every setting.

        Args:
            plan: Of this run.
        """
        sets = measured(self.readers, plan.data, plan.rankings, plan.seed, plan.bootstraps)
        each = "\n\n".join(f"### {one.name}\n\n{table_of([one])}" for one in sets)
        return f"{places(sets)} The mean over the {len(sets)} sets:\n\n{table_of(sets)}\n\n{each}"


class Agreement:
    """Two encoders on one set."""

    HEADING = "The same set by the product's encoder"

    def section(self, plan: ChunkPlan) -> str:
        """Rank one set by both encoders.

        Args:
            plan: Of this run.
        """
        study_set = REPORTING[_CHECKED](plan.data)
        rows = []
        for setting in (WHOLE, PLAIN, Setting(WINDOW, WINDOW // 4)):
            both = [each.ranking(_CHECKED, study_set, setting) for each in (plan.rankings, plan.product)]
            found = [share(float((each.grades[:, :5] >= 1).any(axis=1).mean()), 4) for each in both]
            equal = int((both[0].grades == both[1].grades).all(axis=1).sum())
            rows.append([setting, *found, f"{equal:,} of {len(study_set.queries):,}"])
        header = [f"{_CHECKED}, chunks", *(f"accuracy@5, {each.place}" for each in both), "queries with equal ranks"]
        return table(header, rows)


PAGE = Page[ChunkPlan](
    file="chunks.md",
    module="benchmarks.chunks.tables",
    title="# Chunks: which size and overlap find documents best",
    introduction="""\
An encoder reads so many tokens of a text and ignores the rest; all-MiniLM-L6-v2 reads 256. A longer document is found by its
beginning alone, unless `taugate import` cuts it into *chunks*, each of which is searched. This page measures what that is worth,
and which size and overlap are best.

Queries find documents here, not chunks: a document is as similar as its best chunk. *accuracy@5* is the share of queries with a
relevant document among the first five. *NDCG@10* also rewards relevant documents that stand higher, among the first ten. Every
query is compared with every chunk. A chunk of 128 has at most 128 tokens, of which its title, its headings and two special tokens
are a part. An overlap of 32 repeats the last sentences of a chunk at the beginning of the next: as many whole ones as fit in 32
tokens.

Brackets hold 95 % intervals of paired differences, by a bootstrap that draws clusters: queries that share a relevant document are
drawn together. Size and overlap are compared on four sets that choose, and on six others. In a mean over sets, each set counts alike.

`make chunk-study` measures all of it on a CPU. On two cores that takes a night, most of it for mixed_large; `ARGS="--tables
choosing"` measures one section. Texts encoded and documents ranked once are kept.""",
    sections={
        "decision": Decision(),
        "lengths": Lengths(),
        "choosing": Compared("The sets that choose", CHOOSING),
        "reporting": Compared("The other sets", REPORTING),
        "agreement": Agreement(),
    },
    options=[
        Option("seed", 0, "of the bootstraps", ("decision", "choosing", "reporting")),
        Option("bootstraps", 2000, "of each interval", ("decision", "choosing", "reporting")),
    ],
)


def main() -> None:
    """Measure the sections asked for, and write them to the page."""
    parser = PAGE.parser(__doc__)
    parser.add_argument("--torch", nargs=2, metavar=("DEVICE", "FOLDER"), help="encode by PyTorch, weights in FOLDER")
    parser.add_argument(
        "--rankings", type=Path, default=ROOT / "build" / "chunk-study.safetensors", help="read, and added to"
    )
    arguments = PAGE.parse(parser)
    folder = Path(arguments.torch[1]) if arguments.torch else exported_encoder(DEFAULT_ENCODER)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    load = (lambda: torch_encoder(folder, arguments.torch[0])) if arguments.torch else product_encoder
    kept: Path = arguments.rankings
    plan = ChunkPlan(
        data_folder(),
        Rankings(kept, load, tokenizer),
        Rankings(kept.with_stem(f"{kept.stem}-product"), product_encoder, tokenizer),
        tokenizer,
        arguments.seed,
        arguments.bootstraps,
    )
    for name in arguments.tables:
        PAGE.measure(name, plan, arguments)


if __name__ == "__main__":
    main()
