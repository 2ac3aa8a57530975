"""`taugate release list|show|verify|history|diff`: the releases, their contents, their history and differences."""

import dataclasses
import sys
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import cast

import click
import orjson
from pydantic import ValidationError

from taugate.cli.release import action, command, release_argument
from taugate.cli.terminal.command import Option
from taugate.cli.terminal.output import aligned, print_result, printable, say
from taugate.errors import InputError, ReleaseError
from taugate.policy.names import PLAIN, shown_tau
from taugate.registry import history
from taugate.registry.catalog import (
    ReleaseSummary,
    current_id,
    find,
    match_id,
    pointed_id,
    release_ids,
    summarize,
    unverified_manifest,
)
from taugate.release import check_certificate
from taugate.release.layout import CURRENT, EVIDENCE, HISTORY, MANIFEST, SHADOW
from taugate.release.records import CalibrationRecord
from taugate.storage.files import Json

_WIDTH, _MAX_DATA = 100, 16  # columns of a line, and of the name of a data set


@action("list")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def list_releases(releases: Path, as_json: bool) -> int:
    """List releases, oldest first; * marks the current one, ~ the shadow.

    The lines below a release say what is certified and checked, and what differs from the release above. The header
    goes to stderr.
    """
    try:
        current = current_id(releases)
    except ReleaseError as error:
        current = None
        say(f"taugate: {error}")
    shadow = pointed_id(releases, SHADOW)
    summaries = [summarize(releases, name) for name in release_ids(releases)]
    differences = [[], *(release.differs_in(before) for before, release in pairwise(summaries))]
    listed = [*zip(summaries, differences, strict=False)]
    if as_json:
        rows = [_json_row(release, current, shadow) | {"differs": differs} for release, differs in listed]
        print_result({"releases": rows})
        return 0
    marks, now = {shadow: "~", current: "*"}, datetime.now(UTC)
    titles = ("  release", "age", "state", "data", "τ")
    header, *lines = aligned([titles, *(_cells(release, marks, now) for release in summaries)])
    if lines:
        say(header)
        sys.stderr.flush()
    for line, outcome in zip(lines, listed, strict=True):
        print_result("\n".join(printable(text) for text in (line, *_outcome(*outcome))))
    return 0


def _outcome(release: ReleaseSummary, differences: list[str]) -> list[str]:
    """Return what is certified and checked, and what differs, on lines of the width of a terminal."""
    lines = [*(release.summary or "").splitlines(), *([f"Differs in {', '.join(differences)}"] if differences else [])]
    wrapper = textwrap.TextWrapper(_WIDTH, initial_indent="    ", subsequent_indent="      ")
    return [part for line in lines for part in wrapper.wrap(line)]


def _cells(release: ReleaseSummary, marks: Mapping[str | None, str], now: datetime) -> tuple[str, ...]:
    """Format the columns of a release: id with its mark, age, state, data and threshold."""
    data = release.data or "–"
    if release.split not in {None, "test"}:  # the default of `taugate calibrate`
        data = f"{data}/{release.split}"
    tau = shown_tau(release.tau) if release.tau is not None else "–" if release.policy is None else "none"
    notes = []
    if release.policy is not None and release.policy not in PLAIN:
        notes.append(release.policy)
    if release.lexical is not None:
        notes.append(f"lexical {release.lexical:g}")
    if notes:
        tau = f"{tau} ({', '.join(notes)})"
    name = f"{marks.get(release.release, ' ')} {release.release}"
    return name, release.age(now), release.state or "unreadable", data[:_MAX_DATA], tau


def _json_row(release: ReleaseSummary, current: str | None, shadow: str | None) -> dict[str, Json]:
    marks = {"current": release.release == current, "shadow": release.release == shadow}
    facts = {name: value for name, value in dataclasses.asdict(release).items() if name != "basis"}
    return {**facts, **marks, "created": release.created and release.created.isoformat()}


@action("show")
@release_argument("the current one")
def show_manifest(releases: Path, id: str | None) -> int:
    """Print the manifest as it is stored; stderr has its state, and what is certified and checked."""
    release = find(releases, id)
    shown, why = summarize(releases, release.name), _why(unverified_manifest(releases, release.name))
    for line in (f"{release.name} is {shown.state}{why and f': {why}'}", *(shown.summary or "").splitlines()):
        say(printable(line))
    sys.stdout.buffer.write((release / MANIFEST).read_bytes())
    return 0


def _why(manifest: Mapping[str, Json]) -> str:
    """Return why a release, perhaps of another version, is provisional, and the remedy; empty if it is not."""
    try:
        return CalibrationRecord.model_validate(manifest["calibration"]).because(
            cast("dict[str, int]", manifest["policy"])["k"]
        )
    except (KeyError, TypeError):
        return ""
    except ValidationError:
        return "see calibration.reasons"


