"""`taugate release promote|rollback|shadow|prune|erase|sign|push|pull`: the actions that change releases."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, ClassVar

import click
from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.comparison.publish import PROVISIONAL, publish, report
from taugate.cli.release import action, by_option, command, release_argument
from taugate.cli.terminal.options import Appearance, Releases, command_of, option
from taugate.cli.terminal.output import print_result, printable, say
from taugate.cli.terminal.promotion import FORCE_HELP, PromotionOptions
from taugate.errors import InputError
from taugate.registry import promotion
from taugate.registry.after_erasure import find_remnants
from taugate.registry.catalog import current_id, find, release_ids
from taugate.registry.prune import HOURS, KEEP, PruneDecision, prune, prune_collections
from taugate.registry.transfer import check_remote_current, promote_remote, pull, push
from taugate.registry.writer import read_private_key, sign, trusted_keys
from taugate.release.layout import SIGNATURE
from taugate.retrieval.engines.engine import engine_from_environment


@dataclass(frozen=True, kw_only=True)
class PromoteOptions(PromotionOptions):
    """The options of `taugate release promote`."""

    sentence_option: ClassVar[str] = "--if"

    id: Annotated[str, Appearance("ID", positional=True)] = Field(description="release id")
    force: bool = option(False, f"also promote a release whose policy is none; {FORCE_HELP}")
    new_encoder: bool = option(False, "also promote a release with another encoder")
    releases: Releases


def promote_release(options: PromoteOptions) -> int:
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
        promote_release,
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
    metavar="NAME",
    help=f"drop collections of this engine, such as milvus, instead, older than {HOURS} hours, that no release names",
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
def prune_releases(releases: Path, keep: int, engine: str | None, also: tuple[Path, ...], dry_run: bool) -> int:
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


def _prune_engine(engine: str, directories: list[Path], *, dry_run: bool) -> int:
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


@action("erase")
@click.argument(
    "names",
    metavar="ID DOCUMENT...",
    nargs=-1,
    required=True,
    help="release id, and ids of documents as in the corpus; with --check, ids of documents",
)
@click.option("--check", is_flag=True, help="search all files of DIR; exit code 1 if anything is found")
@click.option("--text", "texts", metavar="TEXT", multiple=True, help="words of a document to search for")
@click.option(
    "--also",
    metavar="PATH",
    type=click.Path(path_type=Path),
    multiple=True,
    help="another file or folder to search, such as a query log",
)
def erase_documents(
    releases: Path, names: tuple[str, ...], check: bool, texts: tuple[str, ...], also: tuple[Path, ...]
) -> int:
    """Make a release without some documents; --check: search for their remains."""
    if check:
        left = find_remnants([releases, *also], [*names], [*texts])
        for line in left.matches:
            print_result(f"{printable(line)}")
        say(f"{'found' if left.matches else 'found no'} text of the erased documents in {left.files:,} files searched")
        return 1 if left.matches else 0
    if texts or also:
        raise InputError("--text and --also: only valid with --check; add --check, and leave out the release")
    if len(names) < 2:
        raise InputError("give the ID of a release, then the ids of the documents to erase")
    return _erase(releases, find(releases, names[0]).name, [*names[1:]])


def _erase(releases: Path, name: str, documents: list[str]) -> int:
    """Make the release without the documents; print its id to stdout, and the next steps to stderr."""
    from taugate.registry import erasure  # opens a release, which takes a second

    erased = erasure.erase(releases, name, documents, trusted_keys())
    new_name = erased.manifest.release_id
    lines = [
        f"made from {name}; documents erased: {len(set(documents))}",
        f"golden queries with another answer: {erased.changed}; removed, because no answer is left: {erased.dropped}",
    ]
    lines += [f"withdrawn: {record.words} Not shown: {record.reason}." for record in erased.manifest.withdrawn or ()]
    if (releases / name / SIGNATURE).exists():
        lines.append(f"sign it first: taugate release sign {new_name} --releases {releases} --key PEM")
    lines.append(f"not promoted: taugate release promote {new_name} --releases {releases}")
    lines.append(
        f"{name} and older releases still have the texts; docs/runbooks/erase-a-document.md lists other copies"
    )
    for line in lines:
        say(line)
    print_result(f"{new_name}")
    return 0


@action("sign")
@click.option("--key", metavar="PEM", type=click.Path(path_type=Path), required=True, help="Ed25519 private key")
@release_argument()
def sign_release(releases: Path, key: Path, id: str) -> int:
    """Sign a release, if it verifies."""
    private_key = read_private_key(key)
    release = find(releases, id)
    print_result(f"signed {release.name} {sign(release, private_key)}")
    return 0


@action("push")
@click.option("--to", metavar="URL", required=True, help="such as s3://bucket/prefix")
@click.option("--promote", is_flag=True, help="also make it current there; it must be current in DIR")
@release_argument("the current one")
def push_release(releases: Path, to: str, promote: bool, id: str | None) -> int:
    """Copy a release to object storage.

    Only the current release of DIR can be promoted there, because DIR has the promotion rules and the history.
    """
    release = find(releases, id)
    if promote and release.name != current_id(releases):
        raise InputError(
            f"{release.name}: not the current release of {releases}; make it current with `taugate "
            "release promote` or `rollback` first, or leave out --promote"
        )
    if promote:
        check_remote_current(to, releases)
    push(release, to, trusted_keys())
    if promote:
        promote_remote(to, release.name)
    print_result(f"{'*' if promote else ' '} {to.rstrip('/')}/{release.name}")
    return 0


@action("pull")
@click.option("--from", "source", metavar="URL", required=True, help="such as s3://bucket/prefix")
@release_argument("the current one, which becomes current here too")
def pull_release(releases: Path, source: str, id: str | None) -> int:
    """Copy a release from object storage to DIR.

    It is no error if no release is current there, as before the first push.
    """
    name = pull(source, releases, id, trusted_keys())
    if name is None:
        say(f"{source}: no release is current there; nothing was pulled")
        return 0
    print_result(f"{'*' if name == current_id(releases) else ' '} {name}")
    return 0
