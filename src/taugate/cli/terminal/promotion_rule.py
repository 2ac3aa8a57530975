"""The promotion at the end of a calibration: always, only if a rule holds, or never."""

import argparse

from taugate.calibration.comparison.publish import Promotion
from taugate.calibration.comparison.rule import PromotionRule
from taugate.cli.terminal.output import say
from taugate.errors import InputError
from taugate.registry.signing import signing_key, trusted_keys

FORCE_HELP = (
    "also promote a provisional release over a calibrated one, a release no better than chance, or one whose adapted "
    "encoder was not accepted"
)
# The limits that a rule can set, with their help.
_LIMITS = {
    "max_accuracy_drop": "promote only if accuracy is shown to drop by at most X (auto: 0.01, more with few queries)",
    "max_kept_increase": "promote only if the share of results kept is shown to rise by at most X; auto as above",
}
_OPTIONS = [f"--{name.replace('_', '-')}" for name in _LIMITS]


def add_rule_options(parser: argparse._ActionsContainer, sentence_option: str) -> None:
    """Add the options that limit what promotion may cost.

    Args:
        parser: Parser or group of a command that promotes a release.
        sentence_option: Name of the option that takes the rule as a sentence, as in version 0.2.
    """
    for (name, text), option in zip(_LIMITS.items(), _OPTIONS, strict=True):
        parser.add_argument(option, metavar="X|auto", type=_limit, dest=name, default=argparse.SUPPRESS, help=text)
    parser.add_argument(
        sentence_option,
        metavar="RULE",
        dest="rule_sentence",
        default=argparse.SUPPRESS,
        help=f"deprecated: the rule as a sentence; use {' and '.join(_OPTIONS)}",
    )


def rule_from_arguments(arguments: argparse.Namespace, sentence_option: str) -> PromotionRule | None:
    """Return the promotion rule of a command line, or None if it has none.

    Args:
        arguments: The parsed command line.
        sentence_option: Name of the option that takes the rule as a sentence. Using it prints a warning.

    Raises:
        InputError: If both forms are given, or the rule cannot be read.
    """
    limits = {name: getattr(arguments, name) for name in _LIMITS if hasattr(arguments, name)}
    if not hasattr(arguments, "rule_sentence"):
        return PromotionRule.from_limits(**limits) if limits else None
    if limits:
        raise InputError(f"{sentence_option}: replaced by {' and '.join(_OPTIONS)}; leave it out")
    rule = PromotionRule.parse(arguments.rule_sentence, sentence_option)
    say(f"warning: {sentence_option} is deprecated and will be removed in version 0.4; use {' and '.join(_OPTIONS)}")
    return rule


def rule_option(arguments: argparse.Namespace, sentence_option: str) -> str | None:
    """Return the name of the first option that sets a rule, or None.

    Args:
        arguments: The parsed command line.
        sentence_option: Name of the option that takes the rule as a sentence.
    """
    if hasattr(arguments, "rule_sentence"):
        return sentence_option
    return next((option for name, option in zip(_LIMITS, _OPTIONS, strict=True) if hasattr(arguments, name)), None)


def _limit(text: str) -> float | str:
    """Parse a share or "auto"; the rule checks the bounds."""
    return text if text == "auto" else float(text)


def add_promotion_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide whether the new release is promoted.

    Args:
        parser: Parser of a command that writes a release.
    """
    group = parser.add_argument_group("promotion", "by default, a release with a threshold is promoted")
    add_rule_options(group, "--promote-if")
    group.add_argument("--no-promote", action="store_true", help="leave the current release as it is")
    group.add_argument("--force", action="store_true", help=FORCE_HELP)


def promotion_from_arguments(arguments: argparse.Namespace, *, new_encoder: bool = False) -> Promotion:
    """Read the options of a command that writes a release, and the key that signs it.

    Args:
        arguments: The parsed command line.
        new_encoder: Whether the encoder may differ from the current release's.

    Raises:
        InputError: If options contradict each other, or the rule or a key cannot be read.
    """
    option, force = rule_option(arguments, "--promote-if"), getattr(arguments, "force", False)
    if arguments.no_promote and (option or force):
        raise InputError(f"{option or '--force'}: --no-promote promotes nothing; leave one of the two out")
    if option and force:
        raise InputError(f"--force: overrides {option}; leave one of them out")
    rule = rule_from_arguments(arguments, "--promote-if")
    key = signing_key(getattr(arguments, "sign_with", None), promoting=not arguments.no_promote)
    return Promotion(not arguments.no_promote, rule, force, new_encoder, key, trusted_keys())
