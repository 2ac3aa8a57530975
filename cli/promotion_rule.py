"""What a calibration is to do with its release: promote it, promote it by a rule, or leave that for later."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.words import NOT_PROMOTED, PROVISIONAL, CalibrateResult
from taugate.errors import InputError, NotPromoted, TaugateError
from taugate.registry.promotion import promote

RULE_HELP = 'such as "accuracy not lower and kept share not higher"; exit code 4 where it does not hold'
FORCE_HELP = "also a provisional release in the place of a calibrated one, or one no better than chance"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Without any of these a release with a cut is promoted."""
    group = parser.add_argument_group("promotion", "without any of these: a release with a cut becomes the current one")
    group.add_argument("--promote-if", metavar="RULE", default=argparse.SUPPRESS, help=RULE_HELP)
    group.add_argument("--no-promote", action="store_true", help="leave the current release as it is")
    group.add_argument("--force", action="store_true", help=FORCE_HELP)


@dataclass(frozen=True)
class AskedPromotion:
    """wanted: whether to promote at all; rule: what has to hold for it, None for nothing; force: as of `promote`."""

    wanted: bool
    rule: PromotionRule | None
    force: bool = False

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self:
        """Before any work. Raises InputError where the rule cannot be read."""
        ruled, force = "promote_if" in arguments, arguments.force
        if arguments.no_promote and (ruled or force):
            raise InputError(
                f"{'--promote-if' if ruled else '--force'}: --no-promote promotes nothing, whatever else is asked for; "
                "leave one of them out"
            )
        if ruled and force:
            raise InputError("--force: sets aside what --promote-if asks for; leave one of them out")
        rule = PromotionRule.parse(arguments.promote_if, "--promote-if") if ruled else None
        return cls(not arguments.no_promote, rule, force)

    def check(self, releases: Path, k: int) -> None:
        """Before any work, too: whether the rule can be asked of the current release. Raises as `check_current`."""
        if self.rule is not None:
            from taugate.calibration.comparison.decision import check_current  # needs the extra `calibration`

            check_current(releases, self.rule, k)

    def carry_out(self, release: Path, say: Callable[[str], None], *, new_encoder: bool) -> CalibrateResult:
        """Promote a release with a cut, if it is to be, and say how that ends. Raises as `promote` and `promote_if`.

        What fails here comes after the work, which is not lost: say is told so.
        """
        try:
            return self._carry_out(release.parent, release.name, say, new_encoder)
        except NotPromoted as error:
            return CalibrateResult.refused(error)
        except (TaugateError, OSError):
            say(f"{release} is written, and is not promoted:")
            raise

    def _carry_out(self, releases: Path, name: str, say: Callable[[str], None], new_encoder: bool) -> CalibrateResult:
        if self.rule is not None:
            from taugate.calibration.comparison.decision import promote_if

            decision = promote_if(releases, name, self.rule, new_encoder=new_encoder)
            return CalibrateResult(0 if decision.holds else NOT_PROMOTED, decision=decision)
        if self.wanted and promote(releases, name, force=self.force, new_encoder=new_encoder).state == "provisional":
            say(PROVISIONAL)
        return CalibrateResult()
