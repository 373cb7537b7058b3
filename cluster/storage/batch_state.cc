// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/batch_state.h"

#include <string_view>

namespace hedgerow::storage {
namespace {

class StateFinder : public rocksdb::WriteBatch::Handler {
 public:
  rocksdb::Status PutCF(uint32_t, const rocksdb::Slice& key, const rocksdb::Slice& value) override {
    const std::string_view name(key.data(), key.size());
    if (IsStateKey(name) || name == kFormerStateKey) state = ParseState(name, {value.data(), value.size()});
    return rocksdb::Status::OK();
  }
  rocksdb::Status DeleteCF(uint32_t, const rocksdb::Slice&) override { return rocksdb::Status::OK(); }

  std::optional<StateRecord> state;
};

}  // namespace

std::optional<StateRecord> StateOf(const rocksdb::WriteBatch& batch) {
  StateFinder finder;
  return batch.Iterate(&finder).ok() ? finder.state : std::nullopt;
}

}  // namespace hedgerow::storage
