# Every target does the set-up it needs; what is already done is not done again (stamp files in .venv).
# A fresh machine needs Python 3.11 or newer, make, and for Kafka and Spark a Java runtime, 17 or newer.

MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
PIP_INSTALL := $(PIP) install --no-build-isolation --progress-bar on
UV ?= uv
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate
# Set by the caller to say more, or other things, to pytest.
PYTEST_ARGS ?=
# Else each worker, node and command would compile our sources anew when it starts.
export PYTHONDONTWRITEBYTECODE :=
# Tests wait for processes and for each other's answers, so six workers keep two cores busy; of those
# with a Kafka, nodes and Spark of their own, three do. Those come in the order of tests/conftest.py.
PYTEST := $(BIN)/pytest -n 6
PYTEST_WITH_PROCESSES := $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder

.PHONY: help
help:
	@echo 'make setup         create .venv with the anabranch command in it'
	@echo 'make demo          each promise once, on a small cluster and a real trace'
	@echo 'make check         the quick loop: format, lint, types, layers, unit and property tests'
	@echo 'make test          the above, a slice of each simulation, a real Kafka, a real Spark'
	@echo 'make test-long     the rest: several brokers, long simulations, containers'
	@echo 'make images        build the images (needs a Docker engine)'
	@echo 'make stack         a whole cluster in containers: Kafka, nodes, Spark, Prometheus'
	@echo 'make stack-down    remove that cluster, and all that it kept'
	@echo 'make faults        disturb those images under load, and judge the history'
	@echo 'make faults-clean  remove the containers of a run that was killed'
	@echo 'make mutants       plant bugs one by one, and see which of them no test notices'
	@echo 'make bench         measure, print ratios to limits, save JSON and plots'
	@echo 'make format        rewrite the sources in the project format'
	@echo 'make release-check compare what is stored with what was tagged; WRITE=--write before a tag'
	@echo 'make proto         generate the code of the wire protocol'
	@echo 'make requirements  resolve the dependencies anew (needs uv)'
	@echo 'make clean         remove .venv and everything built'

# --- set-up -------------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.installed

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ]; then \
		echo 'Python 3.11 or newer is missing. Install it (Debian, Ubuntu: apt-get install python3.11' >&2; \
		echo 'python3.11-venv; Fedora: dnf install python3.11; macOS: brew install python@3.11) or name' >&2; \
		echo 'one: make setup PYTHON=/path/to/python3.11' >&2; exit 1; fi
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo 'The venv module of $(PYTHON) is missing. Install it (Debian, Ubuntu: apt-get install' >&2; \
		echo 'python3-venv or python3.11-venv).' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# pyspark is a source distribution: what builds it comes first, because hashes rule out the
# isolated build, whose packages pip would take without any.
$(VENV)/.requirements: $(VENV)/.created requirements/build.txt requirements/dev.txt
	$(PIP_INSTALL) --require-hashes -r requirements/build.txt
	$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.installed: $(VENV)/.requirements pyproject.toml
	$(PIP_INSTALL) --quiet --no-deps --editable .
	@touch $@

# Kafka and Spark run on Java; the message of the module says what is missing. Needs no .venv, so
# that it can come before the downloads.
.PHONY: java
java:
	@if [ -n "$(PYTHON)" ]; then PYTHONPATH=core:devkit PYTHONDONTWRITEBYTECODE=1 \
		$(PYTHON) -m anabranch.jars.java; fi

# Jars of Kafka and of Spark's connectors, into the user's cache directory.
.PHONY: jars
jars: setup
	@$(BIN)/python -m anabranch.jars.cache

.PHONY: requirements
requirements:
	@command -v $(UV) >/dev/null || { \
		echo 'uv is missing. Install it (pip install uv) or name one: make requirements UV=...' >&2; exit 1; }
	$(COMPILE) requirements/build.in -o requirements/build.txt
	$(COMPILE) pyproject.toml --extra node -c requirements/build.txt -o requirements/node.txt
	$(COMPILE) pyproject.toml -c requirements/node.txt -o requirements/sdk.txt
	$(COMPILE) pyproject.toml --extra spark -c requirements/build.txt -c requirements/node.txt \
		-o requirements/spark.txt
	$(COMPILE) pyproject.toml --extra spark --extra otel --extra faststream --group dev -c requirements/build.txt \
		-c requirements/spark.txt -o requirements/dev.txt
	$(COMPILE) --group mutants -c requirements/dev.txt -o requirements/mutants.txt

