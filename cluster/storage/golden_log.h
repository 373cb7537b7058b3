// SPDX-License-Identifier: Apache-2.0
//
// For tests: logs of every format there was, and the records of a log as they are. testdata/log-N is a log of
// format N, record by record (key, value), with its watermark, made after the documentation and not by a program.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <rocksdb/db.h>

#include "cluster/storage/storage_story.h"

namespace hedgerow::storage {

struct GoldenLog {
  std::map<std::string, std::string> records;
  std::string watermark;
};
GoldenLog ReadGoldenLog(uint32_t format);
void PutGoldenLog(const TestFolder& folder, const GoldenLog& golden);
// RocksDB itself, made if there is none. All three end the test if they fail.
std::unique_ptr<rocksdb::DB> OpenTestDatabase(const TestFolder& folder);

}  // namespace hedgerow::storage
