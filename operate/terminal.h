// SPDX-License-Identifier: Apache-2.0
//
// The terminal as screens that redraw themselves (each_second.h) use it: a screen of its own, keys without Enter,
// and everything as it was at every end: return, signal, or a crash of this
// program. A few ANSI sequences, which every terminal since the VT100 knows, in place of a
// library. One at a time.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hedgerow::operate {

class Terminal {
 public:
  struct Size {
    int columns = 80;
    int rows = 24;
  };
  enum class Key { kNone, kQuit, kUp, kDown, kPageUp, kPageDown, kEnd };

  // Are both ends a terminal that knows more than lines?
  static bool Usable();
  // NO_COLOR (https://no-color.org) or a terminal that is none.
  static bool Colours();

  static absl::StatusOr<std::unique_ptr<Terminal>> Enter();
  ~Terminal();

  Size GetSize() const;
  // Each of the lines ends without a newline and is no wider than the screen; what was below is cleared.
  void Draw(const std::string* lines, size_t count);
  // What was pressed, if anything; kEnd when the terminal is gone.
  Key ReadKey();
  // Stops the process as Ctrl-Z does, with the terminal as it was; returns when it is continued.
  void Suspend();

 private:
  Terminal() = default;
};

}  // namespace hedgerow::operate
