// SPDX-License-Identifier: Apache-2.0
#include "operate/commit.h"

namespace hedgerow::operate {

const char kCommit[] = HEDGEROW_COMMIT;
const char kCommitDate[] = HEDGEROW_COMMIT_DATE;

}  // namespace hedgerow::operate
