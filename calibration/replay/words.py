"""What people read in place of the names of the metrics, of Unix times and of bare numbers."""

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Words:
    """name: of the signal; mean: what the mean of a block is a share of, or is; things: what fills the blocks."""

    name: str
    mean: str
    things: str = "queries"


SIGNALS = {
    "topk_similarity": Words(
        "Similarities of the top-K", "Share of best similarities at or below the calibration's median"
    ),
    "roe": Words("Random documents (ROE)", "Share of random documents above θ"),
    "empty_responses": Words("Searches with no result", "Share of searches with no result"),
    "dropped_share": Words("Dropped results", "Share of the top-K that the threshold drops"),
    "coe": Words("Documents judged relevant (COE)", "Share of judged documents above θ", "judgements"),
}


def counted(number: int, thing: str) -> str:
    """A number of things, one or more."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def utc(at: float) -> str:
    """A Unix time in UTC, without saying so."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
