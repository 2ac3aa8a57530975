"""What a calibration is to do with its release: promote it, promote it by a rule, or leave that for later."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from calibration.promotion.rule import PromotionRule
from retrieval.errors import InputError, TaugateError
from retrieval.release.promotion import promote

if TYPE_CHECKING:
    from calibration.promotion.decision import Decision

RULE_HELP = 'such as "accuracy not lower and kept share not higher"; exit code 4 where it does not hold'


def add_options(parser: argparse.ArgumentParser) -> None:
    """Without any of these a release with a cut is promoted."""
    group = parser.add_argument_group("promotion", "without any of these: a release with a cut becomes the current one")
    group.add_argument("--promote-if", metavar="RULE", default=argparse.SUPPRESS, help=RULE_HELP)
    group.add_argument("--no-promote", action="store_true", help="leave the current release as it is")


@dataclass(frozen=True)
class AskedPromotion:
    """wanted: whether to promote at all; rule: what has to hold for it, None where nothing has to."""

    wanted: bool
    rule: PromotionRule | None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self:
        """Before any work. Raises InputError where the rule cannot be read."""
        if "promote_if" not in arguments:
            return cls(not arguments.no_promote, None)
        if arguments.no_promote:
            raise InputError(
                "--promote-if: --no-promote promotes nothing, whatever the rule says; leave one of them out"
            )
        return cls(True, PromotionRule.parse(arguments.promote_if, "--promote-if"))

    def check(self, releases: Path, k: int) -> None:
        """Before any work, too: whether the rule can be asked of the current release. Raises as `check_current`."""
        if self.rule is not None:
            from calibration.promotion.decision import check_current  # needs the extra `calibration`

            check_current(releases, self.rule, k)

    def carry_out(self, release: Path, say: Callable[[str], None], *, new_encoder: bool) -> "Decision | None":
        """Promote a release with a cut, if it is to be. Returns the decision where there is a rule, and raises as it.

        What fails here comes after the work, which is not lost: say is told so.
        """
        try:
            return self._carry_out(release.parent, release.name, new_encoder)
        except (TaugateError, OSError):
            say(f"{release} is written, and is not promoted:")
            raise

    def _carry_out(self, releases: Path, name: str, new_encoder: bool) -> "Decision | None":
        if self.rule is not None:
            from calibration.promotion.decision import promote_if

            return promote_if(releases, name, self.rule, new_encoder=new_encoder)
        if self.wanted:
            promote(releases, name, new_encoder=new_encoder)
        return None
