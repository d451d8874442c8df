# Every target sets up .venv by itself; nothing is done twice.
#   PYTHON=…  the interpreter to build .venv with     ARGS=…  passed on to the command

.DEFAULT_GOAL := help
.PHONY: help run test test-all lint bench warm dashboard clean setup setup-test setup-bench
.NOTPARALLEL:
SHELL := /bin/sh
BIN := .venv/bin

# Makes .venv as wanted: $1 is "run", "test" or "bench" (each contains those before it). Works in any POSIX shell.
#  - .venv/.espalier exists only while the environment is whole: it says for which directory, which
#    pyproject.toml and constraints.txt, and which of the three. Without it .venv is half made and is built anew.
#  - pip variables that would send packages elsewhere than into .venv are dropped; mirrors and certificates stay.
define SETUP
set -eu
unset PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_REQUIRE_HASHES PIP_NO_DEPS PIP_DRY_RUN \
      UV_SYSTEM_PYTHON UV_PYTHON UV_TARGET UV_PREFIX PYTHONHOME
want=$$1
stamp=.venv/.espalier
here=$$(pwd -P)
inputs=$$(cksum pyproject.toml constraints.txt)
say() { echo "espalier: $$*"; }
version() { "$$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }

# An interpreter that starts, is new enough and can make environments.
usable() { "$$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
find_python() {
    found=
    if [ -n "$${PYTHON:-}" ]; then set -- "$$PYTHON"; else set -- python3.13 python3.12 python3.11 python3; fi
    for candidate; do
        command -v "$$candidate" >/dev/null 2>&1 || continue
        if usable "$$candidate"; then python=$$candidate; return; fi
        if v=$$(version "$$candidate"); then
            case $$v in
                2.*|3.?.*|3.10.*) found="$$found $$candidate is Python $$v;" ;;
                *) found="$$found $$candidate is Python $$v without venv or ensurepip;" ;;
            esac
        else
            found="$$found $$candidate does not start;"
        fi
    done
    echo "espalier: Python 3.11 or newer with venv and pip is needed. Found:$${found:- no $${PYTHON:-python3};}" >&2
    echo "  Install one (on Debian and Ubuntu: python3 and python3-venv), or name one: make PYTHON=/path/to/python3.12" >&2
    exit 1
}

stamp_for() { printf '%s\n%s\n%s\n' "$$1" "$$inputs" "$$here"; }
whole() {
    [ -f $$stamp ] && $(BIN)/python -c '' >/dev/null 2>&1 && [ "$$(tail -n 1 $$stamp)" = "$$here" ] || return 1
    [ -z "$${PYTHON:-}" ] || [ "$$(version "$$PYTHON")" = "$$(version $(BIN)/python)" ]
}
up_to_date() {
    case $$want in run) enough='run test bench' ;; test) enough='test bench' ;; *) enough=$$want ;; esac
    whole || return 1
    for one in $$enough; do
        if stamp_for "$$one" | cmp -s - $$stamp; then return; fi
    done
    return 1
}

if up_to_date; then exit 0; fi

# One at a time in a folder; what a killed one left behind is taken away by the next.
lock=.venv.lock
waited=0
missing=0
until mkdir $$lock 2>/dev/null; do
    if [ ! -d $$lock ]; then  # let go just now; time and again: nothing can be written here, and mkdir says why
        missing=$$((missing + 1))
        [ $$missing -le 5 ] || { mkdir $$lock || exit 1; break; }
    fi
    holder=$$(cat $$lock/pid 2>/dev/null || true)
    if { [ -n "$$holder" ] && ! kill -0 "$$holder" 2>/dev/null; } || { [ -z "$$holder" ] && [ $$waited -gt 10 ]; }; then
        rm -rf $$lock
        sleep 1
        continue
    fi
    [ $$waited -ne 0 ] || [ ! -d $$lock ] || say "waiting for process $${holder:-that was here first}, which is making .venv"
    waited=$$((waited + 1))
    sleep 1
