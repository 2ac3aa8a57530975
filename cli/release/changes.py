"""`taugate release promote|rollback|shadow|prune`: what is served, and what is kept."""

import argparse
import sys

from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.words import PROVISIONAL, report
from taugate.errors import InputError
from taugate.registry import promotion
from taugate.registry.catalog import release_ids
from taugate.registry.prune import prune
from taugate.registry.signing import trusted_keys


def promote(arguments: argparse.Namespace) -> int:
    """Make a release the current one, if it verifies and no rule is against it."""
    if arguments.rule is not None:
        return _promote_if(arguments)
    rules = {"force": arguments.force, "new_encoder": arguments.new_encoder}
    promoted = promotion.promote(arguments.releases, arguments.id, trusted_keys(), **rules)
    if promoted.state == "provisional":
        sys.stderr.write(f"{PROVISIONAL}\n")
    sys.stdout.write(f"* {arguments.id}\n")
    return 0


def _promote_if(arguments: argparse.Namespace) -> int:
    """Comparing needs the extra `calibration`, and the other changes do not."""
    if arguments.force:
        raise InputError("--force: sets aside what --if asks for; leave one of them out")
    rule = PromotionRule.parse(arguments.rule, "--if")
    from taugate.calibration.comparison.decision import promote_if

    rules = {"new_encoder": arguments.new_encoder}
    decision = promote_if(arguments.releases, arguments.id, rule, trusted_keys(), **rules)
    code = report(decision, lambda line: sys.stderr.write(line + "\n"))
    if decision.holds:
        sys.stdout.write(f"* {arguments.id if decision.promoted else decision.current}\n")
    return code


def rollback(arguments: argparse.Namespace) -> int:
    """Back to the release before."""
    sys.stdout.write(f"* {promotion.rollback(arguments.releases, arguments.id, trusted_keys())}\n")
    return 0


def shadow(arguments: argparse.Namespace) -> int:
    """Name the shadow, or none."""
    if (arguments.id is None) != arguments.none:
        raise InputError("give either the ID of a release or --none")
    promotion.shadow(arguments.releases, arguments.id, trusted_keys())
    if arguments.id is not None:
        sys.stdout.write(f"~ {arguments.id}\n")
    return 0


def pruned(arguments: argparse.Namespace) -> int:
    """Ids of what was removed go to stdout, why others stay to stderr."""
    if arguments.keep < 0:
        raise InputError(f"--keep {arguments.keep}: give a whole number of 0 or more")
    word = "would prune" if arguments.dry_run else "pruned"
    before = len(release_ids(arguments.releases))
    removed = 0
    for outcome in prune(arguments.releases, arguments.keep, dry_run=arguments.dry_run):
        if outcome.kept is None:
            removed += 1
            sys.stdout.write(f"{word} {outcome.name}\n")
        else:
            sys.stderr.write(f"kept {outcome.name}: {outcome.kept}\n")
    sys.stderr.write(f"{before - removed} of {before} releases stay\n")
    return 0
