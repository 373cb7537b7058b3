# SPDX-License-Identifier: Apache-2.0
#
# The C and C++ targets: hedgerow_cc_library, hedgerow_cc_binary, hedgerow_cc_test. Every component folder uses
# these and nothing else, so that warnings, sanitizers and include paths are the same everywhere.
# Sources are named relative to the calling folder; DEPS are target names of this project or of the libraries
# that hedgerow_deps.cmake lists.

# hedgerow_cc_library(NAME [SRCS a.cc...] [DEPS target...])
# Without SRCS it is a header-only library.
function(hedgerow_cc_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;DEPS")
  hedgerow_reject_unparsed(hedgerow_cc_library ${name} ${arg_UNPARSED_ARGUMENTS})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS})
    target_link_libraries(${name} PUBLIC hedgerow_rules ${arg_DEPS} Threads::Threads PRIVATE hedgerow_pch_shipped)
    target_compile_options(${name} PRIVATE ${HEDGEROW_SHIPPED_OPTIONS})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE hedgerow_rules ${arg_DEPS} Threads::Threads)
  endif()
endfunction()

# hedgerow_cc_binary(NAME [FOR_TESTS] SRCS a.cc... [DEPS target...]) -> build/<preset>/bin/NAME
# FOR_TESTS: demo, experiments and chaos do not run it, so `programs` leaves it out.
function(hedgerow_cc_binary name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "FOR_TESTS" "" "SRCS;DEPS")
  hedgerow_reject_unparsed(hedgerow_cc_binary ${name} ${arg_UNPARSED_ARGUMENTS})
  add_executable(${name} ${arg_SRCS} ${HEDGEROW_SANITIZER_SOURCES})
  target_link_libraries(${name} PRIVATE hedgerow_rules hedgerow_pch_shipped ${arg_DEPS} Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_options(${name} PRIVATE ${HEDGEROW_SHIPPED_OPTIONS})
  if(NOT arg_FOR_TESTS)
    add_dependencies(programs ${name})
  endif()
endfunction()

# hedgerow_cc_test_program(NAME [OPTIMISED] SRCS a_test.cc... [DEPS target...]) -> build/<preset>/bin/NAME
# A gtest binary that ctest does not know of; the caller adds it. OPTIMISED: its own sources are compiled as what ships. Of an inline
# function that the test and a library use the linker keeps one, the test's: where the cases compute for long, all of them run through it.
function(hedgerow_cc_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OPTIMISED" "" "SRCS;DEPS")
  hedgerow_reject_unparsed(hedgerow_cc_test_program ${name} ${arg_UNPARSED_ARGUMENTS})
  add_executable(${name} ${arg_SRCS} ${HEDGEROW_SANITIZER_SOURCES})
  if(arg_OPTIMISED)
    set(headers hedgerow_pch_shipped)
    set(options ${HEDGEROW_SHIPPED_OPTIONS})
  else()
    set(headers hedgerow_pch_tests)
    set(options ${HEDGEROW_TEST_OPTIONS})
  endif()
  target_link_libraries(${name} PRIVATE hedgerow_rules ${headers} ${arg_DEPS} GTest::gmock GTest::gtest GTest::gtest_main
                                        Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_options(${name} PRIVATE ${options})
  target_include_directories(${name} PRIVATE "${HEDGEROW_PATHS_DIR}")
endfunction()

# hedgerow_cc_test(NAME SRCS a_test.cc... [DEPS target...] [DATA target...] [LABELS root [packets|disk] | patient]
#                [TIMEOUT seconds] [SHARDS n])
# One gtest binary. It runs in the project's root and finds the build tree in HEDGEROW_BUILD_DIR. The label `root` says that
# the cases need root and the kernel: they make links and measure times, and programs with it run one at a time. Beside it,
# `packets` says that they only run programs on packets of their own: one at a time as well, but not waiting for the others;
# `disk`, that root is for mounting only: they wait for no other. `patient` stands alone: no case looks at a clock, all of them
# compute (their sources are optimised), and `./dev test` runs them at idle priority beside what does.
# DATA names targets (BPF objects, other binaries) that must be built before the test runs.
function(hedgerow_cc_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;SHARDS" "SRCS;DEPS;DATA;LABELS")
  hedgerow_reject_unparsed(hedgerow_cc_test ${name} ${arg_UNPARSED_ARGUMENTS})
  set(optimised "")
  if("patient" IN_LIST arg_LABELS)
    set(optimised OPTIMISED)
  endif()
  hedgerow_cc_test_program(${name} ${optimised} SRCS ${arg_SRCS} DEPS ${arg_DEPS})
  if(arg_DATA)
    add_dependencies(${name} ${arg_DATA})
  endif()
  set(given "")  # a keyword without a value is warned about from CMake 3.31 on
  foreach(keyword IN ITEMS LABELS TIMEOUT SHARDS)
    if(arg_${keyword})
      list(APPEND given ${keyword} ${arg_${keyword}})
    endif()
  endforeach()
  hedgerow_add_test(${name} ${name} ${given})
endfunction()

# hedgerow_add_test(ENTRY PROGRAM [FILTER filter] [LABELS ...] [TIMEOUT seconds] [SHARDS n]): ctest's entry ENTRY, or n of
# them, ENTRY:1 and so on, that share the cases. All cases of an entry run in one process, for a process takes up to a second
# to start (its libraries, its BPF programs' verification); each case's end is in gtest/ENTRY.xml of the build's folder,
# where `./dev test` reads it. A long TIMEOUT is also an early start.
function(hedgerow_add_test entry program)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "FILTER;TIMEOUT;SHARDS" "LABELS")
  hedgerow_reject_unparsed(hedgerow_add_test ${entry} ${arg_UNPARSED_ARGUMENTS})
  if("patient" IN_LIST arg_LABELS)
    set(arg_TIMEOUT 1500)
  elseif(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(HEDGEROW_SANITIZE)
    math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}")  # ThreadSanitizer takes ten times as long, and no entry uses half its time
  endif()
  set(properties TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT})
  if(arg_LABELS)
    list(GET arg_LABELS 0 label)  # what ctest selects by
    list(APPEND properties LABELS ${label})
  endif()
  if("packets" IN_LIST arg_LABELS)
    list(APPEND properties RESOURCE_LOCK hedgerow_packets)
  elseif("root" IN_LIST arg_LABELS AND NOT "disk" IN_LIST arg_LABELS)
    list(APPEND properties RESOURCE_LOCK hedgerow_kernel)
  endif()
  set(filter "")
  if(arg_FILTER)
    set(filter "--gtest_filter=${arg_FILTER}")
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  math(EXPR last "${arg_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(name ${entry})
    if(arg_SHARDS GREATER 1)
      math(EXPR number "${shard} + 1")
      set(name ${entry}:${number})
    endif()
    add_test(NAME ${name} COMMAND ${program} ${filter} "--gtest_output=xml:${CMAKE_BINARY_DIR}/gtest/${name}.xml"
             WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
    set_tests_properties(${name} PROPERTIES ${properties} ENVIRONMENT
      "HEDGEROW_BUILD_DIR=${CMAKE_BINARY_DIR};GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# Where the project and its build stand, for the few tests that read files of either: "build_paths.h" of HEDGEROW_PATHS_DIR. A
# header and not a definition, so that every other source compiles to the same in every clone.
set(HEDGEROW_PATHS_DIR "${CMAKE_BINARY_DIR}/paths")
file(CONFIGURE OUTPUT "${HEDGEROW_PATHS_DIR}/build_paths.h" CONTENT "// Generated.
#pragma once
#define HEDGEROW_BUILD_DIR \"@CMAKE_BINARY_DIR@\"
#define HEDGEROW_SOURCE_DIR \"@CMAKE_SOURCE_DIR@\"
" @ONLY)

# A misspelt keyword would otherwise be swallowed silently.
function(hedgerow_reject_unparsed function name)
  if(ARGN)
    message(FATAL_ERROR "${function}(${name}): does not know what '${ARGN}' is")
  endif()
endfunction()
