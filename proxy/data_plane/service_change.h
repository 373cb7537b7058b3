// SPDX-License-Identifier: Apache-2.0
//
// One service's element of the map `services` on its way from what it is to what it is to be, for
// KernelDataPlane: FillService (kernel_fill.cc) says what is to be, kernel_store.cc writes it, in steps between
// which packets come.
#ifndef HEDGEROW_PROXY_DATA_PLANE_SERVICE_CHANGE_H_
#define HEDGEROW_PROXY_DATA_PLANE_SERVICE_CHANGE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bpf/abi/config_abi.h"

namespace hedgerow {

struct ServiceChange {
  explicit ServiceChange(volatile hr_service* to) : mapped(to), old(Copy(*to)), next(old), step(old) {}

  // No program finds it yet: it is new, or its id belonged to a service that is forgotten.
  bool fresh() const { return old.backend_count == 0; }
  bool has_other_profile() const {
    return !fresh() && memcmp(&old.profile, &next.profile, sizeof(old.profile)) != 0;
  }
  static uint32_t Places(const hr_service& service) { return (1u << service.backend_count) - 1; }
  // Those to which requests go.
  static uint32_t Present(const hr_service& service) { return Places(service) & ~uint32_t{service.absent}; }
  uint32_t come() const { return Present(next) & ~Present(old); }

  volatile hr_service* mapped;
  hr_service old;
  hr_service next;
  hr_service step;  // how far it is

 private:
  static hr_service Copy(const volatile hr_service& from) {
    hr_service copy{};
    for (size_t i = 0; i < sizeof(copy); ++i)
      reinterpret_cast<char*>(&copy)[i] = reinterpret_cast<const volatile char*>(&from)[i];
    return copy;
  }
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DATA_PLANE_SERVICE_CHANGE_H_
