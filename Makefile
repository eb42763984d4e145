# Everything starts from a bare clone: each target makes the virtual environment it needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP    := $(BIN)/python -m pip -qq --disable-pip-version-check
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: run test core lint opengl browser docs notebooks inspector dist format bench torture clean help
.DEFAULT_GOAL := help

help:  ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp  ## Install and run PointEnv end to end: train, build, clean up, evaluate, report
	@$(BIN)/sgm run point --buffer-size 5000 --cleanup-steps 20000

test: lint opengl browser  ## Install, lint, type-check and run the tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal

core: $(VENV)/core.stamp  ## Run the tests that need no extra, with any Python: make core PYTHON=python3.13 VENV=.venv-3.13
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(CORE)

CORE := tests/memory tests/experience tests/navigation tests/envs/point tests/test_import.py tests/test_rooms.py tests/test_cli.py

lint: $(VENV)/dev.stamp  ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# SafetyRooms draws pictures without a screen, for which Python packages are not enough: see what is missing, and get it
# where we may. Without it the tests that need pictures are skipped.
OPENGL := libegl1 libopengl0 libgl1-mesa-dri
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo -n)
APT    := $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qq
opengl: $(VENV)/dev.stamp
	@$(BIN)/python -m sgm.envs.safety.worker >$(VENV)/opengl.log 2>&1 || { \
	  echo "installing $(OPENGL) (once)"; \
	  { $(APT) update; $(APT) install -y --no-install-recommends $(OPENGL); } >$(VENV)/opengl.log 2>&1; \
	  $(BIN)/python -m sgm.envs.safety.worker >>$(VENV)/opengl.log 2>&1; } || { \
	  echo "SafetyRooms cannot draw pictures here, and its tests that need them are skipped. As root, on Debian:"; \
	  echo "  apt-get install $(OPENGL)"; echo "What was tried is in $(VENV)/opengl.log."; }

# The inspector's page is tested in Debian's Chromium, which Mesa draws for without a graphics card. Where there is node, it
# is also built again and compared, and axe-core looks for barriers.
CHROMIUM := chromium $(OPENGL)
NODE_MODULES := inspector/node_modules/.package-lock.json
browser: $(VENV)/dev.stamp $(if $(shell command -v npm),$(NODE_MODULES))
	@command -v chromium >/dev/null || { \
	  echo "installing $(CHROMIUM) (once)"; \
	  { $(APT) update; $(APT) install -y --no-install-recommends $(CHROMIUM); } >$(VENV)/browser.log 2>&1; \
	  command -v chromium >/dev/null; } || { \
	  echo "There is no browser here, and the tests of the inspector's page that need one are skipped. As root, on Debian:"; \
	  echo "  apt-get install $(CHROMIUM)"; echo "What was tried is in $(VENV)/browser.log."; }

docs: $(VENV)/dev.stamp  ## Build the site into build/site; warnings are errors
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

notebooks: $(VENV)/dev.stamp  ## Run the notebooks of the site anew and keep their outputs; minutes
	@$(BIN)/python docs/notebooks.py

dist: $(VENV)/dev.stamp  ## Build wheel and source distribution into dist/ and check them
	@rm -rf dist
	@$(BIN)/python -m hatchling build
	@$(BIN)/python -m twine check --strict dist/*

inspector: $(if $(shell command -v npm),$(NODE_MODULES))  ## Build the inspector's page from its sources; needs node
	@command -v npm >/dev/null || { echo "make inspector needs node and npm; the built page is in sgm/inspector/static"; exit 1; }
	@cd inspector && npm run --silent check && npm run --silent build

$(NODE_MODULES): inspector/package-lock.json
	@cd inspector && npm ci --silent --no-audit --no-fund || echo "npm found no packages; tests of the page that need them are skipped"

format: $(VENV)/dev.stamp  ## Rewrite the sources in house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/dev.stamp  ## Measure every speed claim against its baseline, in one run
	@$(BIN)/python -m speed.memory --out results/memory
	@$(BIN)/python -m speed.files --out results/files
	@$(BIN)/python -m speed.planning --out results/planning
	@$(BIN)/python -m speed.scale --out results/scale --fresh
	@$(BIN)/python -m speed.d3pg --out results/d3pg
	@$(BIN)/python -m speed.navigation --out results/navigation
	@$(BIN)/python -m speed.goals --out results/goals
	@$(BIN)/python -m speed.doom --out results/doom-speed
	@$(BIN)/python -m speed.safety --out results/safety-speed
	@$(BIN)/python -m speed.distances --out results/distances
	@$(BIN)/python -m speed.distributed --out results/distributed

torture: $(VENV)/dev.stamp  ## Kill, break and damage memory files for about an hour; the figures go to results/trust
	@$(BIN)/python -m tests.torture --out results/trust

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/core.stamp: pyproject.toml | $(BIN)/python
	@echo "installing into $(VENV) (once)"
	@$(PIP) install -e '.[test]'
	@touch $@

$(VENV)/run.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (once)"
	@$(PIP) install -e '.[learn,viz,inspect]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (once)"
	@$(PIP) install -e '.[dev,learn,doom,safety,baselines]'
	@touch $@ $(VENV)/run.stamp
