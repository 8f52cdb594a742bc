# `make demo` shows what graphopt does; `make test` is everything that must pass. Both start from a bare machine
# that has make and Python 3.11 or newer.

VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

# The first Python on the path that is new enough; override with `make test PYTHON=/path/to/python`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

# The exact torch release matters: the newest one pulls gigabytes of CUDA libraries on Linux, and torchvision works
# with one release of torch only. The extra index serves CPU-only builds under the same release number, which pip
# prefers ("2.13.0+cpu" satisfies "==2.13.0"); where it cannot be reached, pip takes the release it finds elsewhere.
TORCH := torch==2.13.0
TORCHVISION := torchvision==0.28.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

MODEL ?= $(firstword $(filter-out %.opt.onnx,$(wildcard models/*.onnx)))
# 'demo' runs on the machine's own terms; a short budget is enough for a small model.
DEMO_ARGS ?=

# Another package of the runtime to test beside: what only the CPU's package does not show. onnxruntime-gpu needs no GPU for that.
RUNTIME ?= onnxruntime-gpu
ELSEWHERE := build/elsewhere

.PHONY: help demo test lint unit elsewhere thorough hostile clean
help:
	@echo "make demo   set up $(VENV) and optimise a committed model"
	@echo "make test   lint, type check and test"
	@echo "make lint   ruff and mypy only"
	@echo "make unit   pytest only (PYTEST_ARGS=... to pass arguments)"
	@echo "make elsewhere  pytest of what meets the runtime, with another package of it (RUNTIME=onnxruntime-gpu==1.31.1)"
	@echo "make thorough  more seeds and instances of what the tests hold (half an hour)"
	@echo "make hostile  hostile inputs, and 17 kinds of faults 20 times each: two tables (an hour)"
	@echo "make clean  remove $(VENV), caches and build output"

demo: $(VENV)/.base
	@test -n "$(MODEL)" || { echo "no model in models/"; exit 1; }
	@mkdir -p build
	$(BIN)/graphopt optimize $(MODEL) -o build/demo.opt.onnx --report build/demo.html $(DEMO_ARGS)

test: lint unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.dev $(VENV)/.browser
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS)

# Its environment has that package alone; the others are those of $(VENV), behind it on the path.
elsewhere: $(VENV)/.dev
	rm -rf $(ELSEWHERE)
	$(BIN)/python -m venv $(ELSEWHERE)
	$(ELSEWHERE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(RUNTIME)
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > "$$($(ELSEWHERE)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/others.pth"
	PYTHONPATH=$(CURDIR) $(ELSEWHERE)/bin/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_ARGS) \
		tests/runtime tests/onnxio tests/cost tests/search tests/pipeline tests/verification tests/benchmark tests/cli

thorough: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m thorough $(PYTEST_ARGS)

hostile: $(VENV)/.dev
	@mkdir -p build
	$(BIN)/python -m tests.hostile
	$(BIN)/python -m tests.faults --repeat 20 --out build/faults.jsonl

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "graphopt needs Python 3.11 or newer on the PATH (or: make PYTHON=...)"; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); echo "could not make a virtual environment (Debian and Ubuntu: apt install python3-venv)"; exit 1; }

# The stamps re-install when the dependencies may have changed.
$(VENV)/.base: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 --extra-index-url $(TORCH_INDEX) $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 1 --extra-index-url $(TORCH_INDEX) --no-deps $(TORCHVISION)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cpu,egraph,prove,train,zoo,ray,docs,dev]'
	@touch $@

# A Chromium for the tests of the HTML report, unless there is one; without any those tests are skipped.
$(VENV)/.browser: tests/report/browser.py | $(VENV)/.dev
	$(BIN)/python -m tests.report.browser
	@touch $@
