# SPDX-License-Identifier: Apache-2.0
#
# hedgerow_go_program(NAME [TIMEOUT seconds]): the Go module in the calling folder -> build/<preset>/bin/NAME, and its
# tests -> bin/NAME_test, each of which ctest sees. Modules and compiled packages are kept in build/<preset>/go, and go.sum
# fixes what is fetched.
#
# The C++ does not wait for a network: where a module cannot be fetched, the build goes on and says so, bin/NAME.missing
# holds the reason, the tests are one skip (tests/skips.txt lists it), and whoever wants to run NAME fails with the reason.
# Sanitizers know nothing of Go, so their presets leave it out.

function(hedgerow_go_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "")
  hedgerow_reject_unparsed(hedgerow_go_program ${name} ${arg_UNPARSED_ARGUMENTS})
  if(HEDGEROW_SANITIZE)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(program "${CMAKE_BINARY_DIR}/bin/${name}")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.go")
  add_custom_command(
    OUTPUT "${program}" "${program}_test"
    COMMAND "${CMAKE_SOURCE_DIR}/cmake/go_build.sh" "${CMAKE_CURRENT_SOURCE_DIR}" "${program}"
            "${CMAKE_BINARY_DIR}/go"
    DEPENDS ${sources} go.mod go.sum "${CMAKE_SOURCE_DIR}/cmake/go_build.sh"
    COMMENT "go ${name}"
    VERBATIM)
  add_custom_target(${name} ALL DEPENDS "${program}" "${program}_test")
  add_dependencies(programs ${name})
  # Asked for its tests when ctest runs, as the C++ tests are: a build never runs what it built.
  set(list "${CMAKE_CURRENT_BINARY_DIR}/${name}_tests.cmake")
  configure_file("${CMAKE_SOURCE_DIR}/cmake/go_tests.cmake.in" "${list}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${list}")
endfunction()
