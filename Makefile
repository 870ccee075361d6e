# Doors to the lab. `make scenario-28047` and `make test` do all their own set-up.
#
# Variables: RPCLAB_NO_INSTALL=1 installs nothing on the system; PYTHON names another Python.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RPCLAB := $(BIN)/rpclab
ARGS ?=

# Sub-second where everything is there: one stamp, one question to the engine.
STAMP := $(VENV)/.installed

.PHONY: help
help: ## What there is
	@echo 'make scenario-28047   run one scenario by its number (ARGS: more arguments of rpclab run)'
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' \
	    | awk -F'|' '{ printf "make %-16s %s\n", $$1, $$2 }'

.PHONY: venv
venv: $(STAMP) ## The virtual environment (.venv)

$(STAMP): pyproject.toml lab/venv.sh
	@lab/venv.sh $(VENV) $(PYTHON)
	@touch $@

.PHONY: engine
engine: ## A container engine: installed and started where none answers (root on Debian, Ubuntu)
	@lab/engine.sh

.PHONY: images
images: $(STAMP) engine ## Build the images of all used pins
	$(RPCLAB) images build $(ARGS)

scenario-%: $(STAMP) engine
	$(RPCLAB) run $* $(ARGS)

.PHONY: test
test: $(STAMP) engine ## All tests: unit, and integration on the engine with two pins
	$(RPCLAB) images build f1793c1c4 1548a240e
	$(BIN)/pytest tests $(ARGS)

.PHONY: nightly
nightly: $(STAMP) engine ## Every scenario over every pin and flavour, and what changed (ARGS: rpclab nightly --help)
	$(RPCLAB) nightly $(ARGS)

.PHONY: plan-grid
plan-grid: $(STAMP) engine ## rpclab plan against real heads: hundreds of command lines, every model
	$(RPCLAB) images build f1793c1c4
	$(BIN)/python -m lab.plan.grid

.PHONY: plan-borders
plan-borders: $(STAMP) engine ## Every border of glm-dsa and deepseek4 run: ends each as rpclab plan says?
	$(BIN)/python -m lab.plan.borders runs/plan-borders.toml
	$(RPCLAB) run runs/plan-borders.toml $(ARGS)

.PHONY: bench
bench: $(STAMP) engine ## Where the seconds go
	$(BIN)/python -m lab.bench $(ARGS)

.PHONY: lint
lint: $(STAMP) ## Ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

.PHONY: clean
clean: $(STAMP) ## Remove what stopped runs left on the engine
	$(RPCLAB) clean $(ARGS)
