// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/golden_log.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <rocksdb/write_batch.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "build_paths.h"
#include "cluster/raft/check.h"

namespace hedgerow::storage {

GoldenLog ReadGoldenLog(uint32_t format) {
  GoldenLog golden;
  std::ifstream file(absl::StrCat(HEDGEROW_SOURCE_DIR "/cluster/storage/testdata/log-", format));
  std::string key, value;
  while (file >> key >> value) {
    if (key == "watermark") {
      golden.watermark = absl::HexStringToBytes(value);
    } else {
      golden.records[absl::HexStringToBytes(key)] = absl::HexStringToBytes(value);
    }
  }
  HEDGEROW_CHECK(golden.watermark.size() == 128 && !golden.records.empty());
  return golden;
}

void PutGoldenLog(const TestFolder& folder, const GoldenLog& golden) {
  std::filesystem::create_directories(folder.rocksdb());
  WriteFile(folder.log() + "/watermark", golden.watermark);
  rocksdb::WriteBatch batch;
  for (const auto& [key, value] : golden.records) HEDGEROW_CHECK(batch.Put(key, value).ok());
  HEDGEROW_CHECK(OpenTestDatabase(folder)->Write(rocksdb::WriteOptions(), &batch).ok());
}

std::unique_ptr<rocksdb::DB> OpenTestDatabase(const TestFolder& folder) {
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, folder.rocksdb(), &db);
  if (!opened.ok()) std::fprintf(stderr, "%s\n", opened.ToString().c_str());
  HEDGEROW_CHECK(opened.ok());
  return std::unique_ptr<rocksdb::DB>(db);
}

}  // namespace hedgerow::storage
