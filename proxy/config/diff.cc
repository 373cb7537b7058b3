// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/diff.h"

#include <google/protobuf/message.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/schema.h"

namespace hedgerow::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kHidden[] = "(hidden)";
constexpr char kFixed[] =
    "fixed while the proxy runs; `systemctl restart hedgerowd` applies it, and requests in flight lose their answers";
constexpr char kAnotherService[] =
    "requests in flight would be answered as another service; give the new one another name and backends, or restart";
constexpr char kDaemonsOwn[] =
    "read at the daemon's start; `systemctl restart hedgerowd` applies it, and no request is lost";

Reload ReloadOf(const FieldDescriptor& field, Reload block) {
  return RuleOf(field).reload() == RELOAD_AS_BLOCK ? block : RuleOf(field).reload();
}

bool IsName(const FieldDescriptor& field) { return field.name() == "name" && RuleOf(field).required(); }

// How a list's entry is called: by its name, or, where it need not have one, by its place.
std::string NameOf(const Message& entry, size_t place) {
  const FieldDescriptor* name = entry.GetDescriptor()->FindFieldByName("name");
  return name == nullptr || !IsName(*name) ? absl::StrCat(place) : ScalarText(entry, *name);
}

// No version that knows the key would have left it so.
bool IsUnknown(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  const Rule& rule = RuleOf(field);
  if (rule.default_value().empty()) return false;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:  // an empty text may have been meant
    case FieldDescriptor::CPPTYPE_BOOL: return false;
    case FieldDescriptor::CPPTYPE_ENUM: return reflection.GetEnum(message, &field)->number() == 0;
    case FieldDescriptor::CPPTYPE_INT64: return rule.min() > 0 && reflection.GetInt64(message, &field) == 0;
    default: return rule.min() > 0 && reflection.GetUInt32(message, &field) == 0;
  }
}

// What an entry of a list or a block is, in a few words: its scalars that are no secrets.
std::string Summary(const Message& message) {
  std::vector<std::string> words;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (field.is_repeated() || field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (IsName(field) || RuleOf(field).secret()) continue;
    const std::string text = ScalarText(message, field);
    if (!text.empty() && text != RuleOf(field).default_value()) words.push_back(absl::StrCat(KeyOf(field), " ", text));
  }
  return absl::StrJoin(words, ", ");
}

class Comparer {
 public:
  Comparer(const v1::Config& from, const v1::Config& to, const std::set<uint32_t>& awaited)
      : from_(from), to_(to), awaited_(awaited) {
    for (const v1::Service& service : from.services()) {
      if (service.has_cluster()) awaited_.insert(service.cluster().announce_port());
    }
  }

  std::vector<Change> Run() {
    Compare(from_, to_, "", RELOAD_AS_BLOCK);
    return std::move(changes_);
  }

