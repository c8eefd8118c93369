# Everything a fresh machine needs is set up by the first target you ask for, and quick when repeated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test check bench clean

help:
	@echo "make demo   set up, translate with a bundled model, run the experiments, save their pictures under demo/"
	@echo "make test   set up, run the tests"
	@echo "make check  formatting, lint, types and the order of the rooms"
	@echo "make bench  set up, run benchmarks/attention.py (needs about ten minutes)"
	@echo "make clean  remove the virtual environment and what was made"

demo: $(VENV)/.installed
	@if [ -d src/regard/zoo/zh-en ]; then \
	  echo "== From Chinese to English, with the model that comes along: regard translate"; \
	  printf '%s\n' "介绍一下西安" "我喜欢音乐。" "他是我的朋友。" "火车几点到？" "今天天气很好。" | \
	    $(BIN)/regard translate --from zh --to en; echo; fi
	@mkdir -p demo
	@echo "== Attention is kernel regression: regard regression"
	@$(BIN)/regard regression --out demo/regression.png
	@echo
	@echo "== What each score does: regard scores"
	@$(BIN)/regard scores --out demo/scores.png
	@echo
	@echo "== What each position scheme satisfies: regard positions"
	@$(BIN)/regard positions --out demo/positions.png
	@$(BIN)/regard positions sinusoidal --out demo/sinusoidal.png
	@echo
	@echo "The pictures are in demo/. Try $(BIN)/regard --help next."

test: $(VENV)/.installed
	@echo "== Tests"
	@$(BIN)/python -m pytest -q -n auto

check: $(VENV)/.installed-check
	@echo "== Formatting and lint"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@echo "== Types"
	@$(BIN)/basedpyright
	@echo "== Order of the rooms, length of files"
	@$(BIN)/python -m pytest -q tests/test_rooms.py

bench: $(VENV)/.installed-bench
	@$(BIN)/python benchmarks/attention.py

clean:
	rm -rf $(VENV) demo .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@echo "== Making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Regard needs Python 3.11 or newer; name one by: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "This Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "== Installing Regard and what it needs (some minutes the first time: PyTorch is large)"
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[plot,tensorboard,vectors,test]'
	@touch $@

$(VENV)/.installed-check: $(VENV)/.installed
	@echo "== Installing the checkers"
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[check]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "== Installing the peers that the benchmarks run beside us"
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[bench]'
	@touch $@
