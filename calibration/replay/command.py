"""`taugate drift replay`: a recorded query log through the alarms of the release that answered it."""

import argparse
import sys
from pathlib import Path
from typing import Any

import orjson

from retrieval.drift.monitor import SELDOM, SMALLEST_EFFECT, Monitor, theta_of
from retrieval.drift.reference import Reference
from retrieval.errors import InputError
from retrieval.release.catalog import find
from retrieval.release.layout import REFERENCE
from retrieval.release.verify import verify


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `drift` and its action."""
    parser = commands.add_parser("drift", help="look at recorded traffic")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    text = "run a query log (TAUGATE_QUERY_LOG) through the alarms of a release, and draw what would have alarmed when"
    action: argparse.ArgumentParser = actions.add_parser("replay", help=text, description=text)
    action.add_argument("log", metavar="LOG", type=Path, help="what the service wrote")
    action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")
    action.add_argument("--release", metavar="ID", help="the release that answered; default the current one")
    action.add_argument("--page", metavar="FILE", type=Path, help="the drawing; default LOG with .html at its end")
    action.add_argument("--smallest-effect", type=float, default=SMALLEST_EFFECT, help="TAUGATE_DRIFT_SMALLEST_EFFECT")
    action.add_argument("--seldom", type=float, default=SELDOM, help="TAUGATE_DRIFT_SELDOM")
    action.add_argument("--json", action="store_true", help="print one JSON object in place of lines")
    action.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what would have alarmed, and draw it. Raises InputError or ReleaseError."""
    from calibration.replay.log import read_log  # the extra `calibration` draws; to serve, nobody needs it
    from calibration.replay.page import moment, render
    from calibration.replay.replayed import replay

    if arguments.smallest_effect < 0 or arguments.seldom <= 1:
        raise InputError("--smallest-effect is at least 0, --seldom more than 1")
    folder = find(arguments.releases, arguments.release)
    manifest = verify(folder)
    reference = Reference.load(folder / REFERENCE)
    log = read_log(arguments.log, manifest.release_id, reference.top.shape[1])
    theta = theta_of(reference, manifest.bootstrap.overlap_percentile)
    replayed = replay(log, Monitor(reference, theta, arguments.smallest_effect, arguments.seldom))
    page: Path = arguments.page or arguments.log.with_name(f"{arguments.log.name}.html")
    page.write_text(render(log, replayed, reference, manifest.release_id), encoding="utf-8")
    if arguments.json:
        moments = [
            {"signal": each.signal, "at": each.at, "after": each.after, "alarm": each.on} for each in replayed.moments
        ]
        found = {"release": manifest.release_id, "queries": len(log.queries), "judged": len(log.judged)}
        sys.stdout.write(orjson.dumps(found | {"moments": moments, "page": str(page)}).decode() + "\n")
        return 0
    for each in replayed.moments:
        what = "alarm" if each.on else "over"
        sys.stdout.write(f"{moment(each.at)}  {each.signal:16}  {what:5}  after {each.after:,}\n")
    alarms = sum(each.on for each in replayed.moments)
    sys.stderr.write(
        f"{len(log.queries):,} queries, {len(log.judged):,} judgements: {alarms} alarms; drawn in {page}\n"
    )
    return 0