 private:
  // `block`: what its keys are that do not say so themselves.
  void Compare(const Message& from, const Message& to, const std::string& prefix, Reload block) {
    for (int i = 0; i < from.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *from.GetDescriptor()->field(i);
      const std::string path = absl::StrCat(prefix, KeyOf(field));
      reload_ = ReloadOf(field, block);
      if (field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        List(from, to, field, path);
      } else if (field.is_repeated()) {
        Texts(absl::StrJoin(TextsOf(from, field), ", "), absl::StrJoin(TextsOf(to, field), ", "), field, path);
      } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Block(from, to, field, path);
      } else {
        Scalar(from, to, field, path);
      }
    }
  }

  void Scalar(const Message& from, const Message& to, const FieldDescriptor& field, const std::string& path) {
    Texts(IsUnknown(from, field) ? RuleOf(field).default_value() : ScalarText(from, field), ScalarText(to, field),
          field, path);
  }

  void Texts(const std::string& before, const std::string& after, const FieldDescriptor& field,
             const std::string& path) {
    if (before == after) return;
    const bool secret = RuleOf(field).secret();
    Add({.kind = "changed", .path = path, .from = secret ? kHidden : before, .to = secret ? kHidden : after});
  }

  void Block(const Message& from, const Message& to, const FieldDescriptor& field, const std::string& path) {
    const bool before = from.GetReflection()->HasField(from, &field);
    const bool after = to.GetReflection()->HasField(to, &field);
    const Message& old_block = from.GetReflection()->GetMessage(from, &field);
    const Message& new_block = to.GetReflection()->GetMessage(to, &field);
    if (before && after) {
      Compare(old_block, new_block, path + ".", reload_);
    } else if (before) {
      Add({.kind = "removed", .path = path, .from = Summary(old_block)});
    } else if (after) {
      // A block that an older version does not know is at its defaults there, if it has any.
      if (Summary(new_block).empty()) return;
      Add({.kind = "added", .path = path, .to = Summary(new_block)});
    }
  }

  // The entries of a list, each with what it is called.
  using Entries = std::vector<std::pair<std::string, const Message*>>;

  static Entries EntriesOf(const Message& message, const FieldDescriptor& field) {
    Entries entries;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
      const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, i);
      entries.emplace_back(NameOf(entry, static_cast<size_t>(i)), &entry);
    }
    return entries;
  }

  static const Message* Find(const Entries& entries, const std::string& name) {
    for (const auto& [each, entry] : entries) {
      if (each == name) return entry;
    }
    return nullptr;
  }

  void List(const Message& from, const Message& to, const FieldDescriptor& field, const std::string& path) {
    const Entries before = EntriesOf(from, field);
    const Entries after = EntriesOf(to, field);
    const Reload reload = reload_;
    for (const auto& [name, entry] : before) {
      const std::string entry_path = absl::StrCat(path, "[", name, "]");
      if (const Message* now = Find(after, name); now != nullptr) {
        Compare(*entry, *now, entry_path + ".", reload);
        reload_ = reload;
      } else {
        Add({.kind = "removed", .path = entry_path, .from = Summary(*entry)});
      }
    }
    for (const auto& [name, entry] : after) {
      if (Find(before, name) != nullptr) continue;
      Add({.kind = "added", .path = absl::StrCat(path, "[", name, "]"), .to = Summary(*entry)});
    }
  }

  void Add(Change change) {
    change.obstacle = Obstacle(change);
    changes_.push_back(std::move(change));
  }

  std::string Obstacle(const Change& change) const {
    if (reload_ == RELOAD_AS_BLOCK) return kFixed;
    if (reload_ == RELOAD_DAEMON) return kDaemonsOwn;
    if (reload_ == RELOAD_IDENTITY) return kAnotherService;
    return AwaitsElsewhere(change) ? absl::StrCat("the ports on which announcements are awaited are ", kFixed) : "";
  }

  // A service whose leader is announced on a port on which none was.
  bool AwaitsElsewhere(const Change& change) const {
    for (const v1::Service& service : to_.services()) {
      const std::string path = absl::StrCat("services[", service.name(), "]");
      if (change.path != path && change.path != path + ".cluster" && change.path != path + ".cluster.announce_port") {
        continue;
      }
      if (service.has_cluster() && !awaited_.contains(service.cluster().announce_port())) return true;
    }
    return false;
  }

  const v1::Config& from_;
  const v1::Config& to_;
  std::set<uint32_t> awaited_;
  Reload reload_ = RELOAD_AS_BLOCK;  // of the field that is compared
  std::vector<Change> changes_;
};

void KeepIdentity(Message& message, Reload block) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const Reload reload = ReloadOf(field, block);
    if (reload != RELOAD_IDENTITY) {
      message.GetReflection()->ClearField(&message, &field);
    } else if (!field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
               message.GetReflection()->HasField(message, &field)) {
      KeepIdentity(*message.GetReflection()->MutableMessage(&message, &field), reload);
    }
  }
}

}  // namespace

std::vector<Change> Diff(const v1::Config& from, const v1::Config& to, const std::set<uint32_t>& awaited) {
  return Comparer(from, to, awaited).Run();
}

v1::Service IdentityOf(const v1::Service& service) {
  v1::Service identity = service;
  KeepIdentity(identity, RELOAD_APPLIES);
  return identity;
}

void CopyDaemonsOwn(const v1::Config& from, v1::Config& to) {
  *to.mutable_admin() = from.admin();
  *to.mutable_metrics() = from.metrics();
  *to.mutable_page() = from.page();
}

std::vector<std::string> Obstacles(const std::vector<Change>& changes) {
  std::vector<std::pair<std::string, std::vector<std::string>>> paths;  // by obstacle
  for (const Change& change : changes) {
    if (change.obstacle.empty()) continue;
    const auto known =
        std::find_if(paths.begin(), paths.end(), [&](auto& each) { return each.first == change.obstacle; });
    (known == paths.end() ? paths.emplace_back(change.obstacle, std::vector<std::string>()) : *known)
        .second.push_back(change.path);
  }
  std::vector<std::string> lines;
  for (const auto& [obstacle, of] : paths) lines.push_back(absl::StrCat(absl::StrJoin(of, ", "), ": ", obstacle));
  return lines;
}

}  // namespace hedgerow::config
