"""`taugate update`, a deprecated name of `taugate recalibrate`, whose JSON keeps its keys."""

from typing import TYPE_CHECKING

from taugate.calibration.comparison.rule import PromotionRule
from taugate.cli.recalibrate import GROUPS, KEYS, RecalibrateOptions
from taugate.cli.recalibrate import run as recalibrate
from taugate.cli.terminal.options import Appearance, command_of
from taugate.cli.terminal.output import say
from taugate.storage.files import Json

if TYPE_CHECKING:
    from taugate.calibration.recalibration.request import Recalibrated


def run(options: RecalibrateOptions) -> int:
    """Do what `taugate recalibrate` does, under the name that it had for changed documents."""
    say("warning: taugate update is deprecated and will be removed in version 0.4; use taugate recalibrate")
    return recalibrate(options, _as_json)


def _as_json(done: "Recalibrated", _: PromotionRule | None) -> dict[str, Json]:
    """Return the object that --json prints: without a check, τ holds if nothing changed or a new one was chosen."""
    written, check = done.written, done.written.check
    loss = done.loss if check is None else check.loss
    value: dict[str, Json] = {
        "release": written.release,
        "parent": done.current,
        **(written.changes or dict.fromkeys(("added", "changed", "removed"), 0)),
        "holds": not done.published.code if check is None else check.holds,
        "loss": {"mean": 0.0, "lower": 0.0, "upper": 0.0} if loss is None else loss.model_dump(),
        "verdict": written.verdict.model_dump(),
    }
    if withdrawn := [record.promise for record in (done.manifest and done.manifest.withdrawn) or ()]:
        value["withdrawn"] = withdrawn
    return value


command = command_of("update", run, RecalibrateOptions, GROUPS, keys=KEYS, embeddings=Appearance("DIR_OR_URL"))
