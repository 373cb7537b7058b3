# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev demo`, `./dev bench NAME`, `./dev chaos NAME`, `./dev report`, `./dev pictures`, `./dev lab`, `./dev vm`, `./dev kube`, `./dev dst` and `./dev sim`: make
# the machine ready, then hand over to the program that does the work, which talks to the terminal by itself.

# ready_to_run WHAT: packages, a kernel that can do it, and the release build; without the tests unless it is them.
ready_to_run() {
  require_root "$1"
  require_kernel_at_first_sight
  if [ "$1" = test ]; then ensure_packages build run server watch vm package; else ensure_packages build run server; fi
  require_kernel
  make_bpftool_work
  if [ "$1" = test ]; then build_preset release; else build_preset release programs; fi
  export HEDGEROW_BUILD_DIR="$HEDGEROW_ROOT/build/release"
}

# Ubuntu 24.04's bpftool is a script that only works with the tools of exactly the running kernel; any version of the
# program behind it does for looking at maps and programs.
make_bpftool_work() {
  local found
  if bpftool version >/dev/null 2>&1; then return 0; fi
  found=$(find /usr/lib/linux-tools* -name bpftool 2>/dev/null | sort -V | tail -n 1)
  [ -n "$found" ] || return 0
  mkdir -p build/tools
  ln -sf "$found" build/tools/bpftool
  export PATH="$HEDGEROW_ROOT/build/tools:$PATH"
}

require_root() {
  is_root || die "$1 needs root: it makes network namespaces and loads kernel programs. Try: sudo ./dev $1"
}

cmd_demo() {
  local module=demo.kv
  if [ "${1:-}" = dns ]; then
    module=demo.dns
    shift
  fi
  ready_to_run demo
  "$PYTHON" -m bench "$module" "$@"
}

cmd_bench() {
  local name=${1:-} module
  module=${name//-/_}
  case "$name" in
    repeated-stalls) die "bench repeated-stalls is part of dns-stall: ./dev bench dns-stall --cells repeated --rounds 1" ;;
    adaptive | standby-choice) die "bench $name is a script of phases: ./dev bench phases --scripts $name" ;;
  esac
  if [ -z "$name" ] || [[ " $(bench_names) " != *" $name "* ]]; then
    die "usage: ./dev bench NAME [ARGS]; names: $(bench_names)"
  fi
  shift
  ready_to_run bench
  "$PYTHON" -m bench "bench.$module" "$@"
}

# An experiment is a module of bench/ that names its folder of results.
bench_names() {
  grep -lE '^NAME\b.*=' bench/*.py 2>/dev/null | sed 's|bench/||; s|\.py$||; s|_|-|g' | paste -sd ' ' | grep . || echo "none yet"
}

cmd_chaos() {
  local name=${1:-} module=chaos.run
  if [ -z "$name" ] || [[ " $(chaos_names) " != *" $name "* ]]; then
    die "usage: ./dev chaos NAME [ARGS], --help says more; names: $(chaos_names)"
  fi
  if [ ! -f "chaos/scenarios/$name.toml" ]; then
    module=chaos.${name//-/_}
    shift
  fi
  ready_to_run chaos
  "$PYTHON" -m bench "$module" "$@"
}

# Scenarios, of which chaos.run does any, and modules that name their folder of results.
chaos_names() {
  { (cd chaos/scenarios && printf '%s\n' *.toml | sed 's/\.toml$//')
    grep -lE '^NAME\b.*=' chaos/*.py | sed 's|chaos/||; s|\.py$||; s|_|-|g'; } | sort | paste -sd ' '
}

# Makes the verdict of a run again from its raw files; no root, no lab.
cmd_judge() {
  "$PYTHON" -m report.experiments "$@"
}

cmd_lab() {
  case "${1:-}" in
    up | down | status | shell) ;;
    *) die "usage: ./dev lab up|down|status|shell [ARGS]" ;;
  esac
  require_root lab
  ensure_packages run server
  "$PYTHON" -m deploy.lab "$@"
}

# What killed runs have left on this machine.
cmd_clean() {
  require_root clean
  "$PYTHON" -m deploy.lab clean "$@"
}

# Every system call of every program's life fails; arguments: --all, --seconds, --seed, --life, --plant.
cmd_faults() {
  ready_to_run faults
  PYTHONPATH=$HEDGEROW_ROOT:$HEDGEROW_ROOT/tests "$PYTHON" -m faults "$@"
}

# The README's: the demo, and the live page as Chromium shows it.
cmd_pictures() {
  ready_to_run pictures
  ensure_packages watch
  "$PYTHON" -m bench demo.pictures "$@"
}

# Reads the measurements; no root once everything is installed.
cmd_report() {
  ensure_packages run
  "$PYTHON" -m report "$@"
}

# No root: nothing but the processor is used.
cmd_sim() {
  ensure_packages build
  build_preset release hedgerow-sim
  build/release/bin/hedgerow-sim "$@"
}

# Whole systems in machines in virtual time. No root once everything is installed, as for `vm`.
cmd_dst() {
  ensure_packages build run server vm
  build_preset release
  export HEDGEROW_BUILD_DIR="$HEDGEROW_ROOT/build/release"
  "$PYTHON" -m bench dst.__main__ "$@"
}

# Needs no root once everything is installed: the machines have their own.
cmd_vm() {
  case "${1:-}" in
    fetch | image | run | shell | test | net) ;;
    *) die "usage: ./dev vm fetch|image|run|shell|test|net [ARGS]; ./dev vm run --help says more" ;;
  esac
  ensure_packages build run server vm
  if [ "$1" != fetch ]; then build_preset release; fi
  export HEDGEROW_BUILD_DIR="$HEDGEROW_ROOT/build/release"
  "$PYTHON" -m deploy.vm "$@"
}

cmd_kube() {
  require_root kube
  ensure_packages build run server
  export HEDGEROW_IMAGES=$HEDGEROW_ROOT/build/images/kube
  case "${1:-}" in up | test) cmd_image "$HEDGEROW_IMAGES" ;; esac
  "$PYTHON" -m bench deploy.kube.__main__ "$@"
}
