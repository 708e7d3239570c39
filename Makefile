# Two commands are all there is to know: `make book` and `make test`. `make help` lists the rest.
# PYTHON is the interpreter the environment is made from; it is used once. TORCH_INDEX is where its PyTorch comes from:
# https://download.pytorch.org/whl/cpu has one without CUDA, a third of the size.
PYTHON ?= python3
TORCH_INDEX ?=
JOBS ?= 2

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
COURSE := $(VENV)/.course
BROWSER := $(VENV)/.browser
PAGES := _build/html
NOTEBOOKS = $(wildcard book/*.ipynb)

# The same environment for every check, so that printed numbers can be compared digit by digit.
FIXED := OMP_NUM_THREADS=1 TQDM_DISABLE=1 PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
PYTEST = $(FIXED) $(PY) -m pytest --color=no
TEXT = text() { rm -rf $$1 && $(PY) -m jupytext -q $(NOTEBOOKS) --to ../$$1//md:myst && \
    $(PY) -m cflkit results --ledger >$$1/ledger.txt; }; text
REFRESH = xargs -P $(JOBS) -n 1 $(PY) -m cflkit refresh
# Jupyter Book is talkative, and in colour: what it says goes to a log, shown only when it fails.
LOG := build/book.log
BUILD = build() { mkdir -p $(dir $(LOG)); $(FIXED) $(PY) -m cflkit pages || exit 1; \
    $(VENV)/bin/jupyter-book build . -q "$$@" >$(LOG) 2>&1 || \
    { tr -d '\033' <$(LOG) | sed 's/\[[0-9;]*m//g'; exit 1; }; }; build

# Minutes long, and how many on two cores where `make test` takes ten. `.ci/run` rotates over this list; a target joins it
# once a whole run of it has passed. To be run whole: test-parameters, test-plain, test-mutants-rest.
SLOW := test-mutants-methods:9 check-refresh:8 test-course:15 test-slow:9 test-killed:10 test-mnist:13 test-edges:19

export NO_COLOR := 1
unexport FORCE_COLOR
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

.PHONY: help env book test lint text unit notebooks pages refresh picture specimens steps playground bench gpu transfers \
    course grade $(foreach each,$(SLOW),$(firstword $(subst :, ,$(each)))) test-fused test-parameters \
    test-plain test-mutants-rest test-mutants test-browser check-links slow-targets clean

help:  ## list the targets
	@echo "usage: make TARGET [PYTHON=python3.11] [JOBS=2]"
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-24s%s\n", $$1, $$2 }'

# Compiled once, as it is installed: `FIXED` lets no later command keep what it compiles.
env: $(STAMP)  ## create .venv and install everything into it

$(STAMP): requirements.txt pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Python 3.11 or newer is needed; '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1 || true)."; \
	    echo "Name another one: make $(or $(MAKECMDGOALS),env) PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(PY) || "$(PYTHON)" -m venv $(VENV)
	@echo "installing into $(VENV) (once; a few minutes)"
	@$(PY) -m pip install -q --disable-pip-version-check uv >/dev/null 2>&1 || true
	@$(if $(TORCH_INDEX),$(PY) -m pip install -q --disable-pip-version-check --no-deps --index-url "$(TORCH_INDEX)" \
	    $(shell sed -n 's/^\(torch\(vision\)\{0,1\}==.*\)/\1/p' requirements.txt))
	@$(PY) -m uv pip install -q --compile-bytecode --python $(PY) -r requirements.txt 2>/dev/null \
	    || $(PY) -m pip install -q --disable-pip-version-check -r requirements.txt
	@$(PY) -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

book: env  ## build the book and say where to open it
	@$(BUILD)
	@echo "the book is built; open file://$(CURDIR)/$(PAGES)/index.html"

test: lint unit  ## every check: style, unit tests, notebooks, pages
	@$(MAKE) -j 2 notebooks pages  # building pages is one process, which leaves a core idle

lint: env  ## style of code and notebooks
	@echo "== style"
	@$(PY) -m ruff check -q --output-format concise .
	@$(TEXT) build/text && diff -r build/text book/text \
	    || { echo "book/text is not what the notebooks and records say: run make text, and read the changes"; exit 1; }
	@echo "clean"

text: env  ## write all notebooks' text and code, and the ledger, to book/text, where a change can be reviewed
	@$(TEXT) book/text

unit: env  ## the fast unit tests
	@echo "== unit tests"
	@$(PYTEST) -n $(JOBS) -m "not slow and not course and not browser" tests

notebooks: env  ## run every notebook again and compare what it prints
	@echo "== notebooks"
	@$(FIXED) $(PY) -m cflkit check
ifneq ($(NOTEBOOKS),)
	@PYTHONPATH="tests$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTEST) -n $(JOBS) --dist loadfile -p kernels \
	    --nbval --nbval-current-env --nbval-kernel-startup-timeout 300 --nbval-cell-timeout 600 --timeout 900 $(NOTEBOOKS)
endif

pages: env  ## build the book from nothing; any warning, broken link or outside request fails
	@echo "== pages"
	@rm -rf _build
	@$(BUILD) -W -n --keep-going
	@$(PY) tests/check_pages.py $(PAGES)

refresh: env  ## run every notebook and store what it prints; twice gives the same files
	@ls $(NOTEBOOKS) | $(REFRESH)

picture: env  ## draw the README's picture from the run records
	@$(PY) book/_ext/front.py book/_static/readme.svg

specimens: env  ## draw the chapters' pictures of real digits and letters (needs MNIST and the sample of FEMNIST)
	@$(PY) book/measure/specimens.py book/_static

steps: env  ## run again what the step-throughs show, and store it (minutes); the same files come out
	@$(FIXED) $(PY) book/measure/histories.py

playground: env  ## write the playground's digits, and draw its pictures for pages without scripts (needs Node)
	@$(FIXED) $(PY) book/measure/playground_export.py

bench: env  ## time one round of every workload beside the usual loop (minutes; wants a quiet machine)
	@$(FIXED) $(PY) -m benchmarks.engine

gpu: env  ## on a machine with a GPU: tests, timings and data runs, most telling first (30 minutes, may be cut off)
	@OMP_NUM_THREADS=1 $(PY) -m benchmarks.card

test-fused: env  ## the kernels of a GPU, interpreted on a processor, and made for a GPU that is not there (minutes)
	@$(PYTEST) -n $(JOBS) tests/test_fused.py

transfers: env  ## how often each method makes the CPU and a GPU wait for each other, without a GPU
	@$(FIXED) $(PY) tests/transfers.py $(METHODS)

$(COURSE): requirements-course.txt $(STAMP)
	@echo "installing what the course needs (once)"
	@$(PY) -m uv pip install -q --compile-bytecode --python $(PY) -r requirements.txt -r $< 2>/dev/null \
	    || $(PY) -m pip install -q --disable-pip-version-check -r requirements.txt -r $<
	@touch $@

course: $(COURSE)  ## build the assignments: what students get, solutions, rubrics
	@$(FIXED) $(PY) -m course.build

grade: $(COURSE)  ## grade SUBMISSIONS=FOLDER; without, take over written points (OPTIONS="--roster roster.csv")
	@$(FIXED) $(PY) -m course.grade $(if $(SUBMISSIONS),"$(SUBMISSIONS)") --jobs $(JOBS) $(OPTIONS)

test-slow: env  ## the unit tests that take minutes
	@$(PYTEST) -n $(JOBS) -m slow --ignore tests/test_chapters.py --ignore tests/test_killed.py tests

test-edges: env  ## every chapter at the edges of its parameters
	@$(PYTEST) -n $(JOBS) -m slow -k edges tests/test_chapters.py

test-mnist: env  ## the chapters on the real MNIST, which `cflkit data mnist` downloads
	@$(PYTEST) -n $(JOBS) -m slow -k on_mnist tests/test_chapters.py

test-parameters: env  ## every parameter of every chapter changes something that the chapter shows
	@$(PYTEST) -n $(JOBS) -m slow -k each_parameter tests/test_chapters.py

test-killed: env  ## runs, sweeps and tables killed at random moments end as if they had not been
	@$(PYTEST) -n $(JOBS) -m slow tests/test_killed.py

test-plain: env  ## the unit tests and notebooks as if llvmlite were not installed
	@PYTHONPATH="$$PWD/tests/plain:$$PWD/tests" $(MAKE) unit notebooks

test-mutants: env  ## break one line at a time; the tests must notice
	@$(FIXED) $(PY) tests/mutate.py -j $(JOBS)

test-mutants-methods: env  ## as test-mutants, of the methods only
	@$(FIXED) $(PY) tests/mutate.py -j $(JOBS) methods

test-mutants-rest: env  ## as test-mutants, of all but the methods
	@$(FIXED) $(PY) tests/mutate.py -j $(JOBS) workbook engine data

check-refresh: env  ## refresh a copy of the book twice and compare the two
	@rm -rf build/refresh && mkdir -p build/refresh && cp -r book build/refresh/once
	@ls build/refresh/once/*.ipynb | $(REFRESH)
	@cp -r build/refresh/once build/refresh/twice
	@ls build/refresh/twice/*.ipynb | $(REFRESH)
	@diff -r build/refresh/once build/refresh/twice && echo "identical"

$(BROWSER): requirements-browser.txt $(STAMP)
	@echo "installing what drives the browser (once)"
	@$(PY) -m uv pip install -q --python $(PY) -r $< 2>/dev/null \
	    || $(PY) -m pip install -q --disable-pip-version-check -r $<
	@touch $@

test-browser: $(BROWSER) book  ## every page in Chromium, light and dark, wide and narrow: barriers, errors, what is cut
	@$(PYTEST) -n $(JOBS) -m browser tests/test_browser.py tests/test_playground.py tests/test_explorer.py \
	    tests/test_plans.py

test-course: $(COURSE)  ## the course: solutions, planted mistakes, misbehaviour, leaks; ONLY=a1: that one's sources
	@$(PYTEST) -n $(JOBS) --dist loadgroup -m course $(if $(ONLY),-k "$(ONLY)" tests/test_course.py,tests)

check-links: env  ## follow the links that leave the book (needs a network)
	@$(BUILD) --builder linkcheck

slow-targets:
	@echo $(SLOW)

clean:  ## remove what was built, but keep .venv
	rm -rf _build build book/_generated .pytest_cache .ruff_cache .hypothesis *.egg-info
	find book cflkit tests -name __pycache__ -type d -prune -exec rm -rf {} +
