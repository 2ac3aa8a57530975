"""The options that decide whether a new release is promoted: always, only if a rule holds, or never."""

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic.dataclasses import dataclass

from taugate.calibration.comparison.publish import Promotion
from taugate.calibration.comparison.rule import PromotionRule
from taugate.cli.terminal.acting import BY, BY_HELP, act_as
from taugate.cli.terminal.command import OptionGroup
from taugate.cli.terminal.options import Appearance, number_or, option
from taugate.cli.terminal.output import say
from taugate.errors import InputError
from taugate.evidence.options import Options
from taugate.registry.writer import SIGNING_KEY, signing_key, trusted_keys

PROMOTION = OptionGroup("promotion", "by default, a release with a threshold is promoted")
RULE = ("max_accuracy_drop", "max_kept_increase", "promote_if")  # the fields that set a rule
FORCE_HELP = (
    "also promote a provisional release over a calibrated one, a release no better than chance, or one whose adapted "
    "encoder was not accepted"
)
_LIMITS = "--max-accuracy-drop and --max-kept-increase"
_Limit = Annotated[
    float | Literal["auto"] | None, Appearance("X|auto", type=number_or("auto", example="a share such as 0.01"))
]
# A clause of a rule that is a sentence, and the option that took its place.
_CLAUSE = re.compile(r"(accuracy not lower|kept share not higher)(?: by more than (\d+(?:\.\d+)?(?:e-?\d+)?))?")
_LIMIT_OF = {"accuracy not lower": "max_accuracy_drop", "kept share not higher": "max_kept_increase"}


@dataclass(frozen=True, kw_only=True)
class PromotionOptions(Options):
    """The options of a command that promotes a release; a command may leave some out.

    The rule is a limit on each cost of the promotion; version 0.2 had a sentence in place of the two options.
    """

    sentence_option: ClassVar[str] = "--promote-if"

    max_accuracy_drop: _Limit = option(
        None, "promote only if accuracy is shown to drop by at most X (auto: 0.01, more with few queries)"
    )
    max_kept_increase: _Limit = option(
        None, "promote only if the share of results kept is shown to rise by at most X; auto as above"
    )
    promote_if: Annotated[str | None, Appearance("RULE", hidden=True)] = option(
        None, f"deprecated: the rule as a sentence; use {_LIMITS}"
    )
    no_promote: bool = option(False, "leave the current release as it is")
    force: bool = option(False, FORCE_HELP)
    sign_with: Annotated[Path | None, Appearance("PEM", variable=SIGNING_KEY)] = option(
        None, "Ed25519 private key to sign the release with"
    )
    by: Annotated[str | None, Appearance("NAME", variable=BY)] = option(None, BY_HELP)

    def promotion(self, *, new_encoder: bool = False, signs: bool = True) -> Promotion:
        """Return the requested promotion; `signs` if the command writes the release, which has to be signed then."""
        act_as(self.by)
        rules = {
            self.sentence_option: self.promote_if,
            "--max-accuracy-drop": self.max_accuracy_drop,
            "--max-kept-increase": self.max_kept_increase,
        }
        option = next((name for name, value in rules.items() if value is not None), None)
        if self.no_promote and (option or self.force):
            raise InputError(f"{option or '--force'}: --no-promote promotes nothing; leave one of the two out")
        if option and self.force:
            raise InputError(f"--force: overrides {option}; leave one of them out")
        key = signing_key(self.sign_with, promoting=signs and not self.no_promote)
        rule = None if option is None else self._rule()
        return Promotion(not self.no_promote, rule, self.force, new_encoder, key, trusted_keys())

    def _rule(self) -> PromotionRule:
        if self.promote_if is None:
            return PromotionRule.from_limits(
                max_accuracy_drop=self.max_accuracy_drop, max_kept_increase=self.max_kept_increase
            )
        if self.max_accuracy_drop is not None or self.max_kept_increase is not None:
            raise InputError(f"{self.sentence_option}: replaced by {_LIMITS}; leave it out")
        limits: dict[str, float | Literal["auto"]] = {}
        for clause in " ".join(self.promote_if.lower().split()).split(" and "):
            match = _CLAUSE.fullmatch(clause)
            if match is None:
                raise InputError(f"{self.sentence_option}: this sentence is no longer read; use {_LIMITS}")
            limits[_LIMIT_OF[match[1]]] = float(match[2]) if match[2] else "auto"
        say(f"warning: {self.sentence_option} is deprecated and will be removed in version 0.4; use {_LIMITS}")
        return PromotionRule.from_limits(**limits)
