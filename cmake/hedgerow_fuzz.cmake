# SPDX-License-Identifier: Apache-2.0
#
# hedgerow_fuzzer(NAME SRCS a_fuzz.cc... [DEPS target...] [CORPUS dir] [DICT file]): a libFuzzer target.
# With clang and the asan preset it is a real fuzzer, which `./dev test --long` runs for a bounded time. Everywhere
# else the same entry point is linked with a small main that replays the corpus and a few seeded mutations of it,
# so that the ordinary test run keeps found inputs fixed.
set_property(GLOBAL PROPERTY HEDGEROW_FUZZERS "")

function(hedgerow_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CORPUS;DICT" "SRCS;DEPS")
  hedgerow_reject_unparsed(hedgerow_fuzzer ${name} ${arg_UNPARSED_ARGUMENTS})
  set(corpus "")
  if(arg_CORPUS)
    cmake_path(ABSOLUTE_PATH arg_CORPUS BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE corpus)
  endif()
  set(dict "")
  if(arg_DICT)
    cmake_path(ABSOLUTE_PATH arg_DICT BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE dict)
  endif()
  add_executable(${name} ${arg_SRCS} ${HEDGEROW_SANITIZER_SOURCES})
  target_link_libraries(${name} PRIVATE hedgerow_rules hedgerow_pch_tests ${arg_DEPS} Threads::Threads ${CMAKE_DL_LIBS})
  target_compile_options(${name} PRIVATE ${HEDGEROW_TEST_OPTIONS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND HEDGEROW_SANITIZE STREQUAL "address")
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_property(GLOBAL APPEND PROPERTY HEDGEROW_FUZZERS "${name}\t${corpus}\t${dict}")
    add_test(NAME ${name}:replay COMMAND ${name} -runs=2000 -seed=1 -max_total_time=20)
  else()
    target_sources(${name} PRIVATE "${CMAKE_SOURCE_DIR}/cmake/fuzz_replay_main.cc")
    add_test(NAME ${name}:replay COMMAND ${name} ${corpus})
  endif()
  set_tests_properties(${name}:replay PROPERTIES TIMEOUT 120 LABELS fuzz)
endfunction()

# Written for `./dev test --long`: one line per fuzzer, tab-separated name, corpus folder, dictionary.
function(hedgerow_write_fuzzer_list)
  get_property(fuzzers GLOBAL PROPERTY HEDGEROW_FUZZERS)
  list(JOIN fuzzers "\n" text)
  file(WRITE "${CMAKE_BINARY_DIR}/fuzzers.tsv" "${text}\n")
endfunction()
