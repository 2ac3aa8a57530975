"""A machine without lscpu and cat gets no warning of a library with a traceback."""

import numpy as np
import pytest
from joblib.externals.loky.backend import context

from taugate.calibration.query_set.measure import _k_means


@pytest.mark.filterwarnings("ignore:Could not find the number of physical cores")
def test_topics_warn_of_nothing_on_bare_machine(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(context, "physical_cores_cache", None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    _k_means(np.eye(6, dtype=np.float32), 2, 0)
    assert context.physical_cores_cache == "not found"
    assert capfd.readouterr().err == ""
