"""`taugate traffic`: make labelled queries from user feedback."""

import time
from pathlib import Path
from shlex import quote
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.cli.terminal.options import Appearance, AsJson, command_of, option
from taugate.cli.terminal.output import print_result, say
from taugate.data.judgements import HUMAN, TRAFFIC, splits_in
from taugate.data.raters import MAX_BY_KEY, MIN_VOTES
from taugate.evidence.options import Options


@dataclass(frozen=True, kw_only=True)
class TrafficOptions(Options):
    """The options of `taugate traffic`."""

    logs: Annotated[tuple[Path, ...], Appearance("LOG", positional=True)] = Field(
        description="query logs of the service, of all replicas"
    )
    to: Annotated[Path, Appearance("DATA")] = Field(description="folder of the data set")
    split: str = option(TRAFFIC, "split that the judgements go to")
    collection: str | None = option(None, "name of the data set in the log (default: that of the folder)")
    votes: int = option(MIN_VOTES, "users who must judge a result before it counts; use more if users err often")
    most_by_key: int = option(MAX_BY_KEY, "largest number of judgements to take from one API key, sampled at random")
    as_json: AsJson = False


def run(options: TrafficOptions) -> int:
    """Make labelled queries from user feedback (POST /feedback).

    They go to the split traffic, each with a weight that corrects for results that were not shown or not judged.
    """
    from taugate.data.traffic import REASONS, learn_from_traffic

    started = time.monotonic()
    result = learn_from_traffic(
        options.logs,
        options.to,
        options.split,
        collection=options.collection,
        max_by_key=options.most_by_key,
        votes=options.votes,
    )
    seconds = time.monotonic() - started
    left_out = {str(reason): result.left_out[reason] for reason in REASONS if result.left_out[reason]}
    say(f"Labels from traffic in {options.to}. Queries: {result.queries:,}. Judgements: {result.judgements:,}.")
    for reason, count in left_out.items():
        say(f"Left out: {count:,} that {REASONS[reason]}.")
    if options.as_json:
        print_result(
            {"queries": result.queries, "judgements": result.judgements, "left_out": left_out, "seconds": seconds}
        )
    else:
        data = quote(str(options.to))
        if HUMAN in splits_in(options.to):
            say(f"Next: taugate calibrate {data} --releases releases --labels {HUMAN},{TRAFFIC}")
        else:  # users never see what a search misses, so traffic alone cannot measure accuracy
            say(f"Next: taugate judge {data} --releases releases, and calibrate with --labels {HUMAN},{TRAFFIC}")
    return 0


_KEYS = ("split", "collection", "votes", "most_by_key")
command = command_of("traffic", run, TrafficOptions, keys=_KEYS)
