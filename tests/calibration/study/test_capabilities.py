"""What a search can give besides scores."""

import ast
import inspect
from typing import Any

import pytest

from taugate.calibration.job.run import RunSearch
from taugate.calibration.study import decide, outcomes


def test_run_has_scores_alone() -> None:
    inputs: Any = None
    run = RunSearch(inputs)
    assert (run.vectors, run.random, run.describe, run.corpus) == (None, None, None, None)


@pytest.mark.parametrize("module", [decide, outcomes])
def test_decisions_ask_capabilities_not_classes(module: Any) -> None:
    calls = [node.func for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    assert "isinstance" not in {call.id for call in calls if isinstance(call, ast.Name)}
