# PyTorch Performance, Measured.  `make` lists the commands.
#
# Each command makes the environment in .venv if need be. PYTHON=/path/to/python3.12 chooses the Python it is made
# with; VENV=/path uses another environment; PYTORCH=cpu or PYTORCH=cuda says which build of PyTorch goes into a new one.

VENV  ?= .venv
JOBS  ?= 2
# the tests' processes wait a fifth of their time, for browsers, ranks and clocks: three keep two cores busy
WORKERS ?= 3
PY     = "$(VENV)/bin/python"
SETUP  = bash etc/setup.sh "$(VENV)"
comma := ,
# a GPU machine has its own Python with torch, and needs nothing else of the course's environment
RECORDER = $(or $(PYTHON),$(if $(wildcard $(VENV)/bin/python),$(PY),python3))

# processes share the cores already: the threads of each would only wait for one another, and burn four times the time
ONE_THREAD = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# the tests start hundreds of processes: each would compile all of `helpers` anew where a container says otherwise
KEEP_COMPILED = PYTHONDONTWRITEBYTECODE=

export JUPYTER_CONFIG_PATH = $(CURDIR)/etc/jupyter
export JUPYTER_PREFER_ENV_PATH = 1
# what other packages and a learner's own cells read and write is UTF-8 too, whatever this machine's language
export PYTHONUTF8 = 1

.DEFAULT_GOAL := help
.PHONY: help lab setup test lint exercise lesson build upgrade check grade record bundle site report reset clean clean-all
.SILENT:

help: ## list the commands
	awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

lab: setup ## open the course in JupyterLab (PORT=8890: that port; EXTRAS=models,kernels: with transformers …, Triton; TEACHER=1: formgrader)
	exec $(PY) etc/lab.py $(if $(PORT),--port="$(PORT)") $(if $(TEACHER),--teacher)

setup: ## make the environment, or bring it up to date (EXTRAS=models: with transformers, diffusers, torchao; EXTRAS=kernels: with Triton)
	$(SETUP) $(EXTRAS)

test: ## run every test: lint, types, lessons, graders, browser (LESSON=07: only what proves that lesson)
	$(SETUP) test,models,kernels,classroom,hub,site
	$(KEEP_COMPILED) $(ONE_THREAD) $(PY) -m pytest -n $(WORKERS) $(if $(LESSON),--lesson "$(LESSON)") $(ARGS)

lint: ## ruff and mypy only
	$(SETUP) test,models,kernels,classroom,hub,site
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

exercise: ## for authors: lay down a new exercise, with its test and first answers (LESSON=05 NAME=windows)
	$(SETUP) test
	$(PY) -m helpers.classroom.scaffold "$(LESSON)" "$(NAME)"

lesson: ## for authors: lay down a new lesson, under the next free number (NAME=attention)
	$(SETUP) test
	$(PY) -m helpers.classroom.scaffold new "$(NAME)"

build: setup ## masters in, notebooks out: rebuild the lessons that changed (LESSON=01: only that one)
	$(PY) -m helpers.classroom.build $(LESSON) $(ARGS)
	$(PY) -m helpers.running_example docs/ladder.png

upgrade: ## for authors: what another PyTorch would change, tried in an environment beside (TORCH=2.14.1 LESSON=11)
	$(SETUP) test,models
	test -n "$(TORCH)" || { echo 'make upgrade: which PyTorch? For example: make upgrade TORCH=2.14.1' >&2; exit 2; }
	$(PY) -m helpers.classroom.upgrade "$(TORCH)" $(LESSON) $(ARGS)

check: setup ## say whether a notebook is not as its master says
	$(PY) -m helpers.classroom.build --check $(LESSON)

grade: ## for instructors: grade what is new in submitted/*/LESSON, write feedback/ and grades-….csv (LESSON=01 JOBS=2)
	$(SETUP) $(if $(SCHEDULER)$(GRADEBOOK),classroom$(and $(EXTRAS),$(comma))$(EXTRAS),$(EXTRAS))
	test -n "$(LESSON)" || { echo 'make grade: which lesson? For example: make grade LESSON=01' >&2; exit 2; }
	$(PY) -m helpers.classroom.grade "$(LESSON)" --jobs "$(JOBS)" $(if $(SCHEDULER),--scheduler "$(SCHEDULER)") $(ARGS)

record: ## record the experiments on this machine's GPU (LESSON=03: only that one); torch, NumPy and matplotlib are enough
	$(RECORDER) -m helpers.lessons.record $(if $(LESSON),--only $(LESSON)) $(ARGS)

bundle: setup ## for instructors: the course as students get it, without answers (TO=course.zip, LESSONS="01 02")
	$(PY) -m helpers.classroom.bundle $(LESSONS) --to "$(or $(TO),course.zip)"

site: ## the course as pages to read and search, without answers (TO=_site REPOSITORY=https://…)
	$(SETUP) site
	$(PY) -m helpers.classroom.site --to "$(or $(TO),_site)" --repository "$(REPOSITORY)" --hub "$(HUB)" --address "$(ADDRESS)"

report: setup ## your progress as one page to show to a colleague (TO=report.html NAME=Ada)
	$(PY) -m helpers report --to "$(or $(TO),report.html)" --name "$(NAME)"

reset: setup ## a fresh copy of one lesson (LESSON=01); yours is kept beside it
	$(PY) -m helpers.classroom.release "$(LESSON)"

clean: ## remove caches; keeps the environment and every notebook
	rm -rf .pytest_cache .ruff_cache .mypy_cache build *.egg-info tests/browser/.shots
	find . -name .venv -prune -o \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -prune -exec rm -rf {} +

clean-all: clean ## as clean, and the environment too
	rm -rf .venv
