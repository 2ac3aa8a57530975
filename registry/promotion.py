"""Which release is current, and which may become so: one set of rules for every command that promotes."""

from dataclasses import dataclass
from pathlib import Path

from taugate.errors import NotPromoted, ReleaseError
from taugate.registry import catalog as outline
from taugate.registry.catalog import find, pointed_id, release_ids
from taugate.registry.history import earlier, move
from taugate.registry.lock import locked
from taugate.retrieval.release.layout import CURRENT, SHADOW
from taugate.retrieval.release.manifest import Manifest
from taugate.retrieval.release.signature import TrustedKeys
from taugate.retrieval.release.verify import verify

# Rules that can be set aside, as the history names them.
POLICY, ENCODER, CHANCE, PROVISIONAL = "policy none", "new encoder", "accuracy not above chance", "provisional"
_NAMED = 5  # releases that an error lists: the newest are those that somebody looks for


@dataclass(frozen=True)
class Ruled:
    """A rule that a release was found to meet, in words, and the release that it was compared with."""

    rule: str
    over: str | None


def promote(
    releases: Path,
    name: str,
    trusted: TrustedKeys | None = None,
    *,
    force: bool = False,
    new_encoder: bool = False,
    ruled: Ruled | None = None,
) -> Manifest:
    """Make a release the current one; returns its manifest.

    trusted: one of these keys must have signed it, where given; force: also one whose policy is none, which drops
    nothing, one whose accuracy is not shown to be above chance, and a provisional one in the place of a calibrated one;
    new_encoder: also one of another encoder than the current one's; ruled: what the history is to say of why, which
    holds for the one current release that it names. Raises NotPromoted where its evidence is against it, ReleaseError
    where it does not verify or another rule is, OSError where the directory cannot be written to; then nothing has
    changed.
    """
    manifest = verify(find(releases, name), trusted)
    with locked(releases):
        find(releases, name)  # it may have been pruned meanwhile
        current = pointed_id(releases, CURRENT)
        if current == name:
            return manifest
        if ruled is not None and current != ruled.over:
            raise ReleaseError(
                f"{releases}: another command made {current} current while {name} was compared with {ruled.over}; "
                "compare it again with `taugate release promote --if`"
            )
        against = _against(manifest, releases)
        if against and not force:
            raise next(iter(against.values()))
        forced = list(against)
        if differs(releases, float32_encoder(manifest)):
            if not new_encoder:
                raise ReleaseError(
                    f"{name}: encoded by {manifest.encoder.name}, the current release {current} by "
                    f"{encoder_in_force(releases)}, or by another export of it: similarities and thresholds of the two "
                    "cannot be compared; give --new-encoder where that is meant"
                )
            forced.append(ENCODER)
        move(releases, "promote", name, forced, None if ruled is None else ruled.rule)
    return manifest


def rollback(releases: Path, name: str | None = None, trusted: TrustedKeys | None = None) -> str:
    """Make the release current again that was so before, or a named one of those before; returns its id.

    Raises ReleaseError where there is none, or where it does not verify; OSError as `promote`.
    """
    target = _target(releases, name)
    verify(find(releases, target), trusted)
    with locked(releases):
        if _target(releases, name) != target:
            raise ReleaseError(
                f"{releases}: another command made a release current meanwhile; look at `taugate release history`"
            )
        move(releases, "rollback", target)
    return target


def shadow(releases: Path, name: str | None, trusted: TrustedKeys | None = None) -> None:
    """Name the release that is tried beside the current one, or none. Raises as `promote`."""
    if name is not None:
        verify(find(releases, name), trusted)
    with locked(releases):
        if name is not None and find(releases, name).name == pointed_id(releases, CURRENT):
            raise ReleaseError(f"{name}: is the current release; name another to be tried beside it")
        if (releases / SHADOW).exists() or name is not None:
            move(releases, "shadow", name)


def _against(manifest: Manifest, releases: Path) -> dict[str, ReleaseError]:
    """What the evidence for a release, in its manifest, says against it, by the rule that --force sets aside."""
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
    if record is not None and record.state == "provisional" and outline.state(releases, current) == "calibrated":
        found[PROVISIONAL] = NotPromoted(
            f"{name}: provisional, and the current release {current} is calibrated: {record.because(k)}, or give "
            "--force",
            PROVISIONAL,
        )
    return found


def differs(releases: Path, encoder: str) -> bool:
    """Whether the current release has another float32 encoder than the one with this digest; not where it has none."""
    return bool(outline.encoder(releases, pointed_id(releases, CURRENT)).get("sha256", encoder) != encoder)


def encoder_in_force(releases: Path) -> str | None:
    """Name of the current release's encoder; None where that cannot be said."""
    name = outline.encoder(releases, pointed_id(releases, CURRENT)).get("name")
    return name if isinstance(name, str) else None


def float32_encoder(manifest: Manifest) -> str:
    """Digest of the float32 encoder of a release: an int8 one is made of it, and is no new encoder."""
    return (manifest.float32_encoder or manifest.encoder).sha256


def _target(releases: Path, name: str | None) -> str:
    current, before = pointed_id(releases, CURRENT), earlier(releases)
    if current is None:
        raise ReleaseError(f"{releases}: no release is current; promote one ({_others(releases, current)})")
    if name is None and before:
        return before[0]
    if name is not None and name in before:
        return name
    which = "no release that is still there" if name is None else f"{name} is none that"
    was = f"; before it were {', '.join(before[:_NAMED])}" if before else ""
    raise ReleaseError(
        f"{releases}: {which} was current before {current}{was}; promote one ({_others(releases, current)})"
    )


def _others(releases: Path, current: str | None) -> str:
    names = [name for name in release_ids(releases) if name != current]
    if not names:
        return "there is no other"
    more = f" and {len(names) - _NAMED} older" if len(names) > _NAMED else ""
    return ", ".join(names[: -_NAMED - 1 : -1]) + more
