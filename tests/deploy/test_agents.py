"""What agents and load generators are given: the registry's entry of the MCP server, a skill, a k6 script."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from benchmarks.checkout import ROOT
from taugate_mcp.command import main

ENTRY = json.loads((ROOT / "deploy" / "agents" / "server.json").read_text())
# Modules of k6, as far as the script uses them: `http.post` prints what is sent, and the reply has no result.
STUBS = {
    "k6": "export const check = (reply, checks) => Object.values(checks).every((test) => test(reply));",
    "k6/http": "const post = (...sent) => (console.log(JSON.stringify(sent)), { status: 200, json: () => [] });"
    "export default { post };",
    "k6/data": "export class SharedArray { constructor(_, make) { return make(); } }",
    "k6/metrics": "export class Counter { add(n) { console.log(JSON.stringify(n)); } }",
}


def test_registry_entry_starts_the_server_of_this_version() -> None:
    client = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text())["project"]
    (package,) = ENTRY["packages"]
    assert (package["identifier"], package["version"], ENTRY["version"]) == (client["name"], *[client["version"]] * 2)
    start = {argument.get("name"): argument["value"] for argument in package["runtimeArguments"]}
    assert start == {"--from": f"{client['name']}[mcp]=={client['version']}", None: next(iter(client["scripts"]))}
    assert len(ENTRY["description"]) <= 100  # the registry's limit


def test_registry_entry_names_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    (package,) = ENTRY["packages"]
    with pytest.raises(SystemExit):
        main(["--help"])
    words = capsys.readouterr().out
    assert all(argument["name"] in words for argument in package["packageArguments"])
    assert all(variable["name"] in words for variable in package["environmentVariables"])


def test_skill_names_fields_and_paths_of_the_api() -> None:
    _, front, text = (ROOT / "deploy" / "agents" / "SKILL.md").read_text().split("---\n", 2)
    matter = yaml.safe_load(front)
    assert set(matter) == {"name", "description"} and len(matter["description"]) <= 1024
    api = (ROOT / "docs" / "openapi.json").read_text()
    named = set(re.findall(r"`(?:POST )?(/?[a-z_]+)`", text)) - {"taugate"}
    assert {"/explain", "/feedback", "/gate", "query_id", "results", "reason"} <= named
    assert [name for name in sorted(named) if f'"{name}"' not in api] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_k6_script_sends_searches(tmp_path: Path) -> None:
    for module, code in STUBS.items():
        folder = tmp_path / "node_modules" / module
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.mjs").write_text(code)
    names = {f"./{module.partition('/')[2]}".rstrip("/"): f"./{module.partition('/')[2]}/index.mjs" for module in STUBS}
    (tmp_path / "node_modules" / "k6" / "package.json").write_text(
        json.dumps({"exports": names | {".": "./index.mjs"}})
    )
    shutil.copy(ROOT / "deploy" / "k6" / "search.js", tmp_path / "search.mjs")
    environment = {"URL": "http://127.0.0.1:9", "QUERIES": "queries.jsonl", "KEY": "k"}
    (tmp_path / "run.mjs").write_text(
        f'globalThis.__ENV = {json.dumps(environment)}; globalThis.open = () => \'{{"text": "a pump"}}\\n\';'
        "const script = await import('./search.mjs'); script.default();"
    )
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    sent, empty = map(json.loads, done.stdout.splitlines() or [done.stderr])
    headers = {"Content-Type": "application/json", "Authorization": "Bearer k"}
    assert sent == [
        "http://127.0.0.1:9/search",
        json.dumps({"query": "a pump"}, separators=(",", ":")),
        {"headers": headers},
    ]
    assert empty == 1
