// SPDX-License-Identifier: Apache-2.0
#include "net/tc/hook_programs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::net {

bool HookProgram::IsHedgerows() const { return name.starts_with("hedgerow:") || name == "hr_reply"; }

std::string HookProgram::ToString() const {
  const std::string number = program_id == 0 ? "" : absl::StrCat("program ", program_id);
  if (mechanism == Mechanism::kTcx)
    return name.empty() ? absl::StrCat(number, " (tcx)") : absl::StrCat(name, " (tcx, ", number, ")");
  const std::string place = absl::StrCat("priority ", priority, number.empty() ? "" : ", ", number);
  return absl::StrCat(name.empty() ? absl::StrCat("a ", kind, " filter") : name, " (", place, ")");
}

absl::StatusOr<std::vector<HookProgram>> ListHook(int ifindex, Direction direction) {
  std::vector<HookProgram> programs;
  const auto supported = TcxSupported();
  if (!supported.ok()) return supported.status();
  if (*supported) {
    const auto found = ListTcx(ifindex, direction);
    if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
    for (size_t i = 0; found.ok() && i < found->size(); ++i)
      programs.push_back({.program_id = (*found)[i].program_id, .kind = "bpf", .name = (*found)[i].name});
  }
  const auto filters = ListClsactFilters(ifindex, direction);
  if (!filters.ok()) return filters.status();
  for (const ClsactFilter& filter : *filters) {
    programs.push_back({.program_id = filter.program_id,
                        .mechanism = Mechanism::kClsact,
                        .priority = filter.priority,
                        .kind = filter.kind,
                        .name = filter.name});
  }
  return programs;
}

absl::StatusOr<std::vector<HookProgram>> ProgramsBefore(const Attachment& attachment) {
  auto programs = ListHook(attachment.spec().ifindex, attachment.spec().direction);
  if (!programs.ok()) return programs.status();
  const auto number = attachment.ProgramId();
  if (!number.ok()) return number.status();
  const auto ours = std::find_if(programs->begin(), programs->end(), [&](const HookProgram& each) {
    return each.mechanism == attachment.mechanism() && each.program_id == *number;
  });
  if (ours == programs->end()) return std::vector<HookProgram>{};
  programs->erase(ours, programs->end());
  return programs;
}

std::string Join(const std::vector<HookProgram>& programs) {
  return absl::StrJoin(programs, " and ", [](std::string* out, const HookProgram& each) { *out += each.ToString(); });
}

}  // namespace hedgerow::net
