// SPDX-License-Identifier: Apache-2.0
//
// Keeps libbpf's messages, because the verifier's last lines say why the kernel refused a BPF object. The code
// that loads a skeleton calls it, on one thread at a time: libbpf reports through one global callback.
#pragma once

#include "absl/status/status.h"

namespace hedgerow::net {

// From now on, what libbpf says is kept instead of printed.
void KeepBpfLog();

inline constexpr char kNoBtf[] = "no /sys/kernel/btf/vmlinux: the kernel was built without CONFIG_DEBUG_INFO_BTF";

// `error` (positive) with the lines kept since then. FailedPrecondition: kNoBtf; PermissionDenied: capabilities;
// ResourceExhausted: a map cannot be made; Internal: anything else.
absl::Status BpfLoadError(int error);

}  // namespace hedgerow::net
