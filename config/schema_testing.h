// SPDX-License-Identifier: Apache-2.0
//
// What must be true of every key of a configuration's schema: the decoder knows its type, its default lies in its
// range, and its page of docs/ has a row with that default and range. Called by proxy/config/schema_test.cc and
// cluster/node/config/config_test.cc.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>

namespace hedgerow::config {

// Calls visit("services[].delay", field) for every key of the schema, blocks included.
void ForEachKey(const google::protobuf::Descriptor& type,
                const std::function<void(const std::string&, const google::protobuf::FieldDescriptor&)>& visit);

bool IsNumber(const google::protobuf::FieldDescriptor& field);

// Of the type, range and default of every key.
void ExpectSoundRules(const google::protobuf::Descriptor& type);

// `pages` below the project's root, such as "docs/config.md", have one table row for each key, which starts with the
// path and says whether the key is required, its default, both ends of its range and the words it takes. The keys of a
// block that stands in several places have theirs at the first.
void ExpectDocumented(const google::protobuf::Descriptor& type, const std::vector<std::string>& pages);

}  // namespace hedgerow::config
