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
# Some of the libraries ask for it, and a precompiled header fits all sources or none.
add_compile_options(-pthread)
# All libraries of the project are static and end in position-independent executables, so all code is compiled for those.
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
set(CMAKE_C_COMPILE_OPTIONS_PIC -fPIE)
set(CMAKE_CXX_COMPILE_OPTIONS_PIC -fPIE)
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

# What one clone has compiled serves the next: paths below the root are relative to ccache, and debug information names no
# folder. With precompiled headers (hedgerow_pch.cmake) ccache needs this sloppiness, and goes by the compiler's own list of
# dependencies: such a source is not preprocessed apart.
find_program(HEDGEROW_CCACHE ccache)
if(HEDGEROW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
               CCACHE_SLOPPINESS=pch_defines,time_macros "${HEDGEROW_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${launcher}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
endif()

# A static link of gRPC's users takes GNU ld seconds, mold a fraction of one.
foreach(linker IN ITEMS mold lld)
  find_program(HEDGEROW_LINKER_${linker} NAMES ${linker} ld.${linker})
  if(HEDGEROW_LINKER_${linker})
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()

# What demo, experiments and chaos need: everything but the tests, which take as long again to compile.
add_custom_target(programs)

add_library(hedgerow_rules INTERFACE)
target_include_directories(hedgerow_rules INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(hedgerow_rules INTERFACE -Wall -Wextra "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
target_compile_definitions(hedgerow_rules INTERFACE _GLIBCXX_ASSERTIONS)
# A warning is an error with the compiler that the tests run with. A newer one knows warnings that nobody here has seen, and
# must not keep a stranger from building.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
  target_compile_options(hedgerow_rules INTERFACE -Werror)
endif()
# What an initializer with names leaves out is zero, and means it. Older clangs take that for granted.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 19)
  target_compile_options(hedgerow_rules INTERFACE -Wno-missing-designated-field-initializers)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
  target_compile_options(hedgerow_rules INTERFACE -Wno-missing-field-initializers)
endif()
# Generated code (protobuf) takes everything but the warnings and the sanitizers.
add_library(hedgerow_generated_rules INTERFACE)
target_include_directories(hedgerow_generated_rules INTERFACE "${CMAKE_SOURCE_DIR}")
target_compile_options(hedgerow_generated_rules INTERFACE -w "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
target_compile_definitions(hedgerow_generated_rules INTERFACE _GLIBCXX_ASSERTIONS)

# Code that ships is optimised and hardened: the daemon runs with privileges and reads files and sockets. The sources of
# tests are not: they compile in half the time, and what they test is as it ships.
set(HEDGEROW_SHIPPED_OPTIONS "")
set(HEDGEROW_TEST_OPTIONS "")
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  set(HEDGEROW_SHIPPED_OPTIONS -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  set(HEDGEROW_TEST_OPTIONS -O0)
  # Of gRPC's sixty libraries a program loads those that it calls: each costs a start time, and a package a dependency.
  target_link_options(hedgerow_rules INTERFACE -Wl,-z,relro,-z,now,--as-needed)
endif()

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
