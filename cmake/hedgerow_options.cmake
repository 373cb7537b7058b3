# SPDX-License-Identifier: Apache-2.0
#
# The rules every C and C++ target of the project obeys: language level, warnings, optimisation, sanitizers,
# output folders. Included once by the top CMakeLists.txt; targets take the rules by linking `hedgerow_rules`,
# which the functions in hedgerow_cc.cmake do for them.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# Assertions stay on in every build: NDEBUG is deliberately missing. Line tables only (-g1) keep release builds
# small and quick while stack traces still name lines.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_C_FLAGS_DEBUG "-Og -g")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")

set(HEDGEROW_SANITIZE "" CACHE STRING "'' (none), 'address' (with undefined) or 'thread'")
set_property(CACHE HEDGEROW_SANITIZE PROPERTY STRINGS "" address thread)
if(NOT HEDGEROW_SANITIZE MATCHES "^(address|thread)?$")
  message(FATAL_ERROR "HEDGEROW_SANITIZE is '${HEDGEROW_SANITIZE}'; expected '', 'address' or 'thread'")
endif()

find_program(HEDGEROW_CCACHE ccache)
if(HEDGEROW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${HEDGEROW_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${HEDGEROW_CCACHE}")
endif()

# What demo, experiments and chaos need: everything but the tests, which take as long again to compile.
add_custom_target(programs)

add_library(hedgerow_rules INTERFACE)
target_include_directories(hedgerow_rules INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(hedgerow_rules INTERFACE -Wall -Wextra -Werror)
target_compile_definitions(hedgerow_rules INTERFACE _GLIBCXX_ASSERTIONS)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  # The daemon runs with privileges and reads files and sockets: the compiler's cheap hardening is on.
  target_compile_options(hedgerow_rules INTERFACE -fstack-protector-strong -U_FORTIFY_SOURCE
                                                  -D_FORTIFY_SOURCE=2)
  target_link_options(hedgerow_rules INTERFACE -Wl,-z,relro,-z,now)
endif()

# Generated code (protobuf) takes everything but the warnings and the sanitizers.
add_library(hedgerow_generated_rules INTERFACE)
target_include_directories(hedgerow_generated_rules INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(hedgerow_generated_rules INTERFACE -w)

set(HEDGEROW_SANITIZER_SOURCES "")
if(HEDGEROW_SANITIZE STREQUAL "address")
  # Without vptr: its runtime opens a pipe to find out whether an object's memory can be read, and where no descriptor is
  # left it takes every object for none. start_faults_test takes the daemon through exactly that.
  set(flags -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Coverage feedback for the fuzzers; only the fuzzers link libFuzzer's main.
    list(APPEND flags -fsanitize=fuzzer-no-link)
  endif()
  set(HEDGEROW_SANITIZER_SOURCES "${CMAKE_SOURCE_DIR}/cmake/sanitize/asan_defaults.cc")
elseif(HEDGEROW_SANITIZE STREQUAL "thread")
  set(flags -fsanitize=thread -fno-omit-frame-pointer)
  set(HEDGEROW_SANITIZER_SOURCES "${CMAKE_SOURCE_DIR}/cmake/sanitize/tsan_defaults.cc"
                                 "${CMAKE_SOURCE_DIR}/cmake/sanitize/tsan_absl_mutex.cc")
  target_link_libraries(hedgerow_rules INTERFACE absl::synchronization)
endif()
if(HEDGEROW_SANITIZE)
  target_compile_options(hedgerow_rules INTERFACE ${flags})
  target_link_options(hedgerow_rules INTERFACE ${flags})
endif()
