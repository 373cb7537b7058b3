# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev test [--long]`: both test runners, one count. ctest runs what is C++ (unit and packet tests), pytest what is
# Python (end to end in the lab, and unit tests of the tools); the lane of stock kernels has a short part here. Each writes
# JUnit XML into build/log, and tests/runner/junit_counts.py reads those: it prints what failed and the closing line, and decides the exit status.
#
# What looks at no clock (the simulator, the packages' contents, and the lane: emulated machines, of which those that measure have a
# virtual time of their own) runs beside the others at idle priority: it takes what they leave of the processors, and they never wait for it.

# Bounds far above what is expected: they only end a run that hangs. All of it should take 11 minutes on two CPUs.
CTEST_LIMIT_S=900
PYTEST_LIMIT_S=1800
PATIENT_LIMIT_S=2400
PATIENT_FOLDERS=(debian dst)  # whose Python tests run with the patient ones; those of all other folders are found
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
  # HEDGEROW_LONG: every combination of the end-to-end tests' parameters (the mark `long`).
  # HR_SIM_SEEDS: seeds of the simulator; without it 1,000.
  # HR_RELOADS, HR_RELOAD_KILLS: reloads in a row; writes to the kernel's maps before each of which one is cut short.
  if [ -n "$long" ]; then
    export HR_RACE_S=60 HR_MUTATIONS=384000 HR_KERNEL_KILLS=200 HEDGEROW_LONG=1 HR_RELOADS=100 HR_RELOAD_KILLS=40
    CTEST_LIMIT_S=3600 PYTEST_LIMIT_S=7200 PATIENT_LIMIT_S=7200
    build_previous
  else
    export HR_SIM_SEEDS=300
  fi
  rm -f "$LOG_DIR"/*.xml "$LOG_DIR/pytest-cpu.tsv"
  rm -rf build/*/gtest "$LOG_DIR/packages"
  export HEDGEROW_PACKAGES=$LOG_DIR/packages  # made once, by the first of two processes that need them
  start_patient
  run_ctest release -LE patient
  run_pytest
  finish_patient
  if [ -n "$long" ]; then
    ensure_tla_packages
    run_tla
    run_sanitizer asan
    run_fuzzers
    run_sanitizer tsan
  fi
  say "all of it took $(clock_text $((SECONDS - started)))"
  "$PYTHON" tests/runner/junit_counts.py --skips tests/skips.txt --slowest 20 --cpu "$LOG_DIR/pytest-cpu.tsv" "${reports[@]}" || status=$?
  return "$status"
}

# The node that clusters are upgraded from: of the commit that tests/upgrade_from names, in a work tree of its own.
build_previous() {
  local commit source=build/previous/source
  commit=$(grep -v '^#' tests/upgrade_from)
  git worktree remove --force "$source" 2>/dev/null || true
  rm -rf "$source"
  git worktree prune
  if ! git worktree add --quiet --force --detach "$source" "$commit"; then
    die "no work tree of $commit, which tests/upgrade_from names: is the clone a shallow one?"
  fi
  run_step previous "building hedgerow-node of $commit" bash -c "(cd '$source' && cmake --preset release) && nice -n 5 ninja -C '$source/build/release' -j $(build_jobs) hedgerow-node" || {
    show_tail previous
    die "the version that tests/upgrade_from names does not build"
  }
  export HEDGEROW_PREVIOUS=$PWD/$source/build/release/bin
}

# The runners add "LABEL:FILE:STATUS[:GTEST]" (junit_counts.py) to `reports` of cmd_test. A runner that fails does not end the run: the next one
# still says what it finds.
# One more than there are processors: the tests wait more than they compute (145 s of processor time in 333 s). With twice as many, those
# that keep a time on a real cluster fail now and then.
run_ctest() {
  local preset=$1 result=0
  shift
  run_step "ctest-$preset" "C++ tests ($preset)" \
    timeout --foreground -s INT -k 30 "$CTEST_LIMIT_S" ctest --test-dir "build/$preset" --output-on-failure "$@" \
    --no-tests=ignore -j $(($(nproc) + 1)) --output-junit "$LOG_DIR/ctest-$preset.xml" || result=$?
  reports+=("ctest-$preset:$LOG_DIR/ctest-$preset.xml:$result:build/$preset/gtest")
}

