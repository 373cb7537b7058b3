// SPDX-License-Identifier: Apache-2.0
//
// Which commit a program was built of: beside the version, which many builds share. Of a tree without git, both are
// "unknown".

#pragma once

namespace hedgerow::operate {

extern const char kCommit[];      // 12 digits; "-dirty" behind them where files differed from it
extern const char kCommitDate[];  // "2026-11-25", of the commit

}  // namespace hedgerow::operate
