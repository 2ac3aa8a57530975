"""Promotion, rollback and shadow: one set of rules on what may become current, for every command."""

from dataclasses import dataclass
from pathlib import Path

from taugate.errors import NotPromoted, ReleaseError
from taugate.registry.catalog import calibration_state, encoder_record, find, newest, pointed_id, release_ids
from taugate.registry.lock import change_lock
from taugate.registry.pointer import move_pointer, rollback_targets
from taugate.retrieval.release.layout import CURRENT, SHADOW
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify

# Rules that can be set aside, as the history names them.
POLICY, ENCODER, CHANCE, PROVISIONAL = "policy none", "new encoder", "accuracy not above chance", "provisional"


@dataclass(frozen=True)
class SatisfiedRule:
    """A rule that a release was found to meet in a comparison with the current one.

    rule: the rule and the finding, in words. over: id of the release that it was compared with; None where none was
    current.
    """

    rule: str
    over: str | None


def promote(
    releases: Path,
    name: str,
    trusted: TrustedKeys | None = None,
    *,
    force: bool = False,
    new_encoder: bool = False,
    rule: SatisfiedRule | None = None,
) -> Manifest:
    """Make a release the current one; returns its manifest.

    releases: the releases directory. name: the release's id, or the beginning of one. trusted: keys of which one must
    have signed the release; None asks for no signature. force: promote also a release whose policy is none, which drops
    nothing, one whose accuracy is not shown to be above chance, and a provisional one in the place of a calibrated one.
    new_encoder: promote also a release of another encoder than the current one's. rule: the rule that the release was
    found to meet, for the history; it holds for the one current release that it names.

    Raises NotPromoted where the release's evidence is against it, ReleaseError where it does not verify or another rule
    is against it, OSError where the directory cannot be written to; then nothing has changed.
    """
    release = find(releases, name)
    name, manifest = release.name, verify(release, trusted)
    with change_lock(releases):
        find(releases, name)  # it may have been pruned meanwhile
        current = pointed_id(releases, CURRENT)
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
        if encoder_differs(releases, float32_encoder(manifest)):
            if not new_encoder:
                raise ReleaseError(
                    f"{name}: encoded by {manifest.encoder.name}, the current release {current} by "
                    f"{current_encoder_name(releases)}, or by another export of it: similarities and thresholds of the "
                    "two cannot be compared; give --new-encoder where that is meant"
                )
            forced.append(ENCODER)
        move_pointer(releases, "promote", name, forced, None if rule is None else rule.rule)
    return manifest


def rollback(releases: Path, name: str | None = None, trusted: TrustedKeys | None = None) -> str:
    """Make a release current again that was current before; returns its id.

    releases: the releases directory. name: the release's id, or the beginning of one; by default that of the one before
    the current one. trusted: as in `promote`. Raises ReleaseError where there is none, or where it does not verify;
    OSError as `promote`.
    """
    name = None if name is None else find(releases, name).name
    target = _target(releases, name)
    verify(find(releases, target), trusted)
    with change_lock(releases):
        if _target(releases, name) != target:
            raise ReleaseError(
                f"{releases}: another command made a release current meanwhile; look at `taugate release history`"
            )
        move_pointer(releases, "rollback", target)
    return target


def shadow(releases: Path, name: str | None, trusted: TrustedKeys | None = None) -> None:
    """Name the release that is tried beside the current one.

    releases: the releases directory. name: the release's id, or the beginning of one; None ends the trial. trusted: as
    in `promote`. Raises ReleaseError where the release does not verify or is the current one, OSError as `promote`.
    """
    if name is not None:
        release = find(releases, name)
        name = release.name
        verify(release, trusted)
    with change_lock(releases):
        if name is not None and find(releases, name).name == pointed_id(releases, CURRENT):
            raise ReleaseError(f"{name}: is the current release; name another to be tried beside it")
        if (releases / SHADOW).exists() or name is not None:
            move_pointer(releases, "shadow", name)


def _objections(manifest: Manifest, releases: Path) -> dict[str, ReleaseError]:
    """Return what a release's evidence, in its manifest, says against it, by the rule that --force sets aside."""
    name, k, record = manifest.release_id, manifest.policy.k, manifest.calibration
    found: dict[str, ReleaseError] = {}
    if manifest.policy.kind == "none":
        found[POLICY] = ReleaseError(
            f"{name}: its policy is none, which keeps every result; calibrate with more labelled queries, or give "
            "--force"
        )
    if record is not None and (worthless := record.worthless(k)):
        found[CHANCE] = NotPromoted(f"{name}: {worthless}, or give --force", CHANCE)
    current = pointed_id(releases, CURRENT)
    if record is not None and record.state == "provisional" and calibration_state(releases, current) == "calibrated":
        found[PROVISIONAL] = NotPromoted(
            f"{name}: provisional, and the current release {current} is calibrated: {record.because(k)}, or give "
            "--force",
            PROVISIONAL,
        )
    return found


def encoder_differs(releases: Path, sha256: str) -> bool:
    """Tell whether the current release has another float32 encoder; it has not where no release is current.

    releases: the releases directory. sha256: digest of the encoder to compare with, as of `float32_encoder`.
    """
    return bool(encoder_record(releases, pointed_id(releases, CURRENT)).get("sha256", sha256) != sha256)


def current_encoder_name(releases: Path) -> str | None:
    """Return the name of the current release's encoder; None where there is none, or it cannot be read."""
    name = encoder_record(releases, pointed_id(releases, CURRENT)).get("name")
    return name if isinstance(name, str) else None


def float32_encoder(manifest: Manifest) -> str:
    """Return the digest of a release's float32 encoder: an int8 one is made of it, and is no new encoder."""
    return (manifest.float32_encoder or manifest.encoder).sha256


def _target(releases: Path, name: str | None) -> str:
    current, before = pointed_id(releases, CURRENT), rollback_targets(releases)
    if current is None:
        raise ReleaseError(f"{releases}: no release is current; promote one ({_others(releases, current)})")
    if name is None and before:
        return before[0]
    if name is not None and name in before:
        return name
    which = "no release that is still there" if name is None else f"{name} is none that"
    was = f"; before it were {newest(before[::-1])}" if before else ""
    raise ReleaseError(
        f"{releases}: {which} was current before {current}{was}; promote one ({_others(releases, current)})"
    )


def _others(releases: Path, current: str | None) -> str:
    names = [name for name in release_ids(releases) if name != current]
    return newest(names) if names else "there is no other"