@action("verify")
@release_argument("all")
@click.option(
    "--trusted-keys",
    cls=Option,
    variable="TAUGATE_TRUSTED_KEYS",  # registry.signing, whose import loads NumPy
    envvar="TAUGATE_TRUSTED_KEYS",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="public keys (PEM), one of which must have signed it",
)
def verify_releases(releases: Path, id: str | None, trusted_keys: Path | None) -> int:
    """Check every digest, of all releases by default; any failure gives exit code 1."""
    from taugate.registry import writer  # loads NumPy, which the other actions do without
    from taugate.registry.promotion import verify_with_collection

    names = release_ids(releases)
    if id:
        names = [match_id(names, id, str(releases))]
    failed, trusted = 0, writer.trusted_keys(trusted_keys)
    for name in names:
        try:
            verify_with_collection(find(releases, name), trusted)
            print_result(f"ok {name}")
        except (ReleaseError, OSError) as error:
            failed += 1
            print_result(f"failed {name}")
            say(f"taugate: {error}")
    return 1 if failed else 0


@action("check")
@release_argument("the current one")
def check_release(releases: Path, id: str | None) -> int:
    """Verify a release, and recompute its figures from its evidence, with those that check_certificate.py leaves out.

    The first figure that differs gives exit code 1.
    """
    from taugate.evidence.drawn import recompute_drawn  # these load NumPy, which the other actions do without
    from taugate.release.verify import verify

    release = find(releases, id)
    manifest = verify(release)
    figures, different = check_certificate.recompute(release)
    if not different:
        evidence = orjson.loads((release / EVIDENCE).read_bytes())
        stated = {"roles": evidence["answerable"]["role"], **orjson.loads((release / MANIFEST).read_bytes())}
        drawn = recompute_drawn(evidence, manifest)
        different = [*check_certificate.unequal("manifest", drawn, stated)]
        figures = [figures, drawn]
    if different:
        print_result(f"failed {release.name}")
        say(f"taugate: {printable(different[0])}")
        return 1
    print_result(f"ok {release.name}: {check_certificate.leaves(figures)} figures are those of the evidence")
    return 0


@action("history")
def show_history(releases: Path) -> int:
    """List every promotion and removal, oldest first, with user and time."""
    existing = set(release_ids(releases))
    log = history.read(releases)
    done = history.took_effect(log.events, {pointer: pointed_id(releases, pointer) for pointer in (CURRENT, SHADOW)})
    for event, moved in zip(log.events, done, strict=True):
        interrupted = not moved or (event.action == "prune" and event.release in existing)
        print_result(_event_line(event, interrupted=interrupted))
    if log.unreadable:
        numbers = ", ".join(map(str, log.unreadable))
        say(f"taugate: {releases / HISTORY}: line {numbers} is truncated and was ignored")
    return 0


def _event_line(event: history.Event, *, interrupted: bool) -> str:
    """Format an event of the history as one line."""
    by = event.by if event.named is None else f"{event.named}, {event.by}"
    words = [event.at, f"{event.action:8}", event.release or "none", f"by {by}"]
    if event.previous is not None:
        words.append(f"was {event.previous}")
    if event.forced:
        words.append(f"forced: {', '.join(event.forced)}")
    if event.rule is not None:
        words.append(f"as {event.rule}")
    if interrupted:
        words.append("interrupted, without effect")
    return printable("  ".join(words))


@action("diff")
@click.argument(
    "names", metavar="[A] B", nargs=-1, required=True, help="ids of the releases (default of A: the current one)"
)
def show_differences(releases: Path, names: tuple[str, ...]) -> int:
    """Show the differences from release A to release B; the summaries of both go to stderr.

    Of two runs, it also says whether the new retriever and its gate are as good, and which threshold keeps as much.
    """
    from taugate.calibration.report.compare import compare_releases, same_queries  # these load NumPy
    from taugate.release.verify import verify

    if len(names) > 2:
        raise click.UsageError("give the ids of one or two releases")
    folders = [find(releases, name) for name in (None, *names)[-2:]]
    old, new = map(verify, folders)
    for manifest in (old, new):
        if manifest.summary is not None:
            for line in (f"{manifest.release_id} is {manifest.state_in_words}", *manifest.summary.splitlines()):
                say(printable(line))
    rows = [(f"{row.group}: {row.label}", *row.cells()) for row in compare_releases(old, new)]
    changed = [row for row in rows if row[1] != row[2]]
    print_result("\n".join(aligned(changed, right=(1, 2, 3))) or "no difference")
    if old.searchable is None and new.searchable is None:
        from taugate.calibration.comparison.upgrade import Upgrade  # needs scipy, which the service does without

        upgrade = Upgrade.between(*folders)
        for sentence in [] if upgrade is None else upgrade.sentences():
            print_result(sentence)
    if not same_queries(old, new):
        say("measured on different queries or documents: the differences include changes in the data")
    return 0


@command.command("correlations", hidden=True)
@click.option("--releases")
def show_correlations(releases: str | None) -> int:
    """Say what has taken the place of this command."""
    raise InputError("release correlations: now a table of `taugate compare`, with three encoders or more")
