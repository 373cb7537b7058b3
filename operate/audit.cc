// SPDX-License-Identifier: Apache-2.0
#include "operate/audit.h"

#include <pwd.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "config/json.h"

namespace hedgerow::operate {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kArgumentsMax = 1000;
constexpr size_t kReasonMax = 800;

std::string Cut(std::string text, size_t most) {
  if (text.size() <= most) return text;
  text.resize(most);
  return text + " ...";
}

// Of this host's own users. Not by way of the name service, which may ask a network while a call waits.
std::string NameOf(uid_t uid) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen("/etc/passwd", "re"), fclose);
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(1 << 14);
  while (file != nullptr && fgetpwent_r(file.get(), &entry, buffer.data(), buffer.size(), &found) == 0) {
    if (found->pw_uid == uid) return absl::StrCat(absl::CHexEscape(std::string(found->pw_name)), " (", uid, ")");
  }
  return absl::StrCat(uid);
}

bool NamesASecret(const std::string& name) {
  return absl::StrContains(name, "key") || absl::StrContains(name, "secret") || absl::StrContains(name, "token");
}

void HideText(const FieldDescriptor& field, int at, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const bool listed = field.is_repeated();
  const std::string text =
      listed ? reflection.GetRepeatedString(message, &field, at) : reflection.GetString(message, &field);
  const bool bytes = field.type() == FieldDescriptor::TYPE_BYTES;
  if (text.empty() || (!bytes && !NamesASecret(field.name()))) return;
  const std::string shown = bytes ? absl::StrCat("(", text.size(), " bytes)") : "(hidden)";
  listed ? reflection.SetRepeatedString(&message, &field, at, shown) : reflection.SetString(&message, &field, shown);
}

void HideSecrets(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int at = 0; at < count; ++at) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        HideText(*field, at, message);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        HideSecrets(field->is_repeated() ? *reflection.MutableRepeatedMessage(&message, field, at)
                                         : *reflection.MutableMessage(&message, field));
      }
    }
  }
}

// What a reply says against a command that was understood: why a configuration was not applied, what was left.
std::string ProblemsOf(const Message& reply) {
  const FieldDescriptor* field = reply.GetDescriptor()->FindFieldByName("problems");
  std::string problems;
  if (field == nullptr || !field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_STRING)
    return problems;
  for (int i = 0; i < reply.GetReflection()->FieldSize(reply, field); ++i)
    absl::StrAppend(&problems, i == 0 ? "" : "; ", reply.GetReflection()->GetRepeatedString(reply, field, i));
  return problems;
}

// Was the command carried out for all its problems? A reply without `applied` is to one that was.
bool IsApplied(const Message& reply) {
  const FieldDescriptor* field = reply.GetDescriptor()->FindFieldByName("applied");
  return field == nullptr || reply.GetReflection()->GetBool(reply, field);
}

}  // namespace

std::string AuditLine(const Asker& asker, const Message& request, const grpc::Status& result, const Message* reply) {
  const std::unique_ptr<Message> shown(request.New());
  shown->CopyFrom(request);
  HideSecrets(*shown);
  const std::string name(absl::StripSuffix(request.GetDescriptor()->name(), "Request"));
  const std::string problems = result.ok() && reply != nullptr ? ProblemsOf(*reply) : result.error_message();
  const bool done = result.ok() && (problems.empty() || IsApplied(*reply));
  const std::string reason = Cut(absl::CHexEscape(problems), kReasonMax);
  return absl::StrCat("audit: user ", NameOf(asker.uid), ", process ", asker.pid, ": ", name, " ",
                      Cut(ToCompactJson(*shown), kArgumentsMax), ": ",
                      done ? absl::StrCat("done", problems.empty() ? "" : ", with problems: ", reason)
                           : absl::StrCat("refused: ", reason));
}

}  // namespace hedgerow::operate
