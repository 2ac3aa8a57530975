"""Promotion, rollback and shadow: which release may become current, how pointers move, and where a rollback leads."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from taugate.errors import InputError, NotPromoted, ReleaseError
from taugate.registry import catalog, history
from taugate.registry.history import POINTERS, Action, Event, change_lock
from taugate.release.layout import CURRENT, KNOWN_PAIRS, RERANKER_FOLDER, SHADOW
from taugate.release.manifest import ReleaseManifest
from taugate.release.search_records import read_pairs
from taugate.release.verify import TrustedKeys, verify
from taugate.retrieval.engines.engine import engine_from_environment, open_verified
from taugate.storage.files import atomic_write, sync_folder

_SECONDS = 120.0  # for all requests to the engine, which read 4,096 rows

# Rules that can be overridden, as the history names them.
POLICY, ENCODER, CHANCE, PROVISIONAL = "policy none", "new encoder", "accuracy not above chance", "provisional"
NOT_ADMITTED = "encoder not admitted"


def verify_with_collection(
    release: Path, trusted: TrustedKeys | None = None, environ: Mapping[str, str] = os.environ
) -> ReleaseManifest:
    """Verify a release and, if it has an engine record, its collection in the engine that the environment names."""
    # Returns the manifest.
    manifest = verify(release, trusted)
    searched = manifest.searchable
    if searched is not None and searched.engine is not None:
        try:
            engine = engine_from_environment(searched.engine.kind, environ)
        except InputError as error:
            raise ReleaseError(f"{release.name}: {error}") from error
        open_verified(engine, searched.engine, searched.dimension, time.monotonic() + _SECONDS)
    return manifest


@dataclass(frozen=True)
class SatisfiedRule:
    """A rule that a release met in a comparison with the current one."""

    rule: str
    over: str | None  # id of the current release that it was compared with, None if there was none


def promote(
    releases: Path,
    name: str,
    trusted: TrustedKeys | None = None,
    *,
    force: bool = False,
    new_encoder: bool = False,
    rule: SatisfiedRule | None = None,
) -> ReleaseManifest:
    """Make a release the current one; returns its manifest.

    Args:
        name: Id of the release, or the beginning of one.
        trusted: Keys, one of which must have signed the release; None requires no signature.
        force: Promote even if the policy is none, if accuracy is not shown to be above chance, if the release is
            provisional and the current one calibrated, or if `taugate adapt` did not accept its encoder.
        new_encoder: Promote even if the encoder is not that of the current release.
        rule: The rule that the release met, for the history; refused unless the release that it names is still current.

    Raises:
        NotPromoted: If the release's evidence is against it. After this and the other errors, the pointer is unchanged.
        ReleaseError: If the release does not verify, or another rule is against it.
        OSError: If the directory cannot be written.
    """
    release = catalog.find(releases, name)
    name, manifest = release.name, verify_with_collection(release, trusted)
    with change_lock(releases):
        catalog.find(releases, name)  # it may have been pruned in the meantime
        current = catalog.pointed_id(releases, CURRENT)
        if current == name:
            return manifest
        if rule is not None and current != rule.over:
            raise ReleaseError(
                f"{releases}: another command made {current} current while {name} was compared with {rule.over}; "
                "compare it again with `taugate release promote --if`"
            )
        objections = _objections(manifest, releases)
        if objections and not force:
            raise next(iter(objections.values()))
        forced = list(objections)
        if scorer_differs(releases, manifest):
            if not new_encoder:
                raise _other_scorer(releases, manifest)
            forced.append(ENCODER)
        _move_pointer(releases, "promote", name, forced, None if rule is None else rule.rule)
    return manifest


def check_evidence(releases: Path, manifest: ReleaseManifest) -> None:
    """Raise NotPromoted or ReleaseError, as `promote` would, if the evidence of a release is against it."""
    if objections := _objections(manifest, releases):
        raise next(iter(objections.values()))


def rollback(releases: Path, name: str | None = None, trusted: TrustedKeys | None = None) -> str:
    """Restore a release that was current before; returns its id.

    Args:
        name: Id of the release, or the beginning of one; by default the previous one.

    Raises:
        ReleaseError: If there is no such release, or if it does not verify.
        OSError: If the directory cannot be written.
    """
    name = None if name is None else catalog.find(releases, name).name
    target = _target(releases, name)
    verify_with_collection(catalog.find(releases, target), trusted)
    with change_lock(releases):
        if _target(releases, name) != target:
            raise ReleaseError(
                f"{releases}: another command made a release current in the meantime; see `taugate release history`"
            )
        _move_pointer(releases, "rollback", target)
    return target


def shadow(releases: Path, name: str | None, trusted: TrustedKeys | None = None) -> None:
    """Name the release that is tried beside the current one."""
    if name is not None:
        release = catalog.find(releases, name)
        name = release.name
        verify_with_collection(release, trusted)
    with change_lock(releases):
        if name is not None and catalog.find(releases, name).name == catalog.pointed_id(releases, CURRENT):
            raise ReleaseError(f"{name}: is the current release; name another to be tried beside it")
        if (releases / SHADOW).exists() or name is not None:
            _move_pointer(releases, "shadow", name)


def rollback_targets(releases: Path) -> list[str]:
    """Return the ids of existing releases that were current before, the latest first."""
    # A rollback undoes the promotions after its target, so that a second rollback goes further back. What was current
    # before the history begins, or without a history, is taken from the parents in the manifests.
    current = catalog.pointed_id(releases, CURRENT)
    stack = _promotion_stack(_moves_of_current(releases))
    names = [*reversed(stack), *_ancestors(releases, stack[0] if stack else current)]
    existing = set(catalog.release_ids(releases)) - {current}
    return [name for name in dict.fromkeys(names) if name in existing]


def _objections(manifest: ReleaseManifest, releases: Path) -> dict[str, ReleaseError]:
    """Return the objections to a release from the evidence in its manifest; each key is the rule --force overrides."""
    name, k, record = manifest.release_id, manifest.policy.k, manifest.calibration
    objections: dict[str, ReleaseError] = {}
    if manifest.policy.tau is None:
        objections[POLICY] = ReleaseError(
            f"{name}: its policy is none, which keeps every result; calibrate with more labelled queries, or give "
            "--force"
        )
    if record is not None and (chance_warning := record.chance_warning(k)):
        objections[CHANCE] = NotPromoted(f"{name}: {chance_warning}, or give --force", CHANCE)
    current = catalog.pointed_id(releases, CURRENT)
    state = catalog.calibration_state(releases, current)
    if record is not None and record.state == "provisional" and state not in {None, "provisional"}:
        objections[PROVISIONAL] = NotPromoted(
            f"{name}: provisional, and the current release {current} is {state}: {record.because(k)}, or give --force",
            PROVISIONAL,
        )
    adaptation = manifest.adaptation
    if (
        adaptation is not None and not adaptation.admitted and (current is None or scorer_differs(releases, manifest))
    ):  # if the current release has the same encoder, that decision has been made
        objections[NOT_ADMITTED] = NotPromoted(
            f"{name}: its encoder is not shown to be better than {adaptation.base}, so `taugate adapt` did not accept "
            f"it: {adaptation.reason}, or give --force",
            NOT_ADMITTED,
        )
    return objections


def encoder_differs(releases: Path, sha256: str) -> bool:
    """Return whether the current release has another float32 encoder; False if no release is current."""
    return bool(catalog.encoder_record(releases, catalog.pointed_id(releases, CURRENT)).get("sha256", sha256) != sha256)


def scorer_differs(releases: Path, manifest: ReleaseManifest) -> bool:
    """Return whether what scores the current release's results differs from a release's; False if none is current."""
    # The digest of an endpoint depends on its known pairs, so those of two second stages are compared as well.
    names = (catalog.pointed_id(releases, CURRENT), manifest.release_id)
    current, new = (catalog.scorer_record(releases, name) for name in names)
    if current.get("sha256", manifest.scorer.sha256) == manifest.scorer.sha256:
        return False
    if not all("first" in record for record in (current, new)):  # both are of a second stage
        return True
    paths = [releases / str(name) / RERANKER_FOLDER / KNOWN_PAIRS for name in names]
    before, after = ({(pair.query, pair.document): pair.score for pair in read_pairs(path)} for path in paths)
    differences = [abs(score - after[pair]) for pair, score in before.items() if pair in after]
    return not differences or max(differences) > cast(float, new["tolerance"])


def _other_scorer(releases: Path, manifest: ReleaseManifest) -> ReleaseError:
    """Return the error for a release whose results are not scored as those of the current one."""
    name, current = manifest.release_id, catalog.pointed_id(releases, CURRENT)
    record = catalog.scorer_record(releases, current)
    had_two, has_two = ("first" in scored_by for scored_by in (record, catalog.scorer_record(releases, name)))
    if had_two != has_two:
        left_out = "" if has_two else "; a second stage that is not shown to help is left out"
        return NotPromoted(
            f"{name}: has {('one stage', 'two stages')[has_two]}, but the current release {current} has "
            f"{('one', 'two')[had_two]}, so thresholds of the two cannot be compared{left_out}. To promote it anyway: "
            f"taugate release promote {name} --releases {releases} --new-encoder",
            ENCODER,
        )
    return ReleaseError(
        f"{name}: {'ranked' if has_two else 'encoded'} by {manifest.scorer.name}, but the current release {current} by "
        f"{record.get('name')} (which may be another export of the same model), so similarities and thresholds of the "
        "two cannot be compared; to promote it anyway, give --new-encoder"
    )


def current_encoder_name(releases: Path) -> str | None:
    """Return the name of the current release's encoder, None if there is none or it cannot be read."""
    name = catalog.encoder_record(releases, catalog.pointed_id(releases, CURRENT)).get("name")
    return name if isinstance(name, str) else None


