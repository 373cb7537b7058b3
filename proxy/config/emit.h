// SPDX-License-Identifier: Apache-2.0
//
// Protobuf message to YAML, the decoder's inverse: every key with its effective
// value, defaults included. Shown by `hedgerow plan`; the round-trip test and
// the fuzzer rely on it to prove that nothing is lost.

#ifndef HEDGEROW_PROXY_CONFIG_EMIT_H_
#define HEDGEROW_PROXY_CONFIG_EMIT_H_

#include <string>

#include <google/protobuf/message.h>

namespace hedgerow::config {

std::string EmitYaml(const google::protobuf::Message& config);

}  // namespace hedgerow::config

#endif  // HEDGEROW_PROXY_CONFIG_EMIT_H_
