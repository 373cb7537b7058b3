// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/check_profile.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/abi/config_abi.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow::config {
namespace {

constexpr uint32_t kNtpPort = 123;
constexpr size_t kMatchBytes = 8;
// IANA's service names snmptrap, syslog, ipfix and sflow; NetFlow's and statsd's usual ports.
constexpr uint32_t kOneWayPorts[] = {162, 514, 2055, 4739, 6343, 8125};

// A match's bytes are given as hexadecimal digits or as they are.
size_t BytesOf(const v1::Match& match) { return match.text().empty() ? match.bytes().size() / 2 : match.text().size(); }

template <typename Texts>
bool Contains(const Texts& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

class ProfileChecker : Checks {
 public:
  using Checks::Checks;

  void Service(const v1::Service& service, const std::string& path) {
    Ntp(service, path);
    const bool own = service.profile() == kOwnProfile;
    if (own && !service.has_raw())
      Add(path + ".profile",
          "got \"raw\" without a raw block, expected raw: {request_offset, request_length, reply_offset, "
          "reply_length}");
    if (!own && !service.profile().empty() && service.has_raw())
      Add(path + ".raw", "got a raw block, expected one only with profile: raw");
    if (const v1::Profile* profile = EffectiveProfile(service); profile != nullptr) {
      Duplicates(service, *profile, path + ".duplicate");
      Counted(service, *profile, path + ".negative_replies");
    }
    if (service.has_raw()) Block(service.raw(), path + ".raw.");
  }

  // `path` ends before a key: "services[0].raw.".
  void Block(const v1::Profile& profile, const std::string& path) {
    const uint32_t length = profile.request_length();
    Pairing(profile, path);
    Mask(profile.mask(), length, "request_length, which is ", path + "mask");
    if (!profile.mask().empty() && profile.mask().find_first_not_of('0') == std::string::npos)
      Add(path + "mask", "got only zeros, expected a bit that counts");
    Matches(profile.requests(), path + "requests");
    Matches(profile.replies(), path + "replies");
    Marks(profile, path);
    Operations(profile, path + "operations");
    NegativeReplies(profile, path + "negative_replies");
    if (profile.has_numbers() && profile.one_datagram())
      Add(path + "one_datagram", "got \"true\", expected false with numbers, which tell an answer's datagrams apart");
    if (profile.has_echo() && profile.echo_dns_question())
      Add(path + "echo_dns_question", "got \"true\", expected false with an echo of other bytes");
    Query(profile, path + "check");
    if (profile.has_line() && profile.operations_size() == 0)
      Add(path + "line", "got a line, expected operations, whose shapes it is for");
  }

 private:
  using Steps = google::protobuf::RepeatedPtrField<v1::Step>;

  static bool EndsInValue(const Steps& steps) { return !steps.empty() && steps.rbegin()->ber() == v1::BER_VALUE; }

  void Paths(const v1::Profile& profile, const std::string& path) {
    const bool bytes = profile.request_length() != 0, value = EndsInValue(profile.path());
    Path(profile.path(), path + "path");
    Path(profile.reply_path(), path + "reply_path");
    if (profile.path_size() == 0 && profile.reply_path_size() > 0)
      Add(path + "reply_path", "got steps, expected none without a path");
    if (profile.path_size() > 0 && profile.reply_path_size() > 0 && value != EndsInValue(profile.reply_path()))
      Add(path + "reply_path", "got another end than the path's, expected ber: value at the end of both or of neither");
    if (profile.path_size() > 0 && !bytes && !value)
      Add(path + "path", "got steps to nothing, expected request_length and reply_length, or ber: value at the end");
    if (bytes && value)
      Add(path + "request_length",
          absl::StrCat("got ", profile.request_length(), ", expected none with ber: value at the end of the path"));
  }

  void Path(const Steps& steps, const std::string& path) {
    for (int i = 0; i < steps.size(); ++i) {
      const v1::Step& step = steps[i];
      const std::string entry = absl::StrCat(path, "[", i, "]");
      if ((step.skip() > 0) + (step.length() > 0) + (step.ber() != v1::BER_UNSPECIFIED) != 1)
        Add(entry, "got another number, expected one of skip, length and ber");
      if (step.length() == 3) Add(entry + ".length", "got 3, expected a length of 1, 2 or 4 bytes");
      if ((step.little_endian() || step.add() != 0) && step.length() == 0)
        Add(entry, "got little_endian or add, expected them beside a length only");
      if (step.ber() == v1::BER_VALUE && i + 1 < steps.size())
        Add(entry + ".ber", "got \"value\", expected it at the path's end");
    }
  }

  void Tokens(const v1::Profile& profile, const std::string& path) {
    for (int i = 0; i < profile.tokens_size(); ++i) {
      const v1::Token& token = profile.tokens(i);
      const std::string entry = absl::StrCat(path, "[", i, "]");
      if (token.header().size() > HR_TOKEN_NAME_BYTES)
        Add(entry + ".header",
            absl::StrCat("got ", Quote(token.header()), ", expected at most ", HR_TOKEN_NAME_BYTES, " letters"));
      if (token.short_().size() > 1)
        Add(entry + ".short", absl::StrCat("got ", Quote(token.short_()), ", expected one letter"));
    }
  }

  // The kernel has one mark for all matches of a direction.
  void After(const v1::Match& match, int steps, uint32_t& mark, const std::string& path) {
    if (match.after() == 0) return;
    if (match.after() > static_cast<uint32_t>(steps))
      Add(path + ".after",
          absl::StrCat("got ", match.after(), ", expected at most the path's steps, which are ", steps));
    else if (mark != 0 && mark != match.after())
      Add(path + ".after", absl::StrCat("got ", match.after(), ", expected 0 or ", mark, ", which another match has"));
    mark = match.after();
  }

  void Marks(const v1::Profile& profile, const std::string& path) {
    const int steps = profile.path_size();
    const int reply_steps = profile.reply_path_size() > 0 ? profile.reply_path_size() : steps;
    uint32_t request_mark = 0, reply_mark = 0;
    for (int i = 0; i < profile.requests_size(); ++i)
      After(profile.requests(i), steps, request_mark, absl::StrCat(path, "requests[", i, "]"));
    for (int i = 0; i < profile.operations_size(); ++i)
      for (int j = 0; j < profile.operations(i).match_size(); ++j)
        After(profile.operations(i).match(j), steps, request_mark,
              absl::StrCat(path, "operations[", i, "].match[", j, "]"));
    for (int i = 0; i < profile.replies_size(); ++i)
      After(profile.replies(i), reply_steps, reply_mark, absl::StrCat(path, "replies[", i, "]"));
    for (int i = 0; i < profile.negative_replies_size(); ++i)
      for (int j = 0; j < profile.negative_replies(i).match_size(); ++j)
        After(profile.negative_replies(i).match(j), reply_steps, reply_mark,
              absl::StrCat(path, "negative_replies[", i, "].match[", j, "]"));
  }

  void Query(const v1::Profile& profile, const std::string& path) {
    if (!profile.has_check()) return;
    if (profile.one_way()) Add(path, "got a request, expected none with one_way, which has no replies");
    std::vector<std::string> names;
    for (const v1::NegativeReply& reply : profile.negative_replies())
      if (!reply.name().empty() && !Contains(names, reply.name())) names.push_back(reply.name());
    for (int i = 0; i < profile.check().negative_ok_size(); ++i) {
      const std::string& name = profile.check().negative_ok(i);
      if (name.empty() || Contains(names, name)) continue;
      Add(absl::StrCat(path, ".negative_ok[", i, "]"),
          absl::StrCat("got ", Quote(name), ", expected the name of one of the negative_replies",
                       names.empty() ? ", none of which has one" : absl::StrCat(": ", absl::StrJoin(names, ", "))));
    }
  }

  // The service's choice of the profile's named negative replies.
  void Counted(const v1::Service& service, const v1::Profile& profile, const std::string& path) {
    std::vector<std::string> names = {kNoNegativeReply};
    for (const v1::NegativeReply& reply : profile.negative_replies())
      if (!reply.name().empty() && !Contains(names, reply.name())) names.push_back(reply.name());
    for (int i = 0; i < service.negative_replies_size(); ++i) {
      const std::string& name = service.negative_replies(i);
      if (name.empty() || Contains(names, name)) continue;
      Add(absl::StrCat(path, "[", i, "]"),
          absl::StrCat("got ", Quote(name), ", expected one of ", absl::StrJoin(names, ", ")));
    }
  }

  // One thing pairs replies with requests, or there are none to pair.
  void Pairing(const v1::Profile& profile, const std::string& path) {
    const uint32_t length = profile.request_length(), reply_length = profile.reply_length();
    const bool bytes = length != 0 || reply_length != 0, value = EndsInValue(profile.path());
    const int kinds =
        (bytes || value) + (profile.tokens_size() > 0) + profile.by_socket() + profile.one_way() + profile.flow();
    if (kinds == 0)
      return Add(
          path + "request_length",
          "got nothing that pairs a reply with its request, expected request_length and reply_length, a path to ber: value, "
          "or one of tokens, by_socket, one_way and flow");
    if (kinds > 1) {
      const char* key = profile.flow()        ? "flow"
                        : profile.one_way()   ? "one_way"
                        : profile.by_socket() ? "by_socket"
                                              : "tokens";
      return Add(
          path + key,
          "got it beside another way to pair, expected one of request_length and reply_length, a path to ber: value, "
          "tokens, by_socket, one_way and flow");
    }
    Paths(profile, path);
    Tokens(profile, path + "tokens");
    if (length != reply_length)
      Add(path + "reply_length", absl::StrCat("got ", reply_length, ", expected request_length, which is ", length,
                                              " (a reply repeats the request's bytes)"));
    if (!profile.one_way() && !profile.flow()) return;
    if (profile.requests_size() + profile.operations_size() + profile.replies_size() +
            profile.negative_replies_size() ==
        0)
      return;
    Add(path + (profile.flow() ? "flow" : "one_way"),
        "got \"true\", expected no requests, operations, replies and negative_replies beside it: every datagram is forwarded once");
  }

  // A client takes half of the round trip for the way back. An answer that waited for a hedge, or came another
  // way, makes that half wrong by up to the delay, and sets the clock by it.
  void Ntp(const v1::Service& service, const std::string& path) {
    if (service.force()) return;
    std::string where;
    if (service.profile() == "ntp") where = ".profile";
    if (where.empty() && service.port() == kNtpPort) where = ".port";
    for (int i = 0; i < service.backends_size() && where.empty(); ++i)
      if (service.backends(i).port() == kNtpPort) where = absl::StrCat(".backends[", i, "].port");
    if (where.empty()) return;
    Add(path + where,
        "this is NTP, expected a service that may be hedged: a hedged answer was on its way for longer than the "
        "way back takes, and a client that halves the round trip sets its clock wrong by half of the wait; let "
        "clients ask several servers instead, as NTP itself does, or say force: true");
  }

  void Duplicates(const v1::Service& service, const v1::Profile& profile, const std::string& path) {
    std::vector<std::string> names;  // several operations may share one
    for (const v1::Operation& operation : profile.operations())
      if (!operation.name().empty() && !Contains(names, operation.name())) names.push_back(operation.name());
    if (service.duplicate_size() > 0 && names.empty())
      return Add(path, absl::StrCat("got a list, expected none, since no operation of the profile ",
                                    Quote(service.profile()), " has a name"));
    absl::flat_hash_set<std::string> seen;
    for (int i = 0; i < service.duplicate_size(); ++i) {
      const std::string& name = service.duplicate(i);
      const std::string entry = absl::StrCat(path, "[", i, "]");
      if (name.empty()) continue;  // the decoder has refused it
      if (Contains(profile.not_idempotent(), name)) {
        Add(entry, absl::StrCat("got ", Quote(name),
                                ", expected an operation that does the same when it is done twice: two copies of "
                                "this one do it twice, and one of them at a server that did not do what came before"));
      } else if (!Contains(names, name)) {
        Add(entry, absl::StrCat("got ", Quote(name), ", expected one of ", absl::StrJoin(names, ", ")));
      }
      if (!seen.insert(name).second)
        Add(entry, absl::StrCat("got ", Quote(name), " again, expected each operation once"));
    }
  }

  void Operations(const v1::Profile& profile, const std::string& path) {
    int matches = 0;
    for (int i = 0; i < profile.operations_size(); ++i) {
      const v1::Operation& operation = profile.operations(i);
      const std::string entry = absl::StrCat(path, "[", i, "]");
      matches += Matches(operation.match(), entry + ".match");
      if (operation.shape() > v1::SHAPE_ANY && !profile.has_line())
        Add(entry + ".shape", "got a shape, expected a line block, which says where the line begins");
      if (!operation.name().empty() && Contains(profile.not_idempotent(), operation.name()))
        Add(entry + ".name",
            absl::StrCat("got ", Quote(operation.name()), ", expected a name that not_idempotent does not list"));
    }
    Room(matches, HR_OPERATION_MATCHES, path);
  }

  void NegativeReplies(const v1::Profile& profile, const std::string& path) {
    int matches = 0, leaders = 0;
    for (int i = 0; i < profile.negative_replies_size(); ++i) {
      const v1::NegativeReply& reply = profile.negative_replies(i);
      const std::string entry = absl::StrCat(path, "[", i, "]");
      matches += Matches(reply.match(), entry + ".match");
      if (reply.leader_offset() == 0) continue;
      // The kernel has one place for a byte that says so, at an offset from the payload's start.
      if (reply.match_size() != 1 || BytesOf(reply.match(0)) != 1 || reply.match(0).negated() ||
          reply.match(0).after() != 0)
        Add(entry + ".match",
            "got other matches, expected one of one byte, without not and after, for a leader_offset");
      if (++leaders == 2) Add(entry + ".leader_offset", "got a second one, expected one in all");
    }
    Room(matches, HR_NACK_MATCHES, path);
  }

  // The kernel has places for so many matches in all of a list.
  void Room(int matches, int most, const std::string& path) {
    if (matches > most) Add(path, absl::StrCat("got ", matches, " matches in all, expected at most ", most));
  }

  // Returns how many they are.
  int Matches(const google::protobuf::RepeatedPtrField<v1::Match>& matches, const std::string& path) {
    for (int i = 0; i < matches.size(); ++i) Match(matches[i], absl::StrCat(path, "[", i, "]"));
    return matches.size();
  }

  void Match(const v1::Match& match, const std::string& path) {
    if (match.bytes().empty() == match.text().empty())
      return Add(path, absl::StrCat("got ", match.bytes().empty() ? "neither" : "both", ", expected bytes or text"));
    const size_t bytes = BytesOf(match);
    if (bytes > kMatchBytes)
      Add(path + ".bytes",
          absl::StrCat("got ", bytes, " bytes, expected at most ", kMatchBytes, " (two matches take more)"));
    Mask(match.mask(), bytes, "the match has, which is ", path + ".mask");
  }

  void Mask(const std::string& mask, size_t bytes, absl::string_view of, const std::string& path) {
    if (!mask.empty() && mask.size() != 2 * bytes)
      Add(path, absl::StrCat("got ", mask.size() / 2, " bytes, expected as many as ", of, bytes));
  }
};

}  // namespace

bool IsPortOfOneWay(uint32_t port) {
  return std::find(std::begin(kOneWayPorts), std::end(kOneWayPorts), port) != std::end(kOneWayPorts);
}

void CheckProfile(const v1::Profile& profile, const Locations& locations, Diagnostics& errors) {
  ProfileChecker(locations, errors).Block(profile, "");
}

void CheckProfiles(const v1::Config& config, const Locations& locations, Diagnostics& errors) {
  for (int i = 0; i < config.services_size(); ++i)
    ProfileChecker(locations, errors).Service(config.services(i), absl::StrCat("services[", i, "]"));
}

}  // namespace hedgerow::config
