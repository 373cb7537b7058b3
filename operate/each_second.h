// SPDX-License-Identifier: Apache-2.0
//
// A command that shows something each second until it is ended: on a terminal a screen that redraws itself, into a pipe
// one snapshot after the other. Used by `hedgerow top` and `hedgerow steer show --watch`.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "net/unique_fd.h"
#include "operate/command_line.h"
#include "operate/screen_line.h"

namespace hedgerow::operate {

// What is shown. Called by one thread.
class EachSecondView {
 public:
  virtual ~EachSecondView() = default;
  // Asks once more. After an error the last answer stands.
  virtual absl::Status Read() = 0;
  // The last answer; empty: nothing to show yet.
  virtual std::vector<Line> Lines(int width) const = 0;
  // The same into a pipe, with --json as one line.
  virtual void Print() const = 0;
};

class EachSecond {
 public:
  // Made before any thread, so that all threads leave the signals alone.
  EachSecond();
  ~EachSecond();
  EachSecond(const EachSecond&) = delete;
  EachSecond& operator=(const EachSecond&) = delete;

  // Returns an exit code, at Ctrl-C, `q`, and where reading or printing fails. `once`: one snapshot, after a second.
  // `footer`: the screen's last line.
  int Run(const Call& call, EachSecondView& view, bool once, const std::string& footer) const;

 private:
  int RunPlain(const Call& call, EachSecondView& view, bool once) const;
  int RunOnScreen(const Call& call, EachSecondView& view, const std::string& footer) const;
  int TakeSignal() const;  // 0: none
  bool TakeSecond() const;

  sigset_t before_{};
  net::UniqueFd signal_fd_, timer_;
};

}  // namespace hedgerow::operate
