# SPDX-License-Identifier: Apache-2.0
#
# Writes FOLDER/NAME.h and NAME.cc with the bytes of FILES, a list. Run by what hedgerow_embed.cmake adds to the build.
set(arrays "")
set(entries "")
set(number 0)
foreach(file IN LISTS FILES)
  file(READ "${file}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  cmake_path(GET file FILENAME base)
  # The zero at the end keeps the array of an empty file legal; it is not counted.
  string(APPEND arrays "constexpr char kFile${number}[] = {${bytes}'\\0'};\n")
  string(APPEND entries "    {\"${base}\", {kFile${number}, sizeof(kFile${number}) - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${FOLDER}/${NAME}.h" "// Generated from the files that it holds.
#pragma once
#include \"absl/types/span.h\"
#include \"operate/embedded_file.h\"
namespace hedgerow {
absl::Span<const operate::EmbeddedFile> ${FUNCTION}();
}  // namespace hedgerow
")
file(WRITE "${FOLDER}/${NAME}.cc" "// Generated from the files that it holds.
#include \"${NAME}.h\"
namespace hedgerow {
namespace {
${arrays}
constexpr operate::EmbeddedFile kFiles[] = {
${entries}};
}  // namespace
absl::Span<const operate::EmbeddedFile> ${FUNCTION}() { return kFiles; }
}  // namespace hedgerow
")
