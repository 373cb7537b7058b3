# SPDX-License-Identifier: Apache-2.0
#
# hedgerow_bpf_object(NAME SRC [DEPS target...] [DEFINES NAME=VALUE...]): compiles one entry program to build/<preset>/bpf/NAME.bpf.o.
# Always clang, whatever compiles the C++: it is the floor's only compiler with a BPF back end that emits BTF.
# The sanitizers never apply: this code runs in the kernel. Header changes are followed through clang's depfile.
find_program(HEDGEROW_BPF_CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 REQUIRED)

# Ubuntu 24.04's /usr/sbin/bpftool is a script that refuses when the tools of exactly the running kernel are missing (in
# a container or chroot they are). Any version generates skeletons, so the program behind it is preferred.
file(GLOB bpftool_folders /usr/lib/linux-tools/* /usr/lib/linux-tools-*)
list(SORT bpftool_folders COMPARE NATURAL ORDER DESCENDING)
find_program(HEDGEROW_BPFTOOL NAMES bpftool HINTS ${bpftool_folders} PATHS /usr/sbin /sbin REQUIRED)

set(HEDGEROW_BPF_DIR "${CMAKE_BINARY_DIR}/bpf")
file(MAKE_DIRECTORY "${HEDGEROW_BPF_DIR}")

# <linux/types.h> pulls <asm/types.h>, which Debian and Ubuntu keep under the host's multiarch name; clang does
# not look there when the target is bpf.
set(HEDGEROW_BPF_SYSTEM_INCLUDES "")
if(CMAKE_C_LIBRARY_ARCHITECTURE)
  list(APPEND HEDGEROW_BPF_SYSTEM_INCLUDES -isystem "/usr/include/${CMAKE_C_LIBRARY_ARCHITECTURE}")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(HEDGEROW_BPF_ARCH arm64)
else()
  set(HEDGEROW_BPF_ARCH x86)
endif()

function(hedgerow_bpf_object name source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "DEPS;DEFINES")
  hedgerow_reject_unparsed(hedgerow_bpf_object ${name} ${arg_UNPARSED_ARGUMENTS})
  cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
  set(object "${HEDGEROW_BPF_DIR}/${name}.bpf.o")
  list(TRANSFORM arg_DEFINES PREPEND "-D" OUTPUT_VARIABLE defines)
  # -mcpu=v3: 32-bit and exchange atomics. The verifier quotes lines with their files, so these are named from the root.
  add_custom_command(
    OUTPUT "${object}"
    COMMAND "${HEDGEROW_BPF_CLANG}" -target bpf -mcpu=v3 -O2 -g "-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=" -std=gnu11 -Wall -Wextra -Werror
            -D__TARGET_ARCH_${HEDGEROW_BPF_ARCH} ${defines} "-I${CMAKE_SOURCE_DIR}" ${HEDGEROW_BPF_SYSTEM_INCLUDES}
            -MD -MF "${object}.d" -MT "${object}" -c "${source}" -o "${object}"
    DEPENDS "${source}" ${arg_DEPS}
    DEPFILE "${object}.d"
    COMMENT "bpf ${name}.bpf.o"
    VERBATIM)
  add_custom_target(${name}_bpf ALL DEPENDS "${object}")
  add_dependencies(programs ${name}_bpf)
  # Any preset with an optimising host compiler reads the same object; tests name the target `NAME_bpf` in DATA.
endfunction()
