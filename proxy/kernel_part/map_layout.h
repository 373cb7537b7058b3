// SPDX-License-Identifier: Apache-2.0
//
// Which layout a kernel map has, as a number: kind, sizes, and the shape and names of what it holds, from the
// programs' BTF. A daemon takes a pinned map over only where its own programs would have made the same one;
// HR_ABI_VERSION, raised by hand, covers what no shape shows (another meaning of the same bytes). Also the
// number of a whole build of the programs. Called by KernelObject.
#pragma once

#include <cstdint>
#include <string>

struct bpf_map;
struct btf;

namespace hedgerow {

// The type as text: "{sent_ns@0i8,...}". Typedefs and qualifiers are seen through.
std::string DescribeType(const btf* types, uint32_t type_id);

// Entries are left out: some maps' are the configuration's, and those of the others are compared apart.
uint64_t MapLayout(const btf* types, const bpf_map* map);

}  // namespace hedgerow
