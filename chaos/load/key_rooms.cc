// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/key_rooms.h"

#include <algorithm>

#include "cluster/raft/check.h"

namespace hedgerow::chaos {

uint32_t KeyRooms::Take(Kind kind, uint32_t drawn) {
  std::vector<Row>& rows = RowsOf(kind);
  Row& row = rows[drawn];
  while (row.first < row.outstanding.size() && row.outstanding[row.first] == kOutstandingMax) ++row.first;
  if (row.first == row.outstanding.size()) row.outstanding.push_back(0);
  ++row.outstanding[row.first];
  return drawn + static_cast<uint32_t>(row.first * rows.size());
}

void KeyRooms::Ended(const Record& record) {
  if (record.ending != Ending::kOk && IsWrite(record.kind)) return;
  GiveBack(record.kind, record.key);
}

void KeyRooms::GiveBack(Kind kind, uint32_t key) {
  std::vector<Row>& rows = RowsOf(kind);
  Row& row = rows[key % rows.size()];
  const size_t turn = key / rows.size();
  HEDGEROW_CHECK(turn < row.outstanding.size() && row.outstanding[turn] > 0);
  --row.outstanding[turn];
  row.first = std::min(row.first, turn);
}

}  // namespace hedgerow::chaos
