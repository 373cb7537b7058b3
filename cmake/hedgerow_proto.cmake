# SPDX-License-Identifier: Apache-2.0
#
# hedgerow_proto(NAME a.proto... [GRPC] [DEPS target...]): a library of generated protobuf (and, with GRPC,
# service) code. Protos are named relative to the calling folder; imports and includes are written from the
# project's root, so proxy/api/config.proto is imported as "proxy/api/config.proto" and included as
# "proxy/api/config.pb.h".
set(HEDGEROW_GENERATED_DIR "${CMAKE_BINARY_DIR}/gen")

function(hedgerow_proto name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "GRPC" "" "DEPS")
  file(MAKE_DIRECTORY "${HEDGEROW_GENERATED_DIR}")
  set(generated "")
  foreach(proto IN LISTS arg_UNPARSED_ARGUMENTS)
    cmake_path(ABSOLUTE_PATH proto BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE relative)
    string(REGEX REPLACE "\\.proto$" "" stem "${HEDGEROW_GENERATED_DIR}/${relative}")
    set(outputs "${stem}.pb.cc" "${stem}.pb.h")
    set(command protobuf::protoc "--proto_path=${CMAKE_SOURCE_DIR}" "--cpp_out=${HEDGEROW_GENERATED_DIR}")
    if(arg_GRPC)
      list(APPEND outputs "${stem}.grpc.pb.cc" "${stem}.grpc.pb.h")
      list(APPEND command "--grpc_out=${HEDGEROW_GENERATED_DIR}"
                          "--plugin=protoc-gen-grpc=${HEDGEROW_GRPC_PLUGIN}")
    endif()
    add_custom_command(OUTPUT ${outputs} COMMAND ${command} "${source}"
                       DEPENDS "${source}" COMMENT "protoc ${relative}" VERBATIM)
    list(APPEND generated ${outputs})
  endforeach()
  if(NOT generated)
    message(FATAL_ERROR "hedgerow_proto(${name}): names no .proto file")
  endif()
  add_library(${name} STATIC ${generated})
  target_include_directories(${name} SYSTEM PUBLIC "${HEDGEROW_GENERATED_DIR}")
  target_compile_options(${name} PRIVATE ${HEDGEROW_SHIPPED_OPTIONS})
  target_link_libraries(${name} PRIVATE hedgerow_generated_rules hedgerow_pch_shipped PUBLIC hedgerow::protobuf ${arg_DEPS})
  if(arg_GRPC)
    target_link_libraries(${name} PUBLIC hedgerow::grpc)
  endif()
endfunction()
