# Two commands do everything from a bare checkout: `make run` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
VERSION := import sys; print("Python %d.%d.%d" % sys.version_info[:3]); sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help run test test-long check image chart-package cluster-tools keda-tools node-tools test-cluster test-nodes test-keda test-scale test-gpu proto reference picture house bench bench-policies soak soak-live soak-load docs locks release-dry-run clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

# The stamps are newer than pyproject.toml exactly when the environment is up to date.
$(VENV)/.run: pyproject.toml
	@found=$$('$(PYTHON)' -c '$(VERSION)' 2>/dev/null) || { echo "found $${found:-no Python} in '$(PYTHON)'," \
		"expected Python 3.11 or newer: install it, or set PYTHON=/path/to/python3.11" >&2; exit 2; }
	@'$(PYTHON)' tools/environment.py $(VENV) .
	@touch $@

$(VENV)/.dev: $(VENV)/.run packages/gpuscale-testing/pyproject.toml
	@echo "installing the test tools (first run only)"
	@$(BIN)/python tools/environment.py $(VENV) '.[dev]' packages/gpuscale-testing
	@touch $@

run: $(VENV)/.run ## the whole loop, live, on this machine (Ctrl-C ends it)
	@exec $(BIN)/gpuscale up

check: $(VENV)/.dev ## format, lint, types, import contracts
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

# Tests wait for servers more than they compute: three workers for two cores, four where a control plane is waited for.
test: check ## everything in check, then the tests; those on a control plane where its programs are built
	@$(BIN)/python tools/suite.py -n 4 --dist loadgroup -m "not cluster and not gpu and not scale"
	@if $(BIN)/python -m gpuscale_testing.tools where >/dev/null 2>&1; then \
		$(BIN)/python tools/suite.py -n 4 --dist loadfile -m cluster tests/cluster; \
	elif [ -n "$$GPUSCALE_REQUIRE_CLUSTER" ]; then \
		$(BIN)/python -m gpuscale_testing.tools where; exit 1; \
	else \
		echo "the tests on a control plane were left out: 'make cluster-tools' builds its programs"; \
	fi

MINUTES ?= 10

test-long: $(VENV)/.dev ## random examples for all property tests, before a change is handed over; MINUTES=10 at least
	@$(BIN)/python tools/random_examples.py $(MINUTES)

RELEASE     := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE       ?= gpuscale:$(RELEASE)
PLATFORM    ?=
TARGET      ?=
BUILDER     ?= $(firstword $(foreach each,docker podman buildah,$(if $(shell command -v $(each)),$(each))))
IN_REGISTRY := $(if $(findstring /,$(IMAGE:localhost/%=%)),yes)
# Podman and Buildah put localhost/ before a name without a registry.
BUILT        = $(if $(IN_REGISTRY)$(filter docker,$(BUILDER)),$(IMAGE),localhost/$(IMAGE:localhost/%=%))
LOAD         = $(if $(filter docker,$(BUILDER)),kind load docker-image $(BUILT),kind load image-archive with what $(BUILDER) saves)

image: ## build the container image; IMAGE=REGISTRY/gpuscale:TAG names it, PUSH=1 pushes it, PLATFORM=linux/arm64 is for other nodes, TARGET=agent has the node agent alone, TARGET=server the servers
	@test -n "$(BUILDER)" || { echo "building an image takes docker, podman or buildah; none of them is installed"; exit 2; }
	@test -z "$(PUSH)" || test -n "$(IN_REGISTRY)" || \
		{ echo "$(IMAGE) names no registry to push to: make image IMAGE=REGISTRY/gpuscale:$(RELEASE) PUSH=1"; exit 2; }
	$(BUILDER) build $(if $(PLATFORM),--platform $(PLATFORM) )$(if $(TARGET),--target $(TARGET) )--tag $(IMAGE) .
	$(if $(PUSH),$(BUILDER) push $(IMAGE))
	@test -n "$(IN_REGISTRY)" || echo "nodes can't pull it: load it ($(LOAD)), or push it (make image IMAGE=REGISTRY/gpuscale:$(RELEASE) PUSH=1)"
	@echo "next: gpuscale init --image $(BUILT)$(if $(IN_REGISTRY),, --image-present)"

chart-package: $(VENV)/.dev ## package the Helm chart in build/chart, also as an OCI layout, with checksums; SIGN_KEY=FILE signs these
	@$(BIN)/python tools/chart_package.py build/chart $(SIGN_KEY)

cluster-tools: $(VENV)/.dev ## build etcd, Kubernetes and prometheus-adapter, fetch CRDs, for the cluster tests (5-10 min, once)
	@$(BIN)/python -m gpuscale_testing.tools build

keda-tools: $(VENV)/.dev ## build KEDA's programs too, for the tests with KEDA (8 min or more, once)
	@$(BIN)/python -m gpuscale_testing.tools build keda-operator keda-adapter keda-webhooks keda

node-tools: $(VENV)/.dev ## build what judges us on nodes: kube-scheduler's own plugins, and the code of Karpenter and Kueue (10 min, once)
	@$(BIN)/python -m gpuscale_testing.tools build scheduler-judge karpenter-judge kueue-judge

