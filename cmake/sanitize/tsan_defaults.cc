// SPDX-License-Identifier: Apache-2.0
//
// Options and suppressions that ThreadSanitizer starts with in every binary of the tsan preset. The system's
// gRPC, protobuf and Abseil are not instrumented: ThreadSanitizer cannot see the atomics they synchronise with
// and would report races inside them. Of Abseil these are counted Statuses and Cords, the table of time zones
// and the graph of its mutexes' order (its mutexes: tsan_absl_mutex.cc). Ours are never suppressed. Compiled in
// by hedgerow_cc.cmake. A process ends without the second that ThreadSanitizer waits for reports: tests look at
// how long a death takes.

extern "C" const char* __tsan_default_options() { return "halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=0"; }

extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_cord.so\n"
         "called_from_lib:libabsl_time_zone.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n";
}
