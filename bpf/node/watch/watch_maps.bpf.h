/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of the watch, with the writer of each. The programs that note a death include only this file: none of
 * these maps has a lock.
 */
#pragma once

#include "bpf/map.bpf.h"
#include "bpf/node/watch/watch_abi.h"

/* Written by the watchdog's programs, read by the clock and by the process. */
HR_MAPPED_ARRAY(node_watch, 1, struct hr_watch);

/* Written by the clock, read by the process. */
HR_MAPPED_ARRAY(node_clock, 1, struct hr_watch_clock);

/* Written by the process: as leader, whenever the order of its followers changes. */
HR_MAPPED_ARRAY(node_plan, 1, struct hr_watch_plan);

/* Written by the process: at its start, and when a route changes. */
HR_MAPPED_ARRAY(node_targets, HR_WATCH_TARGETS, struct hr_watch_target);
