"""`taugate release promote|rollback|shadow|prune`: choose the current and the shadow release, and remove old ones."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from taugate.calibration.comparison.publish import Promotion, publish
from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.words import PROVISIONAL, report
from taugate.cli.terminal.options import add_action
from taugate.cli.terminal.output import say
from taugate.cli.terminal.promotion_rule import FORCE_HELP, add_rule_options, rule_from_arguments, rule_option
from taugate.errors import InputError
from taugate.registry import promotion
from taugate.registry.catalog import find, release_ids
from taugate.registry.collections import HOURS, CollectionDecision, prune_collections
from taugate.registry.prune import KEEP, PruneDecision, prune
from taugate.registry.signing import trusted_keys
from taugate.retrieval.engines.connect import engine_from_environment
from taugate.retrieval.engines.engine import EngineKind


def add_actions(actions: Any) -> None:  # noqa: ANN401 (argparse's own type is private)
    """Add the actions.

    Args:
        actions: The subparsers of `taugate release`.
    """
    promote = add_action(actions, "promote", promote_release, "make a release current, if it verifies")
    promote.add_argument("id", metavar="ID", help="release id")
    add_rule_options(promote, "--if")
    promote.add_argument(
        "--force", action="store_true", help=f"also promote a release whose policy is none; {FORCE_HELP}"
    )
    promote.add_argument("--new-encoder", action="store_true", help="also promote a release with another encoder")
    rollback = add_action(actions, "rollback", roll_back, "make the previous release current again")
    rollback.add_argument("id", metavar="ID", nargs="?", help="an earlier release (default: the previous one)")
    shadow = add_action(actions, "shadow", set_shadow, "set the shadow release, which is tried beside the current one")
    shadow.add_argument("id", metavar="ID", nargs="?", help="release id")
    shadow.add_argument("--none", action="store_true", help="remove the shadow release")
    pruning = add_action(actions, "prune", prune_releases, "remove old releases that are no longer needed")
    pruning.add_argument(
        "--keep", metavar="N", type=int, default=KEEP, help=f"number of newest releases to keep (default: {KEEP})"
    )
    pruning.add_argument(
        "--engine",
        choices=get_args(EngineKind),
        help=f"drop collections of this engine instead, older than {HOURS} hours, that no release names",
    )
    pruning.add_argument(
        "--also",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="with --engine: another directory of releases in the same engine; name all of them",
    )
    pruning.add_argument("--dry-run", action="store_true", help="list what would be removed, without removing it")


def promote_release(arguments: argparse.Namespace) -> int:
    """Make a release current, if it verifies and its rule holds."""
    if rule := rule_from_arguments(arguments, "--if"):
        return _promote_if_rule_holds(arguments, rule)
    rules = {"force": arguments.force, "new_encoder": arguments.new_encoder}
    promoted = promotion.promote(arguments.releases, arguments.id, trusted_keys(), **rules)
    if promoted.state == "provisional":
        say(PROVISIONAL)
    sys.stdout.write(f"* {promoted.release_id}\n")
    return 0


def _promote_if_rule_holds(arguments: argparse.Namespace, rule: PromotionRule) -> int:
    """Compare the release with the current one, and promote it if the rule holds."""
    if arguments.force:
        raise InputError(f"--force: overrides {rule_option(arguments, '--if')}; leave one of them out")
    release = find(arguments.releases, arguments.id)
    request = Promotion(rule=rule, new_encoder=arguments.new_encoder, trusted=trusted_keys())
    published = publish(release, request)
    if (decision := published.decision) is None:
        say(f"taugate: {published.message}")
        return published.code
    code = report(decision, say)
    if decision.holds:
        sys.stdout.write(f"* {release.name if decision.promoted else decision.current}\n")
    return code


def roll_back(arguments: argparse.Namespace) -> int:
    """Make the previous release current again, or an earlier one."""
    sys.stdout.write(f"* {promotion.rollback(arguments.releases, arguments.id, trusted_keys())}\n")
    return 0


def set_shadow(arguments: argparse.Namespace) -> int:
    """Set or remove the shadow release."""
    if (arguments.id is None) != arguments.none:
        raise InputError("give either a release id or --none")
    name = None if arguments.none else find(arguments.releases, arguments.id).name
    promotion.shadow(arguments.releases, name, trusted_keys())
    if name is not None:
        sys.stdout.write(f"~ {name}\n")
    return 0


def prune_releases(arguments: argparse.Namespace) -> int:
    """Remove old releases; print their ids to stdout, and why others are kept to stderr."""
    if arguments.keep < 0:
        raise InputError(f"--keep {arguments.keep}: give a whole number of 0 or more")
    if arguments.engine is not None:
        return _prune_engine(arguments)
    if arguments.also:
        raise InputError("--also: needs --engine; releases are pruned one directory at a time")
    before = len(release_ids(arguments.releases))
    outcomes = prune(arguments.releases, arguments.keep, dry_run=arguments.dry_run)
    _, removed = _report_decisions(outcomes, "would prune" if arguments.dry_run else "pruned")
    say(f"{before - removed} of {before} releases kept")
    return 0


def _prune_engine(arguments: argparse.Namespace) -> int:
    """Drop collections that no release of the directories uses, and print their names to stdout."""
    directories = [arguments.releases, *arguments.also]
    say(f"keeping collections that a release in {', '.join(map(str, directories))} uses; add others with --also")
    outcomes = prune_collections(engine_from_environment(arguments.engine), directories, dry_run=arguments.dry_run)
    count, dropped = _report_decisions(outcomes, "would drop" if arguments.dry_run else "dropped")
    say(f"{count - dropped} of {count} collections kept")
    return 0


def _report_decisions(outcomes: Iterable[PruneDecision | CollectionDecision], word: str) -> tuple[int, int]:
    """Print the decisions as they are carried out; returns their number, and how many removed something."""
    count = removed = 0
    for outcome in outcomes:
        count += 1
        if outcome.kept is None:
            removed += 1
            sys.stdout.write(f"{word} {outcome.name}\n")
        else:
            say(f"kept {outcome.name}: {outcome.kept}")
    return count, removed
