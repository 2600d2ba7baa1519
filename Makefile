# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
DEMO_RUN ?= moe-control-plane

.PHONY: help demo test lint format bench docs clean
help:            ## what there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(BIN)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[cluster]' --group dev
	@touch $@

demo: $(BIN)/.ready    ## ingest sample_traces, print the breakdown, write the HTML report
	@rm -rf demo && mkdir -p demo
	@for run in sample_traces/*/; do $(BIN)/mfuloss ingest $$run --lake demo/lake || exit 1; done
	@$(BIN)/mfuloss report $(DEMO_RUN) --lake demo/lake
	@$(BIN)/mfuloss report $(DEMO_RUN) --lake demo/lake --format html -o demo/report.html
	@echo; echo "The page: demo/report.html    The lake: demo/lake    Ask it: $(BIN)/mfuloss sql --lake demo/lake"

test: $(BIN)/.ready    ## the whole test suite
	$(BIN)/python -m pytest -q -n $(JOBS)

lint: $(BIN)/.ready    ## ruff, mypy and the project's own checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pipeline.lake.library_check

docs: $(BIN)/.ready    ## the reference pages from the headers of queries/ and the schema, and the README's picture
	$(BIN)/python -m pipeline.lake.reference docs
	$(BIN)/python -m pipeline.reports.findings_page docs/findings.md
	$(BIN)/mfuloss ingest sample_traces/$(DEMO_RUN) --lake demo/lake
	$(BIN)/mfuloss report $(DEMO_RUN) --lake demo/lake --format svg -o docs/images/breakdown.svg

bench: $(BIN)/.ready   ## speed of every stage against the raw read (BENCH='--full --peers' for all)
	$(BIN)/python benchmarks/run.py $(BENCH)

format: $(BIN)/.ready  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## remove what the targets above made
	rm -rf $(VENV) demo bench build dist
