# SPDX-License-Identifier: Apache-2.0
#
# Precompiled headers of the system's libraries, for clang and without sanitizers (asan and tsan compile every source
# with nothing but its own includes, so `./dev test --long` finds a missing one). gRPC, Abseil and gmock take two thirds of
# an ordinary source's compile time.
#
# hedgerow_pch_shipped and hedgerow_pch_tests are interface libraries: a target that links one of them uses that file.
# They are not CMake's target_precompile_headers, whose files name the build's folder: these are the same bytes in every
# clone (from standard input to standard output, in a folder that every machine has), so that ccache serves one clone from another.
add_library(hedgerow_pch_shipped INTERFACE)
add_library(hedgerow_pch_tests INTERFACE)

function(hedgerow_pch name options)
  set(header "${CMAKE_BINARY_DIR}/pch/${name}.h")
  set(pch "${CMAKE_BINARY_DIR}/pch/${name}.pch")
  set(sources ${ARGN})
  # clang wants a macro of the command line to be the same here and where the file is used.
  set(definitions -D_GLIBCXX_ASSERTIONS)
  foreach(target IN ITEMS GTest::gtest absl::strings protobuf::libprotobuf gRPC::grpc++)
    if(TARGET ${target} AND (name STREQUAL "tests" OR NOT target STREQUAL "GTest::gtest"))
      get_target_property(macros ${target} INTERFACE_COMPILE_DEFINITIONS)
      get_target_property(options_of ${target} INTERFACE_COMPILE_OPTIONS)
      list(FILTER options_of INCLUDE REGEX "^-D")
      list(TRANSFORM macros PREPEND "-D")
      list(FILTER macros EXCLUDE REGEX "NOTFOUND$")
      list(APPEND definitions ${macros} ${options_of})
    endif()
  endforeach()
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  add_custom_command(
    OUTPUT "${pch}"
    COMMAND "${CMAKE_COMMAND}" -E cat ${sources} > "${header}"
    COMMAND "${CMAKE_CXX_COMPILER}" ${flags} -std=c++20 -fPIE -pthread ${definitions} ${options} -Xclang -fno-pch-timestamp
            -fpch-instantiate-templates -MD -MF "${pch}.d" -MT "${pch}" -x c++-header -o - - < "${header}" > "${pch}"
    DEPENDS ${sources}
    DEPFILE "${pch}.d"
    WORKING_DIRECTORY /usr/include
    COMMENT "pch ${name}"
    VERBATIM)
  add_custom_target(hedgerow_${name}_pch DEPENDS "${pch}")
  add_dependencies(hedgerow_pch_${name} hedgerow_${name}_pch)
  target_compile_options(hedgerow_pch_${name} INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include-pch ${pch}>")
endfunction()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT HEDGEROW_SANITIZE)
  file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/pch")
  set(libraries "${CMAKE_SOURCE_DIR}/cmake/pch/libraries.h")
  hedgerow_pch(shipped "${HEDGEROW_SHIPPED_OPTIONS}" "${libraries}")
  hedgerow_pch(tests "${HEDGEROW_TEST_OPTIONS}" "${libraries}" "${CMAKE_SOURCE_DIR}/cmake/pch/tests.h")
endif()
