// SPDX-License-Identifier: Apache-2.0
//
// How the program that started hr-unsynced-fs speaks with it: lines on its standard input, an answer to each on its
// standard output when it is done. The end of the input is the end of the mount, so that nothing stays mounted
// when the starter dies, however it dies. main calls it in a thread of its own.

#pragma once

#include <string>
#include <string_view>

#include "chaos/unsynced/disk.h"

namespace hedgerow::unsynced {

// One line of JSON, without its end: what the power cut took, or what is wrong with the command.
//   cut          everything that was not synced
//   cut SEED     only some of it, drawn from the seed
// and, answered with the counts so far of syncs that were slowed and calls that were refused:
//   slow MS      from now on every sync takes so many milliseconds longer
//   full         from now on nothing can be written, for want of space
//   well         neither
std::string Obey(Disk& disk, std::string_view command);

// Until the input ends or one of the signals SIGTERM, SIGINT and SIGHUP comes; the caller has blocked them.
void ObeyUntilTheEnd(Disk& disk, int input, int output);

}  // namespace hedgerow::unsynced
