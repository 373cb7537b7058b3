# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev build`: configures and builds one preset of CMakePresets.json. Tests, demo and experiments call
# build_preset before they run.

cmd_build() {
  local preset=${1:-release}
  [ $# -le 1 ] || die "usage: ./dev build [release|dev|asan|tsan]"
  case "$preset" in
    release | dev | asan | tsan) ;;
    *) die "no such preset: $preset (release, dev, asan, tsan)" ;;
  esac
  ensure_packages build
  build_preset "$preset"
  say "the programs are in build/$preset/bin, the BPF objects in build/$preset/bpf"
}

# The whole of it, or one target.
build_preset() {
  local preset=$1 target=${2:-all}
  if [ ! -f "build/$preset/build.ninja" ]; then
    run_step "configure-$preset" "configuring $preset" cmake --preset "$preset" || {
      show_tail "configure-$preset"
      exit 1
    }
  fi
  run_step "build-$preset" "building $preset" nice -n 5 ninja -C "build/$preset" -j "$(build_jobs)" "$target" || {
    show_tail "build-$preset"
    die "the build failed; the whole log is build/log/build-$preset.log"
  }
  local reason
  for reason in "build/$preset/bin/"*.missing; do
    [ ! -f "$reason" ] || warn "$(<"$reason")"
  done
}

# One job per CPU, but never more than memory holds: a file that includes gRPC takes about 1 GB to compile.
build_jobs() {
  local cpus memory_gb
  cpus=$(nproc)
  memory_gb=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  [ "$memory_gb" -ge 1 ] || memory_gb=1
  say $((cpus < memory_gb ? cpus : memory_gb))
}
