"""The attacks of benchmarks/reliability that take seconds: what they ask for is refused, and what is right answered."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.reliability.attacks import framing, replies
from benchmarks.reliability.attacks.setting import AttackResult, AttackSetting

_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "attack",
    [
        framing.trailers,
        framing.key_in_trailer,
        framing.upgrades,
        framing.smuggling,
        framing.other_host,
        replies.unread_log,
    ],
)
def test_the_service_holds(releases: Path, attack: Callable[[AttackSetting], AttackResult]) -> None:
    row = attack(AttackSetting(_ROOT, releases, size=0))
    assert row.held, row
