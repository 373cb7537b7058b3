// SPDX-License-Identifier: Apache-2.0
//
// Rules for services' profiles; see the header.

#include "proxy/config/check_profile.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "bpf/abi/config_abi.h"
#include "config/scalar.h"
#include "proxy/config/schema.h"

namespace hedgerow::config {
namespace {

constexpr uint32_t kNtpPort = 123;
constexpr size_t kMatchBytes = 8;

class ProfileChecker {
 public:
  ProfileChecker(const v1::Service& service, std::string path, const Locations& locations, Diagnostics& errors)
      : service_(service), path_(std::move(path)), locations_(locations), errors_(errors) {}

  void Run() {
    Ntp();
    Duplicates();
    RawBlock();
    if (service_.has_raw()) Raw(service_.raw(), absl::StrCat(path_, ".raw"));
  }

 private:
  void Add(const std::string& path, absl::string_view message) {
    errors_.Add(locations_.Find(path), path, message);
  }

  // A client takes half of the round trip for the way back. An answer that waited for a hedge, or came another
  // way, makes that half wrong by up to the delay, and sets the clock by it.
  void Ntp() {
    if (service_.force()) return;
    std::string where;
    if (service_.profile() == v1::PROFILE_NTP) where = ".profile";
    if (where.empty() && service_.port() == kNtpPort) where = ".port";
    for (int i = 0; i < service_.backends_size() && where.empty(); ++i)
      if (service_.backends(i).port() == kNtpPort) where = absl::StrCat(".backends[", i, "].port");
    if (where.empty()) return;
    Add(path_ + where,
        "this is NTP, expected a service that may be hedged: a hedged answer was on its way for longer than "
        "the "
        "way back takes, and a client that halves the round trip sets its clock wrong by half of the wait; let "
        "clients ask several servers instead, as NTP itself does, or say force: true");
  }

  void Duplicates() {
    if (service_.duplicate_size() > 0 && service_.profile() != v1::PROFILE_MEMCACHED &&
        service_.profile() != v1::PROFILE_UNSPECIFIED) {
      Add(absl::StrCat(path_, ".duplicate"), "got a list, expected one only with profile: memcached");
    }
    absl::flat_hash_set<int> seen;
    for (int i = 0; i < service_.duplicate_size(); ++i) {
      const v1::Command command = service_.duplicate(i);
      const std::string word = EnumWord(*v1::Command_descriptor()->FindValueByNumber(command));
      const std::string path = absl::StrCat(path_, ".duplicate[", i, "]");
      if (command == v1::COMMAND_INCR || command == v1::COMMAND_DECR || command == v1::COMMAND_APPEND ||
          command == v1::COMMAND_PREPEND) {
        Add(path, absl::StrCat("got ", Quote(word),
                               ", expected a command that does the same when it is done twice: two ",
                               "copies of this one do it twice, and one of them at a server that did not do "
                               "what came before"));
      }
      if (!seen.insert(command).second)
        Add(path, absl::StrCat("got ", Quote(word), " again, expected each command once"));
    }
  }

  void RawBlock() {
    if (service_.profile() == v1::PROFILE_RAW && !service_.has_raw()) {
      Add(absl::StrCat(path_, ".profile"),
          "got \"raw\" without a raw block, expected raw: {request_offset, "
          "request_length, reply_offset, reply_length}");
    }
    if (service_.profile() != v1::PROFILE_RAW && service_.profile() != v1::PROFILE_UNSPECIFIED &&
        service_.has_raw()) {
      Add(absl::StrCat(path_, ".raw"), "got a raw block, expected one only with profile: raw");
    }
  }

