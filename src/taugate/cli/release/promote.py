"""`taugate release promote|rollback|shadow|prune`: choose the current and the shadow release, and remove old ones."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar, get_args

import click
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.comparison.publish import publish
from taugate.calibration.comparison.words import PROVISIONAL, report
from taugate.cli.release.action import action, by_option, command, release_argument
from taugate.cli.terminal.options import Appearance, Releases, command_of, option
from taugate.cli.terminal.output import print_result, say
from taugate.cli.terminal.promotion import FORCE_HELP, PromotionOptions
from taugate.errors import InputError
from taugate.registry import promotion
from taugate.registry.catalog import find, release_ids
from taugate.registry.collections import HOURS, prune_collections
from taugate.registry.prune import KEEP, PruneDecision, prune
from taugate.registry.signing import trusted_keys
from taugate.retrieval.engines.connect import engine_from_environment
from taugate.retrieval.engines.engine import EngineKind


@dataclass(frozen=True, kw_only=True)
class PromoteOptions(PromotionOptions):
    """The options of `taugate release promote`."""

    sentence_option: ClassVar[str] = "--if"

    id: Annotated[str, Appearance("ID", positional=True)] = Field(description="release id")
    force: bool = option(False, f"also promote a release whose policy is none; {FORCE_HELP}")
    new_encoder: bool = option(False, "also promote a release with another encoder")
    releases: Releases


def promote(options: PromoteOptions) -> int:
    """Make a release current, if it verifies and its rule holds."""
    release = find(options.releases, options.id)
    published = publish(release, options.promotion(new_encoder=options.new_encoder, signs=False))
    decision = published.decision
    if published.provisional and decision is None:
        say(PROVISIONAL)
    if decision is None and published.message is not None:
        say(f"taugate: {published.message}")
    if decision is not None:
        report(decision, say)
    if published.code == 0:
        print_result(f"* {release.name if decision is None or decision.promoted else decision.current}")
    return published.code


command.add_command(
    command_of(
        "promote",
        promote,
        PromoteOptions,
        without=("no_promote", "sign_with"),
        promote_if=Appearance("RULE", ("--if",), hidden=True),
    )
)


@action("rollback")
@release_argument("the previous one")
@by_option
def roll_back(releases: Path, id: str | None) -> int:
    """Make the previous release current again, or an earlier one."""
    print_result(f"* {promotion.rollback(releases, id, trusted_keys())}")
    say("A service with TAUGATE_RELOAD_SECONDS loads it by itself; tell another one: SIGHUP, or POST /admin/reload.")
    return 0


@action("shadow")
@release_argument("none, with --none")
@click.option("--none", is_flag=True, help="remove the shadow release")
@by_option
def set_shadow(releases: Path, id: str | None, none: bool) -> int:
    """Set or remove the shadow release, which is tried beside the current one."""
    if (id is None) != none:
        raise InputError("give either a release id or --none")
    name = None if id is None else find(releases, id).name
    promotion.shadow(releases, name, trusted_keys())
    if name is not None:
        print_result(f"~ {name}")
    return 0


@action("prune")
@click.option(
    "--keep", metavar="N", type=int, default=KEEP, help=f"number of newest releases to keep (default: {KEEP})"
)
@click.option(
    "--engine",
    type=click.Choice(get_args(EngineKind)),
    help=f"drop collections of this engine instead, older than {HOURS} hours, that no release names",
)
@click.option(
    "--also",
    metavar="DIR",
    type=click.Path(path_type=Path),
    multiple=True,
    help="with --engine: another directory of releases in the same engine; name all of them",
)
@click.option("--dry-run", is_flag=True, help="list what would be removed, without removing it")
@by_option
def prune_releases(releases: Path, keep: int, engine: EngineKind | None, also: tuple[Path, ...], dry_run: bool) -> int:
    """Remove old releases that are no longer needed; stderr says why the others are kept."""
    if keep < 0:
        raise InputError(f"--keep {keep}: give a whole number of 0 or more")
    if engine is not None:
        return _prune_engine(engine, [releases, *also], dry_run=dry_run)
    if also:
        raise InputError("--also: needs --engine; releases are pruned one directory at a time")
    before = len(release_ids(releases))
    _, removed = _report_decisions(prune(releases, keep, dry_run=dry_run), "would prune" if dry_run else "pruned")
    say(f"{before - removed} of {before} releases kept")
    return 0


def _prune_engine(engine: EngineKind, directories: list[Path], *, dry_run: bool) -> int:
    """Drop collections that no release of the directories uses, and print their names to stdout."""
    say(f"keeping collections that a release in {', '.join(map(str, directories))} uses; add others with --also")
    outcomes = prune_collections(engine_from_environment(engine), directories, dry_run=dry_run)
    count, dropped = _report_decisions(outcomes, "would drop" if dry_run else "dropped")
    say(f"{count - dropped} of {count} collections kept")
    return 0


def _report_decisions(outcomes: Iterable[PruneDecision], word: str) -> tuple[int, int]:
    """Print the decisions as they are carried out; returns their number, and how many removed something."""
    count = removed = 0
    for outcome in outcomes:
        count += 1
        if outcome.kept is None:
            removed += 1
            print_result(f"{word} {outcome.name}")
        else:
            say(f"kept {outcome.name}: {outcome.kept}")
    return count, removed
