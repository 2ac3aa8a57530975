"""A process that changes a releases directory at random until it is killed."""

import argparse
import random
import sys
from pathlib import Path

from taugate.errors import ReleaseError
from taugate.registry.catalog import find, release_ids
from taugate.registry.history import lock_for_reading
from taugate.registry.promotion import promote, rollback, shadow
from taugate.registry.prune import prune
from tests.release.clones import clone

KEEP, MANY = 4, 12
ACTIONS = {
    "promote": lambda releases, rng: promote(releases, rng.choice(release_ids(releases))),
    "rollback": lambda releases, rng: rollback(releases),
    "shadow": lambda releases, rng: shadow(releases, rng.choice([*release_ids(releases), None])),
    "prune": lambda releases, rng: list(prune(releases, KEEP)),
}
# Nothing to go back to, the current one as shadow, or what another process has removed or moved meanwhile.
EXPECTED = (
    *("never current", "no earlier release", "is the current", "holds no", "missing", "in the meantime", "pruned"),
    "cannot be opened",
)


def add(releases: Path, turn: int) -> None:
    """A clone of the current release, which is held: another process may move the pointer on and prune it."""
    source = find(releases)
    with lock_for_reading(source):
        clone(source, turn)


def change(releases: Path, actions: list[str], turn: int, rng: random.Random) -> None:
    """One change; a new release for each that prune took away."""
    try:
        if len(release_ids(releases)) < MANY:
            add(releases, turn)
        else:
            ACTIONS[rng.choice(actions)](releases, rng)
    except ReleaseError as error:
        if not any(words in str(error) for words in EXPECTED):
            raise


def main() -> None:
    """Change until the count is reached or a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=sys.maxsize)
    parser.add_argument("--actions", nargs="+", choices=ACTIONS, default=[*ACTIONS])
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)  # noqa: S311 (no secret)
    sys.stdout.write("begins\n")
    sys.stdout.flush()
    for turn in range(arguments.count):
        change(arguments.releases, arguments.actions, 100_000 * (arguments.seed + 1) + turn, rng)


if __name__ == "__main__":
    main()
