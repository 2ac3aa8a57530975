"""Promotion at the end of a calibration: always, if a rule holds, or not at all."""

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
FORCE_HELP = (
    "also a provisional release in the place of a calibrated one, one no better than chance, or one whose adapted "
    "encoder is not admitted"
)


def add_promotion_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say whether the new release is promoted.

    Args:
        parser: Of a command that writes a release.
    """
    group = parser.add_argument_group("promotion", "without any of these: a release with a cut becomes the current one")
    group.add_argument("--promote-if", metavar="RULE", default=argparse.SUPPRESS, help=RULE_HELP)
    group.add_argument("--no-promote", action="store_true", help="leave the current release as it is")
    group.add_argument("--force", action="store_true", help=FORCE_HELP)


@dataclass(frozen=True)
class PromotionRequest:
    """A user's request to promote the new release, with its condition, or to leave the current one.

    Attributes:
        wanted: Whether to promote at all.
        rule: What has to hold, None for nothing.
        force: Promote also what `promote` refuses for its evidence.
    """

    wanted: bool
    rule: PromotionRule | None
    force: bool = False

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        """Read the options of `add_promotion_options`.

        Args:
            arguments: The parsed command line.

        Raises:
            InputError: For options that contradict each other, and for a rule that cannot be read.
        """
        ruled, force = "promote_if" in arguments, arguments.force
        if arguments.no_promote and (ruled or force):
            raise InputError(
                f"{'--promote-if' if ruled else '--force'}: --no-promote promotes nothing; leave one of the two out"
            )
        if ruled and force:
            raise InputError("--force: overrides --promote-if; leave one of them out")
        rule = PromotionRule.parse(arguments.promote_if, "--promote-if") if ruled else None
        return cls(not arguments.no_promote, rule, force)

    def check(self, releases: Path, k: int) -> None:
        """Check, before any work, that the rule can compare a new release with the current one.

        Args:
            releases: The releases directory.
            k: Documents retrieved for each query in the new release.

        Raises:
            InputError: As `check_current` does.
            ReleaseError: As `check_current` does.
        """
        if self.rule is not None:
            from taugate.calibration.comparison.decision import check_current  # needs the extra `calibration`

            check_current(releases, self.rule, k)

    def carry_out(self, release: Path, say: Callable[[str], None], *, new_encoder: bool) -> CalibrateResult:
        """Promote a release, if that is wanted and its rule holds.

        Args:
            release: The folder of the new release, which has a threshold.
            say: Takes a line for people.
            new_encoder: Whether its encoder may differ from the current release's.

        Returns:
            How the command ends.
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
