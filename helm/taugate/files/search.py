"""One search through the Service, as a caller sends it; `helm test` runs this in the service's image."""

import json
import os
import sys
import urllib.error
import urllib.request

request = urllib.request.Request(
    os.environ["SERVICE"] + "/search",
    data=json.dumps({"query": os.environ["QUERY"]}).encode(),
    headers={"Content-Type": "application/json"},
)
if key := os.environ.get("KEY", "").strip():
    request.add_header("Authorization", f"Bearer {key}")
try:
    with urllib.request.urlopen(request, timeout=10) as reply:
        answer = json.load(reply)
except urllib.error.HTTPError as refused:
    sys.exit(f"{request.full_url}: {refused.code} {refused.read().decode(errors='replace')}")
except OSError as failure:
    sys.exit(f"{request.full_url}: {failure}")
if not answer["release"]:
    sys.exit(f"{request.full_url}: a reply that names no release: {answer}")
print(f"release {answer['release']}: {len(answer['results'])} results, {answer['dropped']} dropped")
