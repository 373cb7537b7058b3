# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev test [--long]`: both test runners, one count. ctest runs what is C++ (unit and packet tests), pytest what is
# Python (end to end in the lab, and unit tests of the tools); the lane of stock kernels has a short part here. Each writes JUnit XML into build/log, and
# junit_counts.py reads those: it prints what failed and the closing line, and decides the exit status.

# Bounds far above what is expected: they only end a run that hangs. The target for all of it is 12 minutes.
CTEST_LIMIT_S=900
PYTEST_LIMIT_S=1800
VM_LIMIT_S=600
FUZZ_SECONDS=${HEDGEROW_FUZZ_SECONDS:-60}

cmd_test() {
  local long="" started=$SECONDS status=0 reports=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --long) long=yes ;;
      *) die "usage: ./dev test [--long]" ;;
    esac
    shift
  done
  ready_to_run test
  # How long two CPUs race on a node's state (bpf/tests/node).
  [ -z "$long" ] || export HR_RACE_S=60 HR_KERNEL_KILLS=200
  rm -f "$LOG_DIR"/*.xml
  run_ctest release
  run_pytest
  run_vm
  if [ -n "$long" ]; then
    ensure_tla_packages
    run_tla
    run_sanitizer asan
    run_fuzzers
    run_sanitizer tsan
  fi
  say "all of it took $(clock_text $((SECONDS - started)))"
  "$PYTHON" deploy/dev/junit_counts.py --skips tests/skips.txt "${reports[@]}" || status=$?
  return "$status"
}

# The runners add "LABEL:FILE:STATUS" to `reports` of cmd_test. A runner that fails does not end the run: the next one
# still says what it finds.
run_ctest() {
  local preset=$1 result=0
  run_step "ctest-$preset" "C++ tests ($preset)" \
    timeout --foreground -s INT -k 30 "$CTEST_LIMIT_S" ctest --test-dir "build/$preset" --output-on-failure \
    --no-tests=ignore -j "$(nproc)" --output-junit "$LOG_DIR/ctest-$preset.xml" || result=$?
  reports+=("ctest-$preset:$LOG_DIR/ctest-$preset.xml:$result")
}

run_pytest() {
  local result=0 folders=() folder
  for folder in tests bench chaos cluster demo deploy dst plots proxy spec; do
    [ ! -d "$folder" ] || folders+=("$folder")
  done
  run_step pytest "Python and end-to-end tests" \
    timeout --foreground -s INT -k 60 "$PYTEST_LIMIT_S" "$PYTHON" -m pytest -v \
    --junitxml="$LOG_DIR/pytest.xml" "${folders[@]}" || result=$?
  # 5: pytest found no test.
  [ "$result" -ne 5 ] || result=0
  reports+=("pytest:$LOG_DIR/pytest.xml:$result")
}

# The short part of `./dev vm test`, on every stock kernel. One that cannot be had is a skip in its report.
run_vm() {
  local result=0 report
  rm -rf "$LOG_DIR"/vm-*
  run_step vm "stock kernels under emulation" \
    timeout --foreground -s INT -k 30 "$VM_LIMIT_S" "$PYTHON" -m deploy.vm test --smoke --reports "$LOG_DIR" || result=$?
  for report in "$LOG_DIR"/vm-*/part-*.xml "$LOG_DIR"/vm-*/lane.xml; do
    [ ! -f "$report" ] || reports+=("$(basename "$(dirname "$report")"):$report:0")
  done
  [ "$result" -eq 0 ] || reports+=("vm::$result")
}

run_sanitizer() {
  build_preset "$1"
  run_ctest "$1"
}

# Each fuzzer for a bounded time; what it finds is kept under build/log/fuzz for replay.
run_fuzzers() {
  local name corpus dict result arguments
  mkdir -p "$LOG_DIR/fuzz"
  while IFS='|' read -r name corpus dict; do
    [ -n "$name" ] || continue
    result=0
    mkdir -p "build/asan/corpus/$name"
    arguments=("build/asan/corpus/$name")
    [ -z "$corpus" ] || arguments+=("$corpus")
    [ -z "$dict" ] || arguments+=("-dict=$dict")
    run_step "fuzz-$name" "fuzzing $name for $FUZZ_SECONDS s" \
      "build/asan/bin/$name" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="$LOG_DIR/fuzz/$name-" "${arguments[@]}" || result=$?
    reports+=("fuzz-$name::$result")
  done < <(tr '\t' '|' <build/asan/fuzzers.tsv)
}
