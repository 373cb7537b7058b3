// SPDX-License-Identifier: Apache-2.0
//
// The version that every program shows in its status, its metrics and by `version`. It follows the project's
// version in the top CMakeLists.txt, which passes it in.

#pragma once

namespace hedgerow::operate {

#ifndef HEDGEROW_VERSION
#error "HEDGEROW_VERSION comes from the target operate_version"
#endif
inline constexpr char kVersion[] = HEDGEROW_VERSION;

}  // namespace hedgerow::operate
