"""`taugate update`, a deprecated name of `taugate recalibrate`, whose JSON keeps its keys."""

from typing import TYPE_CHECKING, Any

from taugate.calibration.comparison.rule import PromotionRule
from taugate.cli.recalibrate import GROUPS, RecalibrateOptions, recalibrate_and_print
from taugate.cli.terminal.options import Appearance, command_of
from taugate.cli.terminal.output import say

if TYPE_CHECKING:
    from taugate.calibration.recalibration.request import Recalibrated


def run(options: RecalibrateOptions) -> int:
    """Do what `taugate recalibrate` does, under the name that it had for changed documents."""
    say("warning: taugate update is deprecated and will be removed in version 0.4; use taugate recalibrate")
    return recalibrate_and_print(options, _as_json)


def _as_json(done: "Recalibrated", _: PromotionRule | None) -> dict[str, Any]:
    """Return the object that --json prints: without a check, τ holds if nothing changed or a new one was chosen."""
    written, check = done.written, done.written.check
    loss = done.loss if check is None else check.loss
    value = {
        "release": written.release,
        "parent": done.current,
        **(written.changes or dict.fromkeys(("added", "changed", "removed"), 0)),
        "holds": not done.published.code if check is None else check.holds,
        "loss": {"mean": 0.0, "lower": 0.0, "upper": 0.0} if loss is None else loss.model_dump(),
        "verdict": written.verdict.model_dump(),
    }
    withdrawn = [] if check is None else [record.promise for record in check.withdrawn]
    return value | ({"withdrawn": withdrawn} if withdrawn else {})


command = command_of("update", run, RecalibrateOptions, GROUPS, embeddings=Appearance("DIR_OR_URL"))
