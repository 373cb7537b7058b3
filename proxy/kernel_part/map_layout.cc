// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/map_layout.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "absl/strings/str_cat.h"
#include "net/fnv.h"

namespace hedgerow {
namespace {

constexpr int kDeepest = 16;  // structs within structs; ours are three deep

const btf_type* Resolve(const btf* types, uint32_t type_id) {
  const btf_type* type = btf__type_by_id(types, type_id);
  while (type != nullptr && (btf_is_mod(type) || btf_is_typedef(type))) type = btf__type_by_id(types, type->type);
  return type;
}

void Describe(const btf* types, uint32_t type_id, int depth, std::string& out) {
  const btf_type* type = type_id == 0 ? nullptr : Resolve(types, type_id);
  if (type == nullptr || depth > kDeepest) {
    absl::StrAppend(&out, "?");
  } else if (btf_is_array(type)) {
    absl::StrAppend(&out, "[", btf_array(type)->nelems, "]");
    Describe(types, btf_array(type)->type, depth + 1, out);
  } else if (btf_is_var(type)) {
    Describe(types, type->type, depth + 1, out);
  } else if (btf_is_datasec(type)) {
    // The programs' variables, one after the other.
    for (uint32_t i = 0; i < btf_vlen(type); ++i) {
      const btf_var_secinfo& variable = btf_var_secinfos(type)[i];
      absl::StrAppend(&out, variable.offset, ":");
      Describe(types, variable.type, depth + 1, out);
    }
  } else if (btf_is_composite(type)) {
    absl::StrAppend(&out, btf_is_union(type) ? "|" : "", "{");
    for (uint32_t i = 0; i < btf_vlen(type); ++i) {
      const btf_member& member = btf_members(type)[i];
      absl::StrAppend(&out, btf__name_by_offset(types, member.name_off), "@", btf_member_bit_offset(type, i), ":",
                      btf_member_bitfield_size(type, i));
      Describe(types, member.type, depth + 1, out);
      absl::StrAppend(&out, ",");
    }
    absl::StrAppend(&out, "}");
  } else {
    // A program or process that reads the map sees an enum as an integer.
    absl::StrAppend(&out, btf_is_any_enum(type) || btf_is_int(type) ? "i" : absl::StrCat("k", btf_kind(type), "-"),
                    type->size);
  }
}

}  // namespace

std::string DescribeType(const btf* types, uint32_t type_id) {
  std::string out;
  Describe(types, type_id, 0, out);
  return out;
}

uint64_t MapLayout(const btf* types, const bpf_map* map) {
  return net::Fnv1a64(absl::StrCat(bpf_map__type(map), " ", bpf_map__key_size(map), " ", bpf_map__value_size(map), " ",
                                   bpf_map__map_flags(map), " ", DescribeType(types, bpf_map__btf_key_type_id(map)),
                                   " ", DescribeType(types, bpf_map__btf_value_type_id(map))));
}

}  // namespace hedgerow
