# `make run` and `make test` are all a fresh machine with Python and make needs.
# PYTHON chooses the interpreter that the environments are made with; ARGS are passed on to tfmon.

PYTHON ?= python3
VENV ?= .venv
VENV_218 ?= .venv-tf218
VENV_RAY ?= .venv-ray
BIN := $(VENV)/bin
ARGS ?=
# Where `make accept-gpu` writes its report and the race that it recorded.
OUT ?= accept-gpu
# Tests wait more than they compute, so there are more at once than cores.
WORKERS ?= 3
# uv is used if it is there, otherwise pip; both install the versions of constraints.txt.
UV := $(shell uv --version >/dev/null 2>&1 && echo uv)
PIP := $(if $(UV),uv pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --disable-pip-version-check)
# For `make run`: it imports a part of what is installed, and only that part is compiled.
UNCOMPILED := $(if $(UV),,--no-compile)
# For tests: many processes import the same modules, so they are compiled once.
COMPILED := $(if $(UV),--compile-bytecode)
# What tests need besides Python: a compiler for the stand-in of NVIDIA's library, an SSH server, a browser, shells.
DEBIAN_PACKAGES := gcc libc6-dev openssh-server chromium zsh fish
# 2.18 is the oldest TensorFlow that tfmon supports: tensorflow-metal holds Apple Silicon there.
TF_218 := tensorflow==2.18.*
# What uv writes after each package that every environment of pyproject.toml gets in the same version.
EVERYWHERE := python_full_version < '3.14' and ((platform_machine == 'arm64' and sys_platform == 'darwin') or sys_platform == 'linux')

# Without bytecode, TensorFlow takes twice as long to import, in each process of a test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-slow test-fast test-pythons test-tf218 test-ray lint ci debian-packages bench bench-ray fairness coverage attribution gate crosscheck claims compared soak monkey oom accept-gpu docs picture constraints release example clean

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp  ## Install tfmon here and start it (ARGS="race large-dense").
	@$(BIN)/tfmon $(ARGS)

test: $(VENV)/dev.stamp  ## Run the tests; they train with real TensorFlow on the CPU.
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-all: test test-slow test-ray test-pythons  ## Run all tests: those marked `slow`, of Ray and under the other Pythons, too.

test-slow: $(VENV)/all.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow $(ARGS)

test-fast: $(VENV)/dev.stamp  ## Run the tests that start no process and load no TensorFlow; before every commit.
	$(BIN)/python -m pytest -n $(WORKERS) -m "not process and not tensorflow and not pty" $(ARGS)

ci: debian-packages lint test-all  ## Do what CI does: packages that tests need, style and types, all tests.

