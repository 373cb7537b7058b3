// SPDX-License-Identifier: Apache-2.0
//
// The version that status, `hedgerow version` and the metrics show. It follows
// the project's version in the top CMakeLists.txt, which passes it in.

#ifndef HEDGEROW_PROXY_ADMIN_VERSION_H_
#define HEDGEROW_PROXY_ADMIN_VERSION_H_

namespace hedgerow {

#ifndef HEDGEROW_VERSION
#error "HEDGEROW_VERSION comes from proxy/admin/CMakeLists.txt"
#endif
inline constexpr char kVersion[] = HEDGEROW_VERSION;

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_ADMIN_VERSION_H_