  void Raw(const v1::RawProfile& raw, const std::string& path) {
    if (raw.request_length() != 0 && raw.reply_length() != 0 && raw.request_length() != raw.reply_length()) {
      Add(absl::StrCat(path, ".reply_length"),
          absl::StrCat("got ", raw.reply_length(), ", expected request_length, which is ", raw.request_length(),
                       " (a reply repeats the request's bytes)"));
    }
    if (!raw.mask().empty() && raw.mask().size() != 2 * raw.request_length()) {
      Add(absl::StrCat(path, ".mask"), absl::StrCat("got ", raw.mask().size() / 2,
                                                    " bytes, expected as many as "
                                                    "request_length, which is ",
                                                    raw.request_length()));
    }
    if (!raw.mask().empty() && raw.mask().find_first_not_of('0') == std::string::npos)
      Add(absl::StrCat(path, ".mask"), "got only zeros, expected a bit that counts");
    for (int i = 0; i < raw.requests_size(); ++i)
      Match(raw.requests(i), absl::StrCat(path, ".requests[", i, "]"));
    for (int i = 0; i < raw.replies_size(); ++i) Match(raw.replies(i), absl::StrCat(path, ".replies[", i, "]"));
    Lists(raw, path);
    if (raw.has_numbers() && raw.one_datagram())
      Add(absl::StrCat(path, ".one_datagram"),
          "got \"true\", expected false with numbers, which tell an answer's datagrams apart");
    if (raw.has_line() && raw.operations_size() == 0)
      Add(absl::StrCat(path, ".line"), "got a line, expected operations, whose shapes it is for");
  }

  // Operations and refusals; the kernel has places for so many matches in all of a list.
  void Lists(const v1::RawProfile& raw, const std::string& path) {
    int matches = 0;
    for (int i = 0; i < raw.operations_size(); ++i) {
      const std::string entry = absl::StrCat(path, ".operations[", i, "]");
      matches += raw.operations(i).match_size();
      Matches(raw.operations(i).match(), entry);
      if (raw.operations(i).shape() > v1::SHAPE_ANY && !raw.has_line())
        Add(absl::StrCat(entry, ".shape"),
            "got a shape, expected a line block, which says where the line begins");
    }
    Room(matches, HR_OPERATION_MATCHES, absl::StrCat(path, ".operations"));
    matches = 0;
    for (int i = 0; i < raw.refusals_size(); ++i) {
      matches += raw.refusals(i).match_size();
      Matches(raw.refusals(i).match(), absl::StrCat(path, ".refusals[", i, "]"));
    }
    Room(matches, HR_NACK_MATCHES, absl::StrCat(path, ".refusals"));
  }

  void Room(int matches, int most, const std::string& path) {
    if (matches <= most) return;
    Add(path, absl::StrCat("got ", matches, " matches in all, expected at most ", most));
  }

  void Matches(const google::protobuf::RepeatedPtrField<v1::RawMatch>& matches, const std::string& path) {
    for (int i = 0; i < matches.size(); ++i) Match(matches[i], absl::StrCat(path, ".match[", i, "]"));
  }

  void Match(const v1::RawMatch& match, const std::string& path) {
    if (match.bytes().empty() == match.text().empty()) {
      Add(path, absl::StrCat("got ", match.bytes().empty() ? "neither" : "both", ", expected bytes or text"));
      return;
    }
    const size_t bytes = match.text().empty() ? match.bytes().size() / 2 : match.text().size();
    if (bytes > kMatchBytes) {
      Add(absl::StrCat(path, ".bytes"),
          absl::StrCat("got ", bytes, " bytes, expected at most ", kMatchBytes, " (two matches take more)"));
    }
    if (!match.mask().empty() && match.mask().size() != 2 * bytes) {
      Add(absl::StrCat(path, ".mask"),
          absl::StrCat("got ", match.mask().size() / 2, " bytes, expected as many as the match has, which is ",
                       bytes));
    }
  }

  const v1::Service& service_;
  const std::string path_;
  const Locations& locations_;
  Diagnostics& errors_;
};

}  // namespace

void CheckProfiles(const v1::Config& config, const Locations& locations, Diagnostics& errors) {
  for (int i = 0; i < config.services_size(); ++i)
    ProfileChecker(config.services(i), absl::StrCat("services[", i, "]"), locations, errors).Run();
}

}  // namespace hedgerow::config
