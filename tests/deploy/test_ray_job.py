"""The example RayJob: a valid command of taugate, valid pods, and KubeRay's schema."""

import shlex
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from taugate_engines.encoding.command import command
from tests.helm.rendered import VERSIONS

JOB = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "ray" / "encode.yaml").read_text(encoding="utf-8"))
SPEC = JOB["spec"]
GROUPS = [SPEC["rayClusterSpec"]["headGroupSpec"], *SPEC["rayClusterSpec"]["workerGroupSpecs"]]


def _closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


# The fields that the example uses, by the API reference of ray.io/v1; those of pods are checked below.
_PARAMETERS = {"type": "object", "additionalProperties": {"type": "string"}}
_COUNT, _TEXT, _POD = {"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}, {"type": "object"}
_SCHEMA = _closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=_closed(["generateName"], generateName=_TEXT),
    spec=_closed(
        ["entrypoint", "rayClusterSpec"],
        entrypoint=_TEXT,
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        backoffLimit=_COUNT,
        shutdownAfterJobFinishes={"type": "boolean"},
        ttlSecondsAfterFinished=_COUNT,
        submitterPodTemplate=_POD,
        rayClusterSpec=_closed(
            ["rayVersion", "headGroupSpec", "workerGroupSpecs"],
            rayVersion=_TEXT,
            headGroupSpec=_closed(["rayStartParams", "template"], rayStartParams=_PARAMETERS, template=_POD),
            workerGroupSpecs={
                "type": "array",
                "minItems": 1,
                "items": _closed(
                    ["groupName", "rayStartParams", "template"],
                    groupName=_TEXT,
                    replicas=_COUNT,
                    minReplicas=_COUNT,
                    maxReplicas=_COUNT,
                    rayStartParams=_PARAMETERS,
                    template=_POD,
                ),
            },
        ),
    ),
)


def test_ray_job_matches_schema() -> None:
    jsonschema.validate(JOB, _SCHEMA)


def test_ray_pods_are_valid_and_hardened() -> None:
    templates = [SPEC["submitterPodTemplate"], *(group["template"] for group in GROUPS)]
    for template in templates:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": template["spec"]}
        for version in VERSIONS:
            kubernetes_validate.validate(pod, version, strict=True)
        for container in template["spec"]["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["runAsNonRoot"]
            assert container["resources"]["limits"]["memory"]
    images = {container["image"] for item in templates for container in item["spec"]["containers"]}
    assert len(images) == 1, "a worker with other versions than the command is refused"


def test_ray_command_uses_all_processors() -> None:
    program, *words = shlex.split(SPEC["entrypoint"])
    assert program == "taugate"
    name, *options = words
    assert name == "encode"
    parsed = command.make_context(name, options).params
    assert parsed["ray_address"] == "auto"
    (group,) = SPEC["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    assert parsed["workers"] == group["replicas"] * int(container["resources"]["limits"]["cpu"])
    assert GROUPS[0]["rayStartParams"]["num-cpus"] == "0"
