// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/load.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/source.h"
#include "operate/key_file.h"
#include "proxy/config/advice.h"
#include "proxy/config/check.h"
#include "config/decode.h"

namespace hedgerow::config {
namespace {

// Reads each service's key_file into its key; two keys stand there with a space between. What cannot be read is an
// error at its place.
void ReadKeyFiles(v1::Config& config, const Locations& locations, Diagnostics& errors) {
  for (int i = 0; i < config.services_size(); ++i) {
    v1::Service& service = *config.mutable_services(i);
    if (!service.has_cluster() || service.cluster().key_file().empty()) continue;
    const absl::StatusOr<std::vector<std::string>> keys =
        operate::ReadKeyRing(service.cluster().key_file(), operate::Reader::kServes);
    if (keys.ok()) {
      service.mutable_cluster()->set_key(absl::StrJoin(*keys, " "));
      continue;
    }
    const std::string path = absl::StrCat("services[", i, "].cluster.key_file");
    const std::string& file = service.cluster().key_file();
    errors.Add(locations.Find(path), path, absl::StrCat("the file ", Quote(file), " ", keys.status().message()),
               {file});
  }
}

v1::Config Load(absl::string_view text, Locations& locations, Diagnostics& errors, KeyFiles key_files) {
  v1::Config config;
  if (!Decode(text, config, locations, errors, ForeignWordAdvice)) return config;
  Check(config, locations, errors);
  Complete(config, locations);
  if (key_files == KeyFiles::kRead) ReadKeyFiles(config, locations, errors);
  return config;
}

}  // namespace

v1::Config LoadText(absl::string_view text, Diagnostics& errors, KeyFiles key_files) {
  Locations locations;
  return Load(text, locations, errors, key_files);
}

v1::Config LoadFile(const std::string& path, Diagnostics& errors, KeyFiles key_files, std::vector<std::string>* notes) {
  const std::optional<Source> source = ReadSource(path, errors);
  if (!source.has_value()) return {};
  Locations locations;
  v1::Config config = Load(source->text, locations, errors, key_files);
  if (notes != nullptr) *notes = KeysWithoutEffect(config, locations);
  CheckRights(*source, locations, key_files == KeyFiles::kRead ? operate::Reader::kServes : operate::Reader::kShows,
              errors);
  return config;
}

absl::StatusOr<v1::Config> LoadText(absl::string_view text, absl::string_view file_name) {
  Diagnostics errors(file_name);
  v1::Config config = LoadText(text, errors);
  if (!errors.empty()) return errors.ToStatus();
  return config;
}

absl::StatusOr<v1::Config> LoadFile(const std::string& path, KeyFiles key_files) {
  Diagnostics errors(path);
  v1::Config config = LoadFile(path, errors, key_files);
  if (!errors.empty()) return errors.ToStatus();
  return config;
}

std::vector<std::string> FilesOf(const v1::Config& config) {
  std::vector<std::string> files = {config.metrics().tls().certificate_file(), config.metrics().tls().key_file(),
                                    config.metrics().token_file()};
  for (const v1::Service& service : config.services()) files.push_back(service.cluster().key_file());
  std::erase(files, "");
  return files;
}

}  // namespace hedgerow::config