done
echo $$$$ > $$lock/pid
trap 'rm -rf $$lock' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
if up_to_date; then exit 0; fi

level=$$want
if whole; then
    # Packages for tests and benchmarks stay where they are once there.
    case $$(head -n 1 $$stamp)/$$want in bench/*) level=bench ;; test/run) level=test ;; esac
    say "bringing .venv up to date"
    mv -f $$stamp $$stamp.old
else
    find_python
    say "making .venv with Python $$(version "$$python") ($$python)"
    rm -rf .venv
    "$$python" -m venv .venv
fi
case $$level in bench) package='.[test,bench]' ;; test) package='.[test]' ;; *) package='.[pipeline]' ;; esac

with_uv() {
    $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt uv || return 1
    if [ -n "$${PIP_INDEX_URL:-}" ] && [ -z "$${UV_DEFAULT_INDEX:-}$${UV_INDEX_URL:-}" ]; then
        UV_DEFAULT_INDEX=$$PIP_INDEX_URL; export UV_DEFAULT_INDEX
    fi
    $(BIN)/python -m uv pip install --quiet --python $(BIN)/python --compile-bytecode \
        -c constraints.txt --build-constraints constraints.txt -e "$$package"
}
with_pip() {
    PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -qq --disable-pip-version-check -e "$$package"
}
say "installing the pinned packages (a minute or so the first time)"
if ! with_uv; then
    say "uv could not do it; trying pip alone (several minutes)"
    if ! with_pip; then
        # A refused update leaves what was there in use; only an interrupted one is built anew.
        [ ! -f $$stamp.old ] || mv -f $$stamp.old $$stamp
        say "the packages could not be installed, see the messages above" >&2
        exit 1
    fi
fi
stamp_for "$$level" > $$stamp.new
mv -f $$stamp.new $$stamp
rm -f $$stamp.old
say "ready"
endef

help:
	@echo "make run        train, evaluate and report once, with the parameters in params.yaml"
	@echo "make test       run the tests on all cores   (make test ARGS='-k viterbi -x')"
	@echo "make test-all   the same at length: all random examples, and what takes minutes"
	@echo "make lint       check the style of the code, and the types of the Python class"
	@echo "make bench      our times and the peers'    (make bench ARGS='conll2000 --quick')"
	@echo "make warm       compile ahead what training and tagging need   (make warm ARGS=--all)"
	@echo "make dashboard  start the dashboard"
	@echo "make clean      remove .venv and caches; data, models and reports stay"
	@echo "Each sets up .venv with the pipeline first. PYTHON=python3.12 chooses the interpreter."
	@echo "For Python and tagging alone: pip install . (see README.md, Installing)"

setup setup-test setup-bench: export SETUP_SCRIPT = $(SETUP)
setup:
	@sh -c "$$SETUP_SCRIPT" setup run

setup-test:
	@sh -c "$$SETUP_SCRIPT" setup test

setup-bench:
	@sh -c "$$SETUP_SCRIPT" setup bench

run: setup
	@$(BIN)/espalier run $(ARGS)

warm: setup
	@$(BIN)/espalier warm $(ARGS)

dashboard: setup
	@$(BIN)/espalier dashboard $(ARGS)

test: setup-test
	@$(BIN)/python -m pytest -n auto --dist worksteal -m 'not long' --examples 50 $(ARGS)

test-all: setup-test
	@$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

bench: setup-bench
	@$(BIN)/python -m benchmarks $(or $(ARGS),all)

lint: setup-test
	@$(BIN)/python -m ruff check $(ARGS) .
	@mkdir -p .venv/typed/espalier
	@for name in espalier/*.* espalier/crfsuite engine tasks flows; do \
	    ln -sfn "$$(pwd -P)/$$name" ".venv/typed/espalier/$${name##*/}"; done
	@$(BIN)/python -m mypy

clean:
	@echo "espalier: removing .venv and caches"
	@rm -rf .venv build dist dvc_plots *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find engine tasks flows tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