# A report for each file of end-to-end tests, several at a time (run_pytest.py).
run_pytest() {
  local result=0 report
  run_step pytest "Python and end-to-end tests" \
    timeout --foreground -s INT -k 60 "$PYTEST_LIMIT_S" "$PYTHON" -m tests.runner.run_pytest --reports "$LOG_DIR" \
    --beside "${PATIENT_FOLDERS[@]}" || result=$?
  for report in "$LOG_DIR"/pytest-*.xml; do
    [ ! -f "$report" ] || reports+=("pytest:$report:0")
  done
  # A process that ended badly has named a failed test in its report, or has none.
  [ "$result" -eq 0 ] || reports+=("pytest::$result")
}

# In the background until finish_patient. It has a session of its own: a background job of a script hears no Ctrl-C, so
# stop_patient (of on_exit) ends all of it.
start_patient() {
  rm -rf "$LOG_DIR"/vm-*
  rm -f "$LOG_DIR"/vm.status "$LOG_DIR"/vm-net.status "$LOG_DIR"/ctest-patient.status "$LOG_DIR"/patient-python.status
  LOG_DIR=$LOG_DIR setsid chrt -i 0 timeout -k 30 "$PATIENT_LIMIT_S" \
    bash -c "$(declare -p PATIENT_FOLDERS); $(declare -f patient_tests); patient_tests" >"$LOG_DIR/patient.log" 2>&1 </dev/null &
  PATIENT_PID=$!
}

# The short part of `./dev vm test`, on every stock kernel (one that cannot be had is a skip in its report), the simulator,
# the packages' contents, and whole systems in virtual time (dst). It leaves their statuses in build/log.
patient_tests() {
  # Idle priority counts within a session only where the kernel groups sessions (autogroup, sched(7)): the session is put
  # behind the others as well.
  if [ -w /proc/self/autogroup ]; then echo 19 >/proc/self/autogroup; fi
  "$PYTHON" -m deploy.vm test --smoke --one-at-a-time --reports "$LOG_DIR"
  echo $? >"$LOG_DIR/vm.status"
  "$PYTHON" -m deploy.vm net test --smoke --reports "$LOG_DIR"
  echo $? >"$LOG_DIR/vm-net.status"
  ctest --test-dir build/release --output-on-failure -L patient --no-tests=ignore -j 1 \
    --output-junit "$LOG_DIR/ctest-patient.xml"
  echo $? >"$LOG_DIR/ctest-patient.status"
  "$PYTHON" -m pytest -v --junitxml="$LOG_DIR/patient-python.xml" "${PATIENT_FOLDERS[@]}"
  echo $? >"$LOG_DIR/patient-python.status"
}

# What is left of it when the end-to-end tests are done has the processors to itself.
finish_patient() {
  local report result
  run_step patient-rest "simulator and stock kernels, beside" tail -f --pid="$PATIENT_PID" -n +1 "$LOG_DIR/patient.log" || true
  wait "$PATIENT_PID" || true
  PATIENT_PID=""
  result=$(cat "$LOG_DIR/ctest-patient.status" 2>/dev/null || echo 1)
  reports+=("ctest-patient:$LOG_DIR/ctest-patient.xml:$result:build/release/gtest")
  reports+=("pytest:$LOG_DIR/patient-python.xml:$(cat "$LOG_DIR/patient-python.status" 2>/dev/null || echo 1)")
  result=$(cat "$LOG_DIR/vm.status" 2>/dev/null || echo 1)
  for report in "$LOG_DIR"/vm-*/part-*.xml "$LOG_DIR"/vm-*/lane.xml; do
    [ ! -f "$report" ] || reports+=("$(basename "$(dirname "$report")"):$report:0")
  done
  [ "$result" -eq 0 ] || reports+=("vm::$result")
  result=$(cat "$LOG_DIR/vm-net.status" 2>/dev/null || echo 1)
  [ "$result" -eq 0 ] || reports+=("vm-net::$result")
}

# Which seeds find the planted bugs the release build has said, and a sanitizer takes minutes for the rare ones.
run_sanitizer() {
  build_preset "$1"
  HR_SIM_SEEDS=100 run_ctest "$1" -E "^cluster_sim_bugs_test$"
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
