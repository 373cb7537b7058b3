# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# How ./dev talks: messages, and quiet steps whose output goes to a log file while one line shows that they live.
# Sourced by ./dev before the other files in this folder.

LOG_DIR="$HEDGEROW_ROOT/build/log"
# Debian's own: another python3 may come first in PATH, without the packages that ./dev installs.
export PYTHON=/usr/bin/python3
MONITOR_PID=""
PATIENT_PID=""

# Manifests record the commit; git refuses a tree of another user (sudo ./dev) unless told that it is meant.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="$HEDGEROW_ROOT"

say() { printf '%s\n' "$*"; }
warn() { printf 'dev: %s\n' "$*" >&2; }
die() {
  warn "$*"
  exit 1
}

is_root() { [ "$(id -u)" -eq 0 ]; }

# clock_text SECONDS -> m:ss
clock_text() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# run_step NAME TITLE COMMAND...: runs it with its output in build/log/NAME.log. The command stays in the
# foreground, so that an interrupt reaches it and it can clean up; the progress line is the background part.
# Returns the command's status; the caller decides whether to show the tail.
run_step() {
  local name=$1 title=$2 started=$SECONDS status=0
  shift 2
  mkdir -p "$LOG_DIR"
  : >"$LOG_DIR/$name.log"
  show_progress "$title" "$LOG_DIR/$name.log" &
  MONITOR_PID=$!
  "$@" >"$LOG_DIR/$name.log" 2>&1 </dev/null || status=$?
  stop_progress
  if [ "$status" -eq 0 ]; then
    say "$title: done in $(clock_text $((SECONDS - started)))"
  else
    say "$title: failed after $(clock_text $((SECONDS - started))) (status $status)"
  fi
  return "$status"
}

show_tail() {
  local name=$1 lines=${2:-40}
  warn "the last lines of build/log/$name.log:"
  tail -n "$lines" "$LOG_DIR/$name.log" | sed 's/^/  | /' >&2
}

# The last line of the log, every second on a terminal (in place) and every 20 seconds elsewhere.
show_progress() {
  local title=$1 log=$2 started=$SECONDS line width
  trap - EXIT INT TERM HUP
  if [ -t 1 ]; then
    width=$(($(tput cols 2>/dev/null || echo 80) - 1))
    while kill -0 $$ 2>/dev/null; do
      line=$(last_line "$log")
      printf '\r\033[K%s' "$(printf '[%s] %s: %s' "$(clock_text $((SECONDS - started)))" "$title" "$line" |
        cut -c "1-$width")"
      sleep 1
    done
  else
    say "$title ..."
    while sleep 20 && kill -0 $$ 2>/dev/null; do
      say "[$(clock_text $((SECONDS - started)))] $title: $(last_line "$log" | cut -c 1-110)"
    done
  fi
}

last_line() { tail -c 2000 "$1" 2>/dev/null | tr '\r' '\n' | grep -av '^[[:space:]]*$' | tail -n 1 || true; }

stop_progress() {
  [ -n "$MONITOR_PID" ] || return 0
  kill "$MONITOR_PID" 2>/dev/null || true
  wait "$MONITOR_PID" 2>/dev/null || true
  MONITOR_PID=""
  if [ -t 1 ]; then printf '\r\033[K'; fi
}

# The session of what `./dev test` runs beside (test.sh).
stop_patient() {
  [ -n "$PATIENT_PID" ] || return 0
  pkill -KILL -s "$PATIENT_PID" 2>/dev/null || true
  wait "$PATIENT_PID" 2>/dev/null || true
  PATIENT_PID=""
}

# Whatever ends ./dev: no progress line lives on, no temporary policy stays, and what root wrote into a user's
# tree belongs to that user again.
on_exit() {
  trap - EXIT INT TERM HUP
  stop_progress
  stop_patient
  remove_service_policy
  give_back_to_owner
  exit "$1"
}

give_back_to_owner() {
  local owner path
  is_root || return 0
  owner=$(stat -c %u:%g "$HEDGEROW_ROOT")
  [ "$owner" != 0:0 ] || return 0
  for path in build results; do
    if [ -d "$HEDGEROW_ROOT/$path" ]; then
      chown -R --from=0:0 "$owner" "$HEDGEROW_ROOT/$path" 2>/dev/null || true
    fi
  done
}