# The committed code of the wire protocol, after a change of its .proto file.
.PHONY: proto
proto: setup
	$(BIN)/python -m grpc_tools.protoc -Iwire --python_out=wire --pyi_out=wire \
		wire/anabranch/wire/anabranch.proto

# The committed checksums of the jars, after a change of version.
.PHONY: checksums
checksums: java setup
	PYTHONPATH=tests $(BIN)/python -m support.checksums

# --- checks -------------------------------------------------------------------------------------

.PHONY: lint
lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: check
check: lint
	$(PYTEST) --dist worksteal -m 'not long' $(wildcard tests/unit tests/property) $(PYTEST_ARGS)

LARGE := tests/simulation tests/faults tests/integration

# What needs processes of its own comes after what fails within minutes.
.PHONY: test
test: java check jars
	$(PYTEST_WITH_PROCESSES) -m 'not long and not faults' $(LARGE) $(PYTEST_ARGS)

# All that is marked `long`, eight times the seconds for new seeds of clusters, and containers where an engine answers:
# each part, whatever became of the one before it.
.PHONY: test-long
test-long: java jars
	@$(BIN)/python -m anabranch.jars.cache old
	@failed=0; \
	$(PYTEST_WITH_PROCESSES) -m 'long and not faults' $(LARGE) $(PYTEST_ARGS) || failed=1; \
	$(PYTEST) --dist worksteal --budget 8 -k no_fault tests/simulation/test_worlds.py $(PYTEST_ARGS) || failed=1; \
	if docker info >/dev/null 2>&1; then $(MAKE) faults TESTS='$(CONTAINERS)' || failed=1; else \
		echo '**********************************************************************'; \
		echo '*  CONTAINERS WERE NOT TESTED: no Docker engine answers.             *'; \
		echo '*  Start one, or let .ci/run install it, and run `make faults`.      *'; \
		echo '**********************************************************************'; fi; exit $$failed

CONTAINERS := $(foreach test,images leftovers kinds faults,tests/faults/test_$(test).py)

# Images of a node, of Spark, of Kafka, of what disturbs them and of Prometheus, for the Docker engine that answers;
# docker/base.sh makes the base where none can be pulled.
.PHONY: images
images: engine java jars
	for jars in kafka spark; do rm -rf build/docker/$$jars && mkdir -p build/docker/$$jars && cp $$($(BIN)/python -c \
		"from anabranch.jars.cache import resolve; print(*resolve('$$jars'))") build/docker/$$jars/ || exit 1; done
	docker image inspect debian:bookworm-slim >/dev/null 2>&1 || docker pull debian:bookworm-slim \
		|| docker/base.sh debian:bookworm-slim
	for target in node spark kafka faults prometheus; do \
		docker build --force-rm --network host --target $$target --tag anabranch-$$target:dev --file docker/Dockerfile . \
			|| exit 1; done

.PHONY: engine
engine:
	@docker/stack.sh engine

# The cluster of docker/compose.yaml.
.PHONY: stack stack-down
stack: images
	docker/stack.sh up
stack-down:
	docker/stack.sh down

# FAULTS of them, of KINDS, injected into containers under load, from the schedule of SEED on. And the other tests of
# containers, or those of TESTS.
TESTS ?= tests/faults
.PHONY: faults
faults: images
	$(BIN)/pytest -o faulthandler_timeout=3600 -m faults $(TESTS) $(PYTEST_ARGS)

# What a run that was killed has left in Docker; the next run begins with it too.
.PHONY: faults-clean
faults-clean: setup
	@PYTHONPATH=tests $(BIN)/python -m faults.leftovers

.PHONY: format
format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Each format must write what it did, since what was stored is read for ever. With WRITE=--write, before a version is
# tagged, the bytes of new formats and versions are kept too.
.PHONY: release-check
release-check: setup
	@PYTHONPATH=tests $(BIN)/python -m support.golden $(WRITE)

# --- running ------------------------------------------------------------------------------------

.PHONY: demo
demo: java jars
	$(BIN)/anabranch demo

$(VENV)/.mutants: $(VENV)/.installed requirements/mutants.txt
	$(PIP_INSTALL) --require-hashes -r requirements/mutants.txt
	@touch $@

# Of the rules that promises rest on; docs/mutants.md says more. TARGETS: some of them only.
.PHONY: mutants
mutants: $(VENV)/.mutants
	PYTHONPATH=tests $(BIN)/python -m mutation.run $(TARGETS)

.PHONY: bench
bench: java jars
	PYTHONPATH=tests $(BIN)/python -m bench

.PHONY: clean
clean:
	rm -rf $(VENV) .mutants build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
