"""A process that changes a releases directory until it is killed: what people do, in any order, again and again."""

import random
import sys
from pathlib import Path

from retrieval.errors import ReleaseError
from retrieval.release.catalog import find, release_ids
from retrieval.release.promotion import promote, rollback, shadow
from retrieval.release.prune import prune
from tests.retrieval.release.clones import clone

KEEP = 4


def change(releases: Path, turn: int, rng: random.Random) -> None:
    """One change; a new release for each that prune may take away."""
    names = release_ids(releases)
    if len(names) < 2 * KEEP:
        clone(find(releases), turn)
        return
    action = rng.choice(["promote", "promote", "rollback", "prune", "shadow"])
    try:
        if action == "promote":
            promote(releases, rng.choice(names))
        elif action == "rollback":
            rollback(releases)
        elif action == "shadow":
            shadow(releases, rng.choice([*names, None]))
        else:
            list(prune(releases, KEEP))
    except ReleaseError as error:
        # Nothing to go back to, the current one as shadow, or what another process has pruned meanwhile.
        if not any(
            word in str(error) for word in ("was current before", "is the current", "holds no", "missing", "meanwhile")
        ):
            raise


def main() -> None:
    """Arguments: the directory, a seed, and how many changes (0: until killed)."""
    releases, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)  # noqa: S311 (no secret)
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    turn = 0
    while not count or turn < count:
        change(releases, 100_000 * (seed + 1) + turn, rng)
        turn += 1


if __name__ == "__main__":
    main()
