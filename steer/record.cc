// SPDX-License-Identifier: Apache-2.0
#include "steer/record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <google/protobuf/util/json_util.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "config/json.h"
#include "net/unique_fd.h"

namespace hedgerow::steer {

absl::Status SaveRecord(const Places& places, const v1::Record& record) {
  const std::string path = places.record();
  const std::string fresh = path + ".new";
  const std::string text = ToJson(record);
  const net::UniqueFd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid() || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(fresh.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("write ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Record> LoadRecord(const Places& places) {
  std::ifstream file(places.record());
  if (!file) {
    if (errno == EACCES)
      return absl::PermissionDeniedError(absl::StrCat("this user may not read ", places.record(), ": root may"));
    return absl::NotFoundError(absl::StrCat("no group ", places.name, " in ", places.run_dir));
  }
  const std::string text(std::istreambuf_iterator<char>(file), {});
  v1::Record record;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &record, options);
  if (!parsed.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(places.record(), " cannot be read: `hedgerow steer clean --name ",
                                                      places.name, "` removes what is left of the group"));
  }
  return record;
}

std::vector<std::string> ListGroups(const std::string& run_dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator each(run_dir, error), end; !error && each != end; each.increment(error)) {
    if (std::filesystem::exists(each->path() / "record.json", error)) names.push_back(each->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status CheckName(const std::string& name) {
  const bool good = !name.empty() && name.size() <= 32 && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
           c == '-' || c == '_';
  });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--name: got \"", name, "\", expected 1 to 32 of the characters a-z, 0-9, - and _"));
}

}  // namespace hedgerow::steer
