"""`taugate release …`: which action takes which arguments."""

import argparse
from pathlib import Path
from typing import Any

from taugate.cli.promotion_rule import FORCE_HELP, RULE_HELP
from taugate.cli.release import changes
from taugate.cli.release import erase as erasing
from taugate.cli.release import inspect as shown
from taugate.cli.release import remote as elsewhere
from taugate.registry.prune import KEEP


def add_parser(commands: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the subcommand `release` and its actions."""
    parser = commands.add_parser("release", help="list, compare, promote, roll back or prune releases")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for add in (_add_shown, _add_compared, _add_promotion, _add_shadow_and_prune, erasing.add_parser, _add_elsewhere):
        add(actions)
    for action in actions.choices.values():
        action.add_argument("--releases", metavar="DIR", type=Path, required=True, help="where releases are kept")


def _add_shown(actions: Any) -> None:  # noqa: ANN401
    _add(
        actions,
        "list",
        shown.ids,
        "ids, oldest first; * marks the current one, ~ the shadow; of provisional ones it is said",
    )
    show = _add(actions, "show", shown.manifest, "the manifest, as stored")
    show.add_argument("id", metavar="ID", nargs="?", help="release id; default the current one")
    verify = _add(actions, "verify", shown.verified, "check every digest; without ID, of all releases")
    verify.add_argument("id", metavar="ID", nargs="?", help="release id; default all")
    verify.add_argument("--trusted-keys", metavar="PATH", type=Path, help="who must have signed it, PEM")
    _add(actions, "history", shown.recorded, "who made which release current, or removed it, and when")


def _add_compared(actions: Any) -> None:  # noqa: ANN401
    diff = _add(actions, "diff", _diff, "what differs from release A to release B")
    diff.add_argument("a", metavar="A", nargs="?", help="the old release's id; default the current one")
    diff.add_argument("b", metavar="B", help="the new release's id")
    _add(
        actions,
        "correlations",
        _correlations,
        "accuracy against COE, ROE, τ and isotropy, over releases of one data set",
    )


def _add_promotion(actions: Any) -> None:  # noqa: ANN401
    promote = _add(actions, "promote", changes.promote, "make a release the current one, if it verifies")
    promote.add_argument("id", metavar="ID", help="release id")
    promote.add_argument("--if", metavar="RULE", dest="rule", help=RULE_HELP)
    promote.add_argument("--force", action="store_true", help=f"also one whose policy is none; {FORCE_HELP}")
    promote.add_argument("--new-encoder", action="store_true", help="also one of another encoder")
    rollback = _add(actions, "rollback", changes.rollback, "make the release before the current one current again")
    rollback.add_argument("id", metavar="ID", nargs="?", help="one further back; default the one before")


def _add_shadow_and_prune(actions: Any) -> None:  # noqa: ANN401
    shadow = _add(actions, "shadow", changes.shadow, "name the release that is tried beside the current one")
    shadow.add_argument("id", metavar="ID", nargs="?", help="release id")
    shadow.add_argument("--none", action="store_true", help="try none from now on")
    prune = _add(actions, "prune", changes.pruned, "remove old releases that nobody needs")
    prune.add_argument("--keep", metavar="N", type=int, default=KEEP, help=f"newest releases that stay ({KEEP})")
    prune.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")


def _add_elsewhere(actions: Any) -> None:  # noqa: ANN401
    sign = _add(actions, "sign", elsewhere.signed, "put a signature beside a release, if it verifies")
    sign.add_argument("--key", metavar="PEM", type=Path, required=True, help="Ed25519 private key")
    sign.add_argument("id", metavar="ID", help="release id")
    push = _add(actions, "push", elsewhere.pushed, "copy a release to object storage")
    push.add_argument("--to", metavar="URL", required=True, help="such as s3://bucket/prefix")
    push.add_argument("--promote", action="store_true", help="make it the current one there, as it is in DIR")
    push.add_argument("id", metavar="ID", nargs="?", help="release id; default the current one")
    pull = _add(actions, "pull", elsewhere.pulled, "copy a release from object storage, where DIR does not stay")
    pull.add_argument("--from", metavar="URL", dest="source", required=True, help="such as s3://bucket/prefix")
    pull.add_argument("id", metavar="ID", nargs="?", help="release id; default the current one, to be so here as well")


def _add(actions: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:  # noqa: ANN401
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    action.set_defaults(run=run)
    return action


def _diff(arguments: argparse.Namespace) -> int:
    """Comparing needs the extra `calibration`, and the others do not."""
    from taugate.cli.release.inspect import diff

    return diff(arguments)


def _correlations(arguments: argparse.Namespace) -> int:
    """As `_diff`."""
    from taugate.cli.release.inspect import table

    return table(arguments)
