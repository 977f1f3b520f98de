.POSIX:
# `make` lists what there is. What a target needs is installed into .venv first, once: the stamps .venv/.runtime and .venv/.develop
# are made anew only when settings.ini or constraints.txt change.
# With an environment of your own instead: make test BIN=/path/to/its/bin RUNTIME= DEVELOP=
PY ?= python3
BIN = .venv/bin
RUNTIME = .venv/.runtime
DEVELOP = .venv/.develop
NB = * */*
BOOKS = $$(for nb in $(NB); do ls nbs/$$nb.ipynb; done)
PAPER =
# chapters of rooms whose own tests do the work each day; `make test-all` runs these, too, and `make evidence` those of experiments
LATER = ^[_.]|^(after|commands|corpus|decoding|drawing|engine|exports|imports|experiments|inside|parsing|rivals)$$

# whose annotations and shapes `make test-all` checks, too; not decoding's, whose searches would take twice as long
BOOK = annotated_transformer
TYPED = $(BOOK).model,$(BOOK).engine,$(BOOK).corpus.batching,$(BOOK).training,$(BOOK).inside,$(BOOK).rivals,$(BOOK).after,$(BOOK).imports,$(BOOK).exports

RUN = env PATH="$$(cd $(BIN) && pwd):$$PATH"
# two processes share the cores, one thread each; start_here trains for a twelfth of its updates
CHECK = $(RUN) OMP_NUM_THREADS=1 ANNOTATED_UPDATES=50
# the reader's copy of the paper's source: named, fetched before, or offered to whoever sits at a terminal
HAVE_PAPER = $(if $(PAPER),'$(PAPER)',"$$($(RUN) python .ci/paper.py)")
PIP = $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet -c constraints.txt
# uv installs in a quarter of pip's time; where pip was told to look, it looks, too
INSTALL = $(PIP) uv && $(BIN)/python -m uv pip install --python $(BIN)/python --quiet -c constraints.txt \
	$${PIP_FIND_LINKS:+--find-links "$$PIP_FIND_LINKS"} $${PIP_INDEX_URL:+--index-url "$$PIP_INDEX_URL"}

.PHONY: help demo test test-all check evidence lab exercises export text notebooks figures readme site

help: ## what there is (this list)
	@sed -n 's/^\([a-z-]*\):.* ## /\1#/p' Makefile | awk -F '#' '{ printf "make %-10s %s\n", $$1, $$2 }'

demo: $(RUNTIME) ## train a small Transformer, watch it learn to translate (minutes)
	@$(RUN) annotated-transformer demo

test: $(DEVELOP) ## the everyday checks: the core chapters run, the package works
	@status=0; $(CHECK) nbdev_test --n_workers 2 --skip_folder_re '$(LATER)' || status=1; $(CHECK) pytest -n 2 --dist loadgroup || status=1; exit $$status

test-all: $(DEVELOP) ## every chapter, the slow tests, and the evidence
	@status=0; $(CHECK) nbdev_test --n_workers 2 --flags slow || status=1; $(CHECK) pytest -n 2 --dist loadgroup --jaxtyping-packages=$(TYPED),checking.check -m "" tests tests/experiments || status=1; exit $$status

check: $(DEVELOP) ## one changed chapter, in two minutes: exported, linted, run, its room tested (make check NB=model/attention)
	@test -f "nbs/$(NB).ipynb" || { echo "nbs/$(NB).ipynb: no such chapter: name one, as in make check NB=model/attention" >&2; exit 1; }
	@$(RUN) nbdev_export
	@$(RUN) ruff check --quiet nbs/$(NB).ipynb
	@$(CHECK) nbdev_test --path nbs/$(NB).ipynb
	@for room in $(wildcard tests/$(firstword $(subst /, ,$(NB)))); do $(CHECK) pytest -n 2 --dist loadgroup $$room; done

evidence: $(DEVELOP) ## the records' digests, the summary, the verdicts, the runner, and their chapters
	@status=0; $(CHECK) nbdev_test --n_workers 2 --folder_re 'experiments' || status=1; $(CHECK) pytest -n 2 --dist loadgroup tests/experiments || status=1; exit $$status

lab: $(DEVELOP) ## read and run the chapters in JupyterLab (PAPER=your/copy of the paper's source: its words folded in)
	@$(RUN) jupyter trust nbs/*.ipynb nbs/*/*.ipynb > /dev/null
	@paper=$(HAVE_PAPER); $(RUN) ANNOTATED_TRANSFORMER_PAPER="$$paper" PYTHONPATH="$$PWD/.ci/lab" jupyter lab --allow-root --custom-css \
		--ServerApp.jpserver_extensions='{"book_lab": True, "jupyterlab": True, "jupyterlab_jupytext": False}' \
		--ServerApp.contents_manager_class=book_lab.Notebooks --ContentsManager.pre_save_hook=nbdev.clean.clean_jupyter \
		--LabApp.app_settings_dir="$$PWD/.ci/lab/settings" --LabApp.default_url=/lab/tree/nbs/index.ipynb

