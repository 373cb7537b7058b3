# SPDX-License-Identifier: Apache-2.0
#
# Finds the system's libraries once and gives each a name that is the same on every supported distribution
# (Debian 12, Debian 13, Ubuntu 24.04), because their own CMake files differ in targets and completeness.
# Component folders put these names into DEPS:
#   hedgerow::bpf hedgerow::yaml hedgerow::prometheus hedgerow::protobuf hedgerow::grpc hedgerow::fuse hedgerow::microhttpd hedgerow::openssl
# and use absl::* (absl::status, absl::strings, ...), GTest::gtest, GTest::gmock, benchmark::benchmark and ZLIB::ZLIB
# as they are.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf 3.21 REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
# gRPC's own TLS library, for reading certificates before gRPC gets them.
find_package(OpenSSL 3.0 REQUIRED COMPONENTS SSL Crypto)

function(hedgerow_alias alias)
  add_library(${alias}_alias INTERFACE)
  target_link_libraries(${alias}_alias INTERFACE ${ARGN})
  string(REPLACE hedgerow_ hedgerow:: exported ${alias})
  add_library(${exported} ALIAS ${alias}_alias)
endfunction()

# pkg-config is the one description of these that is complete on all three distributions.
pkg_check_modules(libbpf REQUIRED IMPORTED_TARGET libbpf>=1.1 libelf zlib)
# Its families and their text only: pages are served by operate/http_server, with libmicrohttpd.
pkg_check_modules(prometheus_core REQUIRED IMPORTED_TARGET prometheus-cpp-core)
pkg_check_modules(microhttpd REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.75)
# For chaos/unsynced, a file system of our own that forgets what was not synced; nothing that is installed needs it.
pkg_check_modules(fuse3 REQUIRED IMPORTED_TARGET fuse3>=3.12)

# gRPC's own description where it is whole: pkg-config's names every Abseil library several times, and looking each up
# takes CMake 10 seconds.
find_package(gRPC 1.51 CONFIG QUIET)
if(TARGET gRPC::grpc++)
  hedgerow_alias(hedgerow_grpc gRPC::grpc++ protobuf::libprotobuf)
else()
  pkg_check_modules(grpcpp REQUIRED IMPORTED_TARGET grpc++>=1.51 grpc)
  hedgerow_alias(hedgerow_grpc PkgConfig::grpcpp protobuf::libprotobuf)
endif()

hedgerow_alias(hedgerow_bpf PkgConfig::libbpf)
hedgerow_alias(hedgerow_protobuf protobuf::libprotobuf)
hedgerow_alias(hedgerow_prometheus PkgConfig::prometheus_core)
hedgerow_alias(hedgerow_microhttpd PkgConfig::microhttpd)
hedgerow_alias(hedgerow_openssl OpenSSL::SSL OpenSSL::Crypto)
hedgerow_alias(hedgerow_fuse PkgConfig::fuse3)
if(TARGET yaml-cpp::yaml-cpp)
  hedgerow_alias(hedgerow_yaml yaml-cpp::yaml-cpp)
else()
  hedgerow_alias(hedgerow_yaml yaml-cpp)
endif()

find_program(HEDGEROW_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
