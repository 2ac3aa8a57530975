"""A service and a mock model for LiteLLM, and LiteLLM in the environment of its own that `litellm.sh` made.

usage: python -m tests.clients.litellm_service PYTHON, that of LiteLLM's environment
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.sample_release import write_sample_release
from tests.service_process import ServiceProcess

CALLS = Path(__file__).with_name("litellm_calls.py")
KEY = "tg_" + "k" * 40


class MockModel(BaseHTTPRequestHandler):
    """Answers chat completions: asked with a tool, it calls the tool; then it repeats what the tool returned."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body.get("tools"):
            asked = [each["content"] for each in body["messages"] if each["role"] == "user"][-1]
            question = asked if isinstance(asked, str) else asked[0]["text"]
            function = {"name": body["tools"][0]["function"]["name"], "arguments": json.dumps({"queries": [question]})}
            call = {"id": "call_1", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        else:
            message = {"role": "assistant", "content": f"FOUND: {body['messages'][-1]['content']}"}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if body.get("tools") else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        content = json.dumps(
            {"id": "c", "object": "chat.completion", "created": 1, "model": "mock", "choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(python: str) -> int:
    """Run `litellm_calls.py`; returns its exit status.

    Args:
        python: Of LiteLLM's environment.
    """
    key = {"name": "litellm", "sha256": hashlib.sha256(KEY.encode()).hexdigest(), "scopes": ["search", "feedback"]}
    model = ThreadingHTTPServer(("127.0.0.1", 0), MockModel)
    Thread(target=model.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="taugate-litellm-") as folder:
        releases = write_sample_release(Path(folder))
        with ServiceProcess(releases, TAUGATE_DIALECTS="openai", TAUGATE_KEYS=json.dumps([key])) as service:
            environment = os.environ | {
                "TAUGATE_URL": f"http://127.0.0.1:{service.ready().port}",
                "MODEL_URL": f"http://127.0.0.1:{model.server_address[1]}/v1",
                "OPENAI_API_KEY": KEY,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no request to another host
            }
            environment.pop("PYTHONPATH", None)
            return subprocess.run([python, str(CALLS)], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