exercises: $(DEVELOP) ## write exercises/, a learner's copy of the chapters without the solutions
	@$(RUN) python .ci/exercises.py

export: $(DEVELOP) ## write annotated_transformer/ from the chapters
	@$(RUN) nbdev_export

text: $(DEVELOP) ## chapters as Python files in build/text/, to edit there (make text NB=model/attention)
	@$(RUN) jupytext --quiet --sync $(BOOKS)

notebooks: $(DEVELOP) ## build chapters: exported, executed, cleaned (one: make notebooks NB=model/attention)
	@for nb in $(BOOKS); do copy=build/text/$${nb#nbs/}; if [ -f "$${copy%.ipynb}.py" ]; then $(RUN) jupytext --quiet --sync $$nb; fi; done
	@$(RUN) jupytext --quiet --set-kernel python3 $(BOOKS)
	@$(RUN) nbdev_export
	@mkdir -p build && echo "executing $(NB)"
	@$(RUN) jupyter nbconvert --to notebook --execute --inplace --ClearMetadataPreprocessor.enabled=True \
		'--ClearMetadataPreprocessor.preserve_nb_metadata_mask={"kernelspec"}' \
		'--ClearMetadataPreprocessor.preserve_cell_metadata_mask={"tags", "jupyter"}' $(BOOKS) 2> build/execute.log \
		|| { cat build/execute.log >&2; exit 1; }
	@$(RUN) python .ci/tidy.py
	@$(RUN) nbdev_clean
	@$(RUN) nbdev_export
	@$(MAKE) -s readme

figures: ## the same, and the pictures in figures/ drawn anew (one chapter's: make figures NB=model/attention)
	@ANNOTATED_FIGURES="$$PWD/figures" $(MAKE) -s notebooks

readme: $(DEVELOP) ## write README.md from nbs/index.ipynb
	@$(RUN) python .ci/readme.py

site: $(DEVELOP) ## the chapters as a website in build/site/ (PAPER=your/copy of the paper's source: its words folded in)
	@paper=$(HAVE_PAPER); $(RUN) python site/build.py $${paper:+--paper "$$paper"}

.venv/.python:
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || { \
		echo "Python 3.11 or newer is needed; $(PY) is: $$($(PY) --version 2>&1). Name another: make PY=python3.12 ..." >&2; exit 1; }
	@$(PY) -m venv .venv || { \
		echo "$(PY) -m venv failed. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

.venv/.runtime: .venv/.python settings.ini setup.py constraints.txt
	@echo "Installing PyTorch and a few libraries into .venv, this once"
	@$(INSTALL) -e '.[all]'
	@touch $@

.venv/.develop: .venv/.python settings.ini setup.py constraints.txt
	@echo "Installing PyTorch, JupyterLab, nbdev and the test tools into .venv, this once"
	@$(INSTALL) -e '.[dev]'
	@touch .venv/.runtime $@
