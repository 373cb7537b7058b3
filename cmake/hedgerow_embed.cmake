# SPDX-License-Identifier: Apache-2.0
#
# hedgerow_embed(NAME FUNCTION file...): a library whose header NAME.h declares
# `absl::Span<const hedgerow::operate::EmbeddedFile> hedgerow::FUNCTION()`, the bytes of those files. Written by
# CMake itself (hedgerow_embed_write.cmake), so that a build needs no further program.
function(hedgerow_embed name function)
  set(sources "")
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    list(APPEND sources "${file}")
  endforeach()
  set(folder "${CMAKE_BINARY_DIR}/embedded")
  file(MAKE_DIRECTORY "${folder}")
  set(writer "${CMAKE_SOURCE_DIR}/cmake/hedgerow_embed_write.cmake")
  add_custom_command(
    OUTPUT "${folder}/${name}.cc" "${folder}/${name}.h"
    COMMAND "${CMAKE_COMMAND}" "-DNAME=${name}" "-DFUNCTION=${function}" "-DFOLDER=${folder}" "-DFILES=${sources}"
            -P "${writer}"
    DEPENDS ${sources} "${writer}"
    COMMENT "embed ${name}"
    VERBATIM)
  add_library(${name} STATIC "${folder}/${name}.cc" "${folder}/${name}.h")
  target_include_directories(${name} PUBLIC "${folder}")
  target_compile_options(${name} PRIVATE ${HEDGEROW_SHIPPED_OPTIONS})
  target_link_libraries(${name} PRIVATE hedgerow_pch_shipped PUBLIC hedgerow_rules absl::span absl::strings)
endfunction()