debian-packages:
	@missing=$$(for name in $(DEBIAN_PACKAGES); do dpkg -s $$name >/dev/null 2>&1 || echo $$name; done); \
	if [ -z "$$missing" ] || ! command -v apt-get >/dev/null; then exit 0; \
	elif [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "not installed, so the tests that need it are skipped: $$missing"; fi

test-pythons: $(VENV)/all.stamp  ## Run a slice of the tests on each other supported Python that this machine has; four minutes.
	$(BIN)/python tests/pythons.py

test-tf218: $(VENV_218)/stamp  ## Run the trainer's tests and the scripts under TensorFlow 2.18.
	PYTHONPATH=$(CURDIR) $(VENV_218)/bin/python -m pytest tests/trainer tests/scripts -m trainer $(ARGS)

test-ray: $(VENV_RAY)/stamp  ## Run the tests of lanes on Ray, on clusters of their own; four minutes.
	$(VENV_RAY)/bin/python -m pytest tests/ray_cluster -m ray $(ARGS)

lint: $(VENV)/dev.stamp  ## Check style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: DEBIAN_PACKAGES := btop htop
bench: $(VENV)/dev.stamp debian-packages  ## Measure what tfmon costs and how fast its keys act; takes some minutes.
	$(PIP) -c constraints.txt -e '.[compared]'
	$(BIN)/python benchmarks/overhead.py --scenario small-dense
	$(BIN)/python benchmarks/overhead.py --scenario large-dense
	$(BIN)/python benchmarks/knob_latency.py --scenario small-dense
	$(BIN)/python benchmarks/knob_latency.py --scenario large-dense
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/screen_cost.py
	$(BIN)/python benchmarks/scripts.py
	for what in start keys agent fair; do $(BIN)/python benchmarks/hosts.py $$what; done
	$(MAKE) bench-ray

bench-ray: $(VENV_RAY)/stamp  ## Measure lanes on a Ray cluster of two nodes on this machine.
	for what in start keys fair; do $(VENV_RAY)/bin/python benchmarks/ray_lanes.py $$what; done

fairness: $(VENV)/dev.stamp  ## Measure whether races say the truth; takes an hour on a quiet machine.
	for what in count alone; do $(BIN)/python benchmarks/fairness.py $$what; done
	for how in "" "--load" "--difference 10" "--difference 10 --load"; do \
		$(BIN)/python benchmarks/verdicts.py --seconds 30 $$how; done

coverage: $(VENV)/dev.stamp  ## Simulate what the intervals hold and print the table; takes up to 5 minutes.
	$(BIN)/python benchmarks/coverage.py $(ARGS)

attribution: $(VENV)/dev.stamp  ## Hold where step time goes against profiles; five minutes.
	$(BIN)/python benchmarks/attribution.py $(ARGS)

gate: $(VENV)/dev.stamp  ## Ask the gate about equal races and slower ones, 20 times each; an hour, goes on where it was stopped (ARGS="--load").
	$(BIN)/python benchmarks/gate.py $(ARGS)

crosscheck: DEBIAN_PACKAGES := hyperfine sysstat time
crosscheck: $(VENV)/dev.stamp debian-packages  ## Hold figures against those of other tools, for docs/crosscheck.md; 30 minutes.
	$(BIN)/python benchmarks/crosscheck.py --out benchmarks/crosscheck.md $(ARGS)

claims: $(VENV)/dev.stamp  ## Measure the claims and write them into scenarios/CLAIMS.md; needs a quiet machine; 10 minutes.
	$(BIN)/python benchmarks/claims.py

compared: DEBIAN_PACKAGES := btop hyperfine
compared: $(VENV)/dev.stamp debian-packages  ## Ask five questions with six tools and keep the answers for docs/compared.md; 12 minutes.
	$(PIP) -c constraints.txt -e '.[compared]'
	$(BIN)/python benchmarks/compared/run.py $(ARGS)

soak: $(VENV)/dev.stamp  ## Kill, stop and flood lanes for half an hour (ARGS="--minutes 5", "--real").
	$(BIN)/python benchmarks/soak.py $(ARGS)

monkey: $(VENV)/dev.stamp  ## Press random keys, click and resize over real lanes for ten minutes (ARGS="--seed 7").
	$(BIN)/python benchmarks/monkey.py $(ARGS)

oom: $(VENV)/dev.stamp  ## Have the kernel kill a lane for lack of memory, in a systemd unit that may take 1 GiB.
	systemd-run --user --wait --pipe --same-dir --collect --quiet --setenv=TFMON_TEST_OOM=1 --setenv=PATH="$$PATH" \
		-p MemoryMax=1G -p MemorySwapMax=0 -p OOMPolicy=continue \
		$(abspath $(BIN))/python -m pytest tests/faults/test_memory_limit.py -rs $(ARGS)

accept-gpu: $(VENV)/dev.stamp  ## Check tfmon on this machine's NVIDIA GPU and write a report; 8 minutes (OUT=accept-gpu).
	TFMON_ACCEPT_GPU=$(abspath $(OUT)) $(BIN)/python -m pytest acceptance -v -p no:cacheprovider --session-timeout=480 $(ARGS)

docs: $(VENV)/dev.stamp  ## Build the documentation into docs/_build/html; a warning is an error.
	$(BIN)/python -m sphinx -W --keep-going -n -q docs docs/_build/html

picture: $(VENV)/dev.stamp  ## Draw docs/screen.svg and docs/race.svg, which moves, anew from the example recording.
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/moving.py

release: $(VENV)/all.stamp  ## Build wheel and sdist into dist, and check them, the version and the changelog.
	$(BIN)/python tests/release.py

example: $(VENV)/dev.stamp  ## Record the example race anew; needs a quiet machine. Then: make picture.
	$(BIN)/python benchmarks/record_example.py

clean:  ## Remove the environments and everything that was built.
	rm -rf $(VENV) $(VENV_218) $(VENV_RAY) .venv-pythons build dist docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find tfmon tests scenarios benchmarks acceptance -name __pycache__ -type d -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) $(UNCOMPILED) -c constraints.txt -e .
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) $(COMPILED) -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/run.stamp

$(VENV)/all.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) $(COMPILED) -c constraints.txt -e '.[all]'
	@touch $@ $(VENV)/dev.stamp $(VENV)/run.stamp

constraints: $(VENV)/all.stamp  ## Resolve the dependencies again, for every supported Python and platform.
	$(BIN)/python -m uv pip compile --quiet --upgrade --universal --no-python-downloads --python-version 3.10 --extra all --no-annotate \
		--custom-compile-command "make constraints" --output-file constraints.txt pyproject.toml
	sed -i.old "s/ ; $(EVERYWHERE)$$//" constraints.txt && rm constraints.txt.old

# What is installed in $(VENV) is seen here, too: TensorFlow is not installed twice.
$(VENV_RAY)/stamp: pyproject.toml constraints.txt $(VENV)/dev.stamp
	$(BIN)/python -m venv $(VENV_RAY)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(VENV_RAY)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/venv.pth"
	$(VENV_RAY)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	@touch $@

$(VENV_218)/stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV_218)
	$(VENV_218)/bin/python -m pip install --quiet --disable-pip-version-check \
		'$(TF_218)' 'tf_keras==2.18.*' click packaging platformdirs psutil rich 'hypothesis>=6.100' 'pytest>=8.3,<9' 'pytest-asyncio>=0.25' 'pytest-timeout>=2.3'
	@touch $@
