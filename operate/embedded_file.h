// SPDX-License-Identifier: Apache-2.0
//
// A file that was made part of the program by hedgerow_embed (cmake/hedgerow_embed.cmake), so that a page needs
// nothing installed beside it.

#pragma once

#include "absl/strings/string_view.h"

namespace hedgerow::operate {

struct EmbeddedFile {
  absl::string_view name;  // without a folder
  absl::string_view bytes;
};

}  // namespace hedgerow::operate