def _target(releases: Path, name: str | None) -> str:
    current, before = catalog.pointed_id(releases, CURRENT), rollback_targets(releases)
    if current is None:
        raise ReleaseError(f"{releases}: no release is current; promote one ({_promotable(releases, current)})")
    if name is None and before:
        return before[0]
    if name is not None and name in before:
        return name
    problem = f"{current} has no earlier release to roll back to"
    if name is not None:
        problem = f"{name} was never current before {current}"
    earlier = f"; earlier releases: {catalog.newest(before[::-1])}" if before else ""
    raise ReleaseError(f"{releases}: {problem}{earlier}; promote one ({_promotable(releases, current)})")


def _promotable(releases: Path, current: str | None) -> str:
    names = [name for name in catalog.release_ids(releases) if name != current]
    return catalog.newest(names) if names else "calibrate one first"


def _move_pointer(
    releases: Path, action: Action, name: str | None, forced: Sequence[str] = (), rule: str | None = None
) -> None:
    """Record an action, then move its pointer atomically; the caller holds the change lock."""
    pointer = releases / POINTERS[action]
    size = history.record(releases, action, name, catalog.pointed_id(releases, pointer.name), forced, rule)
    try:
        if name is None:
            pointer.unlink(missing_ok=True)
            sync_folder(releases)
        else:
            atomic_write(pointer, f"{name}\n".encode("ascii"))
    except OSError as error:
        raise OSError(f"{pointer}: cannot be replaced ({error.strerror}); it is unchanged") from error
    except BaseException:  # Ctrl-C and SIGTERM
        if catalog.pointed_id(releases, pointer.name) != name:
            history.withdraw(releases, size)
        raise


