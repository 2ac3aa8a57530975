"""The options that decide whether a new release is promoted: always, only if a rule holds, or never."""

from collections.abc import Callable
from dataclasses import dataclass as plain_dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from taugate.calibration.comparison.rule import PromotionRule
from taugate.calibration.comparison.words import NOT_PROMOTED, PROVISIONAL, CalibrateResult
from taugate.calibration.settings.options import Options
from taugate.cli.terminal.command import OptionGroup
from taugate.cli.terminal.options import Shown, number_or
from taugate.cli.terminal.output import say
from taugate.errors import InputError, NotPromoted, TaugateError
from taugate.registry.promotion import promote

PROMOTION = OptionGroup("promotion", "by default, a release with a threshold is promoted")
FORCE_HELP = (
    "also promote a provisional release over a calibrated one, a release no better than chance, or one whose adapted "
    "encoder was not accepted"
)
_LIMITS = ("--max-accuracy-drop", "--max-kept-increase")
_Limit = Annotated[
    float | Literal["auto"] | None, Shown("X|auto", type=number_or("auto", example="a share such as 0.01"))
]


@dataclass(frozen=True, kw_only=True)
class RuleOptions(Options):
    """The options that limit what promotion may cost; either limits, or the rule as a sentence as in version 0.2."""

    max_accuracy_drop: _Limit = Field(
        default=None,
        description="promote only if accuracy is shown to drop by at most X (auto: 0.01, more with few queries)",
    )
    max_kept_increase: _Limit = Field(
        default=None,
        description="promote only if the share of results kept is shown to rise by at most X; auto as above",
    )
    promote_if: Annotated[str | None, Shown("RULE")] = Field(
        default=None, description=f"deprecated: the rule as a sentence; use {' and '.join(_LIMITS)}"
    )

    def rule_option(self, sentence_option: str = "--promote-if") -> str | None:
        """Return the name of the first option that sets a rule, or None.

        Args:
            sentence_option: Name of the option that takes the rule as a sentence.
        """
        values = (self.promote_if, self.max_accuracy_drop, self.max_kept_increase)
        names = zip((sentence_option, *_LIMITS), values, strict=True)
        return next((name for name, value in names if value is not None), None)

    def rule(self, sentence_option: str = "--promote-if") -> PromotionRule | None:
        """Return the promotion rule, or None without one; a sentence prints a warning.

        Args:
            sentence_option: Name of the option that takes the rule as a sentence.

        Raises:
            InputError: If both forms are given, or the rule cannot be read.
        """
        limits = {"max_accuracy_drop": self.max_accuracy_drop, "max_kept_increase": self.max_kept_increase}
        limited = any(limit is not None for limit in limits.values())
        if self.promote_if is None:
            return PromotionRule.from_limits(**limits) if limited else None
        if limited:
            raise InputError(f"{sentence_option}: replaced by {' and '.join(_LIMITS)}; leave it out")
        rule = PromotionRule.parse(self.promote_if, sentence_option)
        say(f"warning: {sentence_option} is deprecated and will be removed in version 0.4; use {' and '.join(_LIMITS)}")
        return rule


@dataclass(frozen=True, kw_only=True)
class PromotionOptions(RuleOptions):
    """The options of a command that promotes the release that it writes."""

    no_promote: bool = Field(default=False, description="leave the current release as it is")
    force: bool = Field(default=False, description=FORCE_HELP)

    def request(self) -> "PromotionRequest":
        """Return the requested promotion.

        Raises:
            InputError: If options contradict each other, or the rule cannot be read.
        """
        option = self.rule_option()
        if self.no_promote and (option or self.force):
            raise InputError(f"{option or '--force'}: --no-promote promotes nothing; leave one of the two out")
        if option and self.force:
            raise InputError(f"--force: overrides {option}; leave one of them out")
        return PromotionRequest(not self.no_promote, self.rule(), self.force)


@plain_dataclass(frozen=True)
class PromotionRequest:
    """Whether the user wants the new release promoted, and under which rule.

    Attributes:
        requested: Whether to promote at all.
        rule: The rule that has to hold, or None.
        force: Also promote a release that `promote` would refuse because of its evidence.
    """

    requested: bool
    rule: PromotionRule | None
    force: bool = False

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
        """Promote a release if that is requested and its rule holds.

        Args:
            release: Folder of the new release, which has a threshold.
            say: Called with one line of text for the user.
            new_encoder: Whether its encoder may differ from the current release's.

        Returns:
            The end of the command: its exit code, and why the release is not promoted.
        """
        try:
            return self._carry_out(release.parent, release.name, say, new_encoder)
        except NotPromoted as error:
            return CalibrateResult.refused(error)
        except (TaugateError, OSError):
            say(f"{release} is written but not promoted:")
            raise

    def _carry_out(self, releases: Path, name: str, say: Callable[[str], None], new_encoder: bool) -> CalibrateResult:
        if self.rule is not None:
            from taugate.calibration.comparison.decision import promote_if

            decision = promote_if(releases, name, self.rule, new_encoder=new_encoder)
            return CalibrateResult(0 if decision.holds else NOT_PROMOTED, decision=decision)
        if self.requested and promote(releases, name, force=self.force, new_encoder=new_encoder).state == "provisional":
            say(PROVISIONAL)
        return CalibrateResult()
