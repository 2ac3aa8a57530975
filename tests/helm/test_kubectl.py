"""`kubectl apply --dry-run=client` of every variant, with a local server for API discovery."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.helm.discovery import Discovery
from tests.helm.rendered import VARIANTS, render

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed: it takes no part")


def apply(text: str, server: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", f"--server={server}", "apply", "--dry-run=client", "--validate=false", "--filename", "-"]
    alone = os.environ | {"HOME": str(home), "KUBECONFIG": os.devnull}
    return subprocess.run(command, input=text, env=alone, capture_output=True, text=True, check=False)


@needs_kubectl
@pytest.mark.parametrize("name", VARIANTS)
def test_kubectl_accepts_all_objects(name: str, tmp_path: Path) -> None:
    objects = render(VARIANTS[name]).objects
    with Discovery(objects) as server:
        done = apply(yaml.safe_dump_all(objects), server.url, tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("created (dry run)") == len(objects)


@needs_kubectl
def test_kubectl_refuses_unknown_kind(tmp_path: Path) -> None:
    objects = render(VARIANTS["minimal"]).objects
    with Discovery(objects) as server:
        done = apply(yaml.safe_dump_all([*objects, {**objects[0], "kind": "Depoyment"}]), server.url, tmp_path)
        assert done.returncode != 0
        assert "Depoyment" in done.stderr
