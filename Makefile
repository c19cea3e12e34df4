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
WORKERS ?= 4
# A file stays in one worker, so that a training that its tests share runs once. Without the reordering, which starts
# the files with the most tests first, the files of the user interface come last: they are short.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
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
PYTHONS := 3.10/lowest-direct 3.13/highest
PYTHON_ENVIRONMENTS := .venv-pythons
# What uv writes after each package that every environment of pyproject.toml gets in the same version.
EVERYWHERE := python_full_version < '3.14' and ((platform_machine == 'arm64' and sys_platform == 'darwin') or sys_platform == 'linux')

# GNU Make 4 prints the output of each of several targets in one piece.
WHOLE := $(if $(filter 4.%,$(MAKE_VERSION)),--output-sync=target)

# Without bytecode, TensorFlow takes twice as long to import, in each process of a test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-slow test-fast test-pythons test-tf218 test-ray lint ci debian-packages bench oom accept-gpu docs picture constraints release clean

help:  ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp  ## Install tfmon here and start it (ARGS="race large-dense").
	@$(BIN)/tfmon $(ARGS)

test: $(VENV)/dev.stamp  ## Run the tests; they train with real TensorFlow on the CPU.
	$(PYTEST) -m "not slow" $(ARGS)

# The tests of Ray and of other Pythons wait most of the time, so they run beside the slow ones. What they all need is
# installed before.
test-all: test $(VENV)/all.stamp $(VENV_RAY)/stamp  ## Run all tests: those marked `slow`, of Ray and under the other Pythons, too.
	$(MAKE) --jobs 2 $(WHOLE) test-slow test-ray test-pythons

test-slow: $(VENV)/all.stamp
	$(PYTEST) -m slow $(ARGS)

test-fast: $(VENV)/dev.stamp  ## Run the tests that start no process and load no TensorFlow; before every commit.
	$(BIN)/python -m pytest -n $(WORKERS) -m "not process and not tensorflow and not pty" $(ARGS)

ci: debian-packages lint test-all

debian-packages:
	@missing=$$(for name in $(DEBIAN_PACKAGES); do dpkg -s $$name >/dev/null 2>&1 || echo $$name; done); \
	if [ -z "$$missing" ] || ! command -v apt-get >/dev/null; then exit 0; \
	elif [ "$$(id -u)" = 0 ]; then echo "apt-get installs $$missing"; apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "not installed, so the tests that need it are skipped: $$missing"; fi

# The oldest Python gets the lowest versions of tfmon's requirements, the newest the newest versions. A Python that is
# not installed is no failure, and the Python of `make test` is left to it. The shims of pyenv fail.
test-pythons: $(VENV)/all.stamp
	@set -e; for run in $(PYTHONS); do \
		version=$${run%/*}; there=$(PYTHON_ENVIRONMENTS)/$$version; \
		PATH="$$(ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version"*/bin 2>/dev/null | tail -1):$$PATH"; \
		if [ "$$run" = "$$($(BIN)/python -c 'import sys; print("%d.%d/highest" % sys.version_info[:2])')" ]; then \
			echo "Python $$version: left to make test"; continue; fi; \
		if ! $(BIN)/uv python find --quiet --system --no-python-downloads $$version; then \
			echo "Python $$version: not found"; continue; fi; \
		$(BIN)/uv venv --quiet --allow-existing --python $$version $$there; \
		$(BIN)/uv pip install --quiet --python $$there --resolution $${run#*/} -e '.[test]'; \
		$$there/bin/python -m pytest -q -p no:cacheprovider -n 2 -m pythons $$(grep -rl 'mark\.pythons' tests --include='test_*.py'); \
	done

test-tf218: $(VENV_218)/stamp
	PYTHONPATH=$(CURDIR) $(VENV_218)/bin/python -m pytest tests/trainer tests/scripts -m trainer $(ARGS)

test-ray: $(VENV_RAY)/stamp
	$(VENV_RAY)/bin/python -m pytest tests/ray_cluster -m ray $(ARGS)

lint: $(VENV)/dev.stamp  ## Check style, types and prose.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/prose.py

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

oom: $(VENV)/dev.stamp
	systemd-run --user --wait --pipe --same-dir --collect --quiet --setenv=TFMON_TEST_OOM=1 --setenv=PATH="$$PATH" \
		-p MemoryMax=1G -p MemorySwapMax=0 -p OOMPolicy=continue \
		$(abspath $(BIN))/python -m pytest tests/faults/test_memory_limit.py -rs $(ARGS)

accept-gpu: $(VENV)/dev.stamp  ## Check tfmon on this machine's NVIDIA GPU and write a report; 8 minutes (OUT=accept-gpu).
	TFMON_ACCEPT_GPU=$(abspath $(OUT)) $(BIN)/python -m pytest acceptance -v -p no:cacheprovider --session-timeout=480 $(ARGS)

docs: $(VENV)/dev.stamp  ## Build the documentation into docs/_build/html; a warning is an error.
	$(BIN)/python -m sphinx -W --keep-going -n -q docs docs/_build/html

picture: $(VENV)/dev.stamp
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/moving.py

release: $(VENV)/all.stamp  ## Build wheel and sdist into dist, and check them, the version and the changelog.
	$(BIN)/python tests/release.py

clean:  ## Remove the environments and everything that was built.
	rm -rf $(VENV) $(VENV_218) $(VENV_RAY) $(PYTHON_ENVIRONMENTS) build dist docs/_build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
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

constraints: $(VENV)/all.stamp
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
	$(VENV_218)/bin/python -m pip install --quiet --disable-pip-version-check '$(TF_218)' 'tf_keras==2.18.*' -e '.[test]'
	@touch $@
