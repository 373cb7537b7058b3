// SPDX-License-Identifier: Apache-2.0
//
// YAML tree to protobuf message, by one generic walk over the schema: unknown
// and duplicate keys, wrong types, ranges and formats are found here. What
// spans several values (names, ambiguity) is check.cc's.

#ifndef HEDGEROW_PROXY_CONFIG_DECODE_H_
#define HEDGEROW_PROXY_CONFIG_DECODE_H_

#include <string>

#include <google/protobuf/message.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "proxy/config/diagnostics.h"
#include "proxy/config/tree.h"

namespace hedgerow::config {

// Where each value of the message stands: "services[0].delay" -> line, column.
// Values that were not written (defaults) point at the map they belong to.
class Locations {
 public:
  void Record(absl::string_view path, Mark mark) { marks_.insert_or_assign(std::string(path), mark); }
  // The mark of the path, or of the nearest enclosing one that has a mark.
  Mark Find(absl::string_view path) const;
  bool Has(absl::string_view path) const { return marks_.contains(path); }

 private:
  absl::flat_hash_map<std::string, Mark> marks_;
};

// Fills `message` from `tree`, absent keys with their defaults. A value with
// an error is left at its default and recorded in `errors`.
void Decode(const Tree& tree, google::protobuf::Message& message, Locations& locations, Diagnostics& errors);

}  // namespace hedgerow::config

#endif  // HEDGEROW_PROXY_CONFIG_DECODE_H_
