# The graph of one run: `make book` plans it (tools/plan.py), then runs this file.
#
#   notebook, parameters, code it reaches, data, tables ─► executed copy ─► staged book ─► HTML
#
# Stamps stand for what has no single file: each is rewritten only when what it stands for changed.

PYTHON ?= .venv/bin/python
# Started by tools/forks.py, it runs in forks of that.
COMMAND := $(PYTHON) $(if $(HEART_FORKS),-S -E tools/forks.py,-m)
HTML := build/html$(if $(filter sample,$(RUN)),,-$(RUN))

# CHAPTERS, and an arrow from each table to those who read it.
include build/graph/$(RUN).mk

SHARED := build/data.stamp build/parameters/$(RUN)/recipe.stamp
COPIES := $(CHAPTERS:%=build/executed/$(RUN)/%.ipynb)
PROSE := $(shell find book -type f) _config.yml _toc.yml tools/stage.py tools/evidence.py tools/flow.py tools/functions.py tools/pipeline.py tools/your_run.py

.PHONY: notebooks html
notebooks: $(COPIES)
html: $(HTML)/index.html
	@echo "The book is in $(CURDIR)/$<"

build/executed/$(RUN)/%.ipynb: notebooks/%.ipynb build/parameters/$(RUN)/%.yaml build/code/$(RUN)/%.stamp $(SHARED)
	@$(COMMAND) tools.execute_notebook $< $@ --parameters build/parameters/$(RUN)/$*.yaml --newer $?

$(HTML)/index.html: $(COPIES) $(PROSE) $(SHARED) build/code.stamp build/graph/$(RUN).mk $(wildcard build/functions/index.html)
	@$(COMMAND) tools.stage $(RUN)
	@$(COMMAND) tools.build_html build/stage/$(RUN) $(HTML)