test-cluster: $(VENV)/.dev cluster-tools ## the tests on a real control plane
	@$(BIN)/python tools/suite.py -n 4 --dist loadfile -m cluster tests/cluster

test-nodes: $(VENV)/.dev cluster-tools node-tools ## placement and node autoscalers beside the code of kube-scheduler, Karpenter and Kueue, and Karpenter on a control plane (30 min)
	@$(BIN)/python -m gpuscale_testing.tools build karpenter-kwok
	@$(BIN)/python -m pytest -n 0 -q tests/conformance/nodes tests/nodes

test-keda: $(VENV)/.dev cluster-tools keda-tools ## 200 random crashes in a loop with KEDA (15 min); writes benchmarks/results/keda_faults.json
	@$(BIN)/python benchmarks/keda_faults.py

test-scale: $(VENV)/.dev cluster-tools ## 200 HPAs of 2 000 pods on 500 nodes, on a real control plane
	@GPUSCALE_SCALE_PODS=2000 $(BIN)/python -m pytest -n 0 -m scale tests/cluster/test_scale.py

test-gpu: $(VENV)/.dev ## the tests on a real NVIDIA GPU; writes benchmarks/results/gpu_*.json
	@$(BIN)/python -m pytest -c tests/gpu/pytest.ini -p no:cacheprovider tests/gpu

proto: $(VENV)/.dev ## make the Python messages from our .proto files
	@$(BIN)/python tools/messages.py

bench: $(VENV)/.dev ## measure the budgets; results go to benchmarks/results
	@for b in benchmarks/bench_*.py; do $(BIN)/python $$b || exit 1; done

bench-policies: $(VENV)/.dev ## score replica policies on public traces (TRACES=FOLDER, POLICY="--policy mine.py"); minutes
	@$(BIN)/python benchmarks/bench_policies.py $(if $(TRACES),--traces $(TRACES)) $(POLICY)
	@$(BIN)/python benchmarks/bench_policy_limits.py $(if $(TRACES),--traces $(TRACES))

soak: $(VENV)/.dev ## 8 hours of virtual time for the store: flat memory, no wrong value (SOAK="--real-minutes 30": real time)
	@$(BIN)/python benchmarks/soak_store.py $(SOAK)

soak-live: $(VENV)/.dev ## half an hour of real time for the collector, over HTTP (SOAK="--minutes 5": shorter)
	@$(BIN)/python benchmarks/soak_live.py $(SOAK)

soak-load: $(VENV)/.dev ## an hour of real time for load http: flat memory, no request lost (SOAK="--minutes 5": shorter)
	@$(BIN)/python benchmarks/soak_load.py $(SOAK)

reference: $(VENV)/.dev ## write the pages that are made from the code: docs/metrics.md, docs/alerts.md, docs/api.md, the scenario's schema, tables of checks and signals
	@$(BIN)/python tools/metrics_reference.py > docs/metrics.md
	@$(BIN)/python tools/alerts_reference.py > docs/alerts.md
	@$(BIN)/python tools/schema_reference.py > docs/scenario.schema.json
	@$(BIN)/python tools/api_reference.py
	@$(BIN)/python tools/check_tables.py
	@$(BIN)/python tools/signals_reference.py
	@$(BIN)/python tools/beside_reference.py
	@$(BIN)/python tools/settings_reference.py > docs/settings.md
	@$(BIN)/python tools/instance_types_reference.py > docs/instance-types.md

picture: $(VENV)/.dev ## docs/page.png and docs/dashboard.png, the pages of make run and of a live cluster
	@$(BIN)/python tools/page_picture.py

DOCS_VENV := build/docs-environment
$(DOCS_VENV)/.done: pyproject.toml
	@mkdir -p build
	@'$(PYTHON)' tools/environment.py $(DOCS_VENV) '.[docs]'
	@touch $@

docs: $(DOCS_VENV)/.done ## the pages of docs/ as a site with search, in build/site
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "the site is in build/site; to read it: python3 -m http.server --directory build/site"

RELEASE_VENV := build/release-environment
$(RELEASE_VENV)/.done: locks/release.txt
	@rm -rf $(RELEASE_VENV)
	@'$(PYTHON)' -m venv $(RELEASE_VENV)
	@$(RELEASE_VENV)/bin/python -m pip install --quiet --require-hashes --requirement locks/release.txt
	@touch $@

release-dry-run: $(RELEASE_VENV)/.done ## make and check all that a release publishes, in build/release: wheels, chart, stand-alone program, SBOMs, licences (3 min)
	@$(RELEASE_VENV)/bin/python tools/release.py build/release

locks: $(RELEASE_VENV)/.done ## write locks/*.txt, the distributions of images and releases with their hashes; UPGRADE=1 takes newer ones
	@$(RELEASE_VENV)/bin/python tools/locks.py $(if $(UPGRADE),--upgrade)

house: $(VENV)/.dev ## the figures of the code: sizes, names, prose, what starting each server costs
	@$(BIN)/python tools/house.py --servers

clean: ## remove what the other targets made
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
