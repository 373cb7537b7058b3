// SPDX-License-Identifier: Apache-2.0
//
// Profiles, the built-in ones and what a user's own is put together from, as the kernel programs read them
// (bpf/abi/config_abi.h). Called by the daemon's spec.cc and by the packet tests. docs/profiles.md tells users
// what each one takes for a request, an answer and a refusal, and what it duplicates.
#ifndef HEDGEROW_PROXY_DATA_PLANE_PROFILE_H_
#define HEDGEROW_PROXY_DATA_PLANE_PROFILE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "bpf/abi/config_abi.h"

namespace hedgerow {

// The parts of a profile. `mask` is as long as the bytes it covers; empty = every bit counts.
hr_field MakeField(uint16_t offset, uint16_t length, absl::string_view mask = "");
// At most 8 bytes, in the order in which they stand in the payload.
hr_match MakeMatch(uint16_t offset, absl::string_view bytes, absl::string_view mask = "", bool negated = false);
// One alternative of a list: all of its matches must hold. Ends the process when the list has no room for it.
void AddNack(hr_profile& profile, const std::vector<hr_match>& matches);
void AddOperation(hr_profile& profile, const std::vector<hr_match>& matches, hr_shape shape = HR_SHAPE_ANY);
// The word at the end of the first line of a request that gets no reply; at most 8 bytes.
void SetOneWay(hr_profile& profile, absl::string_view word);

hr_profile DnsProfile();
hr_profile HkvProfile();
hr_profile StunProfile();
hr_profile NtpProfile();

// What the operator allows to be duplicated beside get and gets.
enum class MemcachedCommand { kSet, kAdd, kReplace, kCas, kDelete, kTouch, kGat };
hr_profile MemcachedProfile(const std::vector<MemcachedCommand>& duplicated = {});

// From the user's offsets alone: everything is a request, and safe to duplicate.
hr_profile RawProfile(uint16_t request_offset, uint16_t request_length, uint16_t reply_offset,
                      uint16_t reply_length, absl::string_view mask = "");

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DATA_PLANE_PROFILE_H_
