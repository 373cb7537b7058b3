// SPDX-License-Identifier: Apache-2.0
//
// Protobuf message to YAML, the decoder's inverse: every key with its effective
// value. Shown by `hedgerow plan`, less its secrets; the round-trip test and
// the fuzzer rely on it to prove that nothing is lost.

#pragma once

#include <string>

#include <google/protobuf/message.h>

namespace hedgerow::config {

enum class Secrets { kHidden, kShown };
enum class Defaults { kWritten, kLeftOut };

std::string EmitYaml(const google::protobuf::Message& config, Secrets secrets = Secrets::kHidden,
                     Defaults defaults = Defaults::kWritten);

}  // namespace hedgerow::config