def _moves_of_current(releases: Path) -> list[Event]:
    """Return the events that moved `current`, oldest first."""
    events = history.read(releases).events
    pointers = {pointer: catalog.pointed_id(releases, pointer) for pointer in (CURRENT, SHADOW)}
    done = history.took_effect(events, pointers)
    return [event for event, moved in zip(events, done, strict=True) if moved and POINTERS.get(event.action) == CURRENT]


def _promotion_stack(moves: list[Event]) -> list[str]:
    """Replay moves of `current`; returns the current release last, after those that led to it."""
    stack: list[str] = []
    for event in moves:
        if event.previous is not None and stack[-1:] != [event.previous]:  # first, or after an unrecorded move
            stack.append(event.previous)
        if event.release is None:
            continue
        if event.action == "rollback":  # to a release of the stack, or to an earlier parent
            while stack and stack[-1] != event.release:
                stack.pop()
        if stack[-1:] != [event.release]:
            stack.append(event.release)
    return stack


def _ancestors(releases: Path, name: str | None) -> list[str]:
    """Return the parent of a release, its parent, and so on."""
    ancestors: list[str] = []
    parent = catalog.parent_of(releases, name)
    while parent is not None and parent not in ancestors:
        ancestors.append(parent)
        parent = catalog.parent_of(releases, parent)
    return ancestors
