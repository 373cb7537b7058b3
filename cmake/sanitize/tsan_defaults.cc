// SPDX-License-Identifier: Apache-2.0
//
// Options and suppressions that ThreadSanitizer starts with in every binary of the tsan preset. The system's
// gRPC and protobuf are not instrumented: ThreadSanitizer cannot see the atomics they synchronise with and would
// report races inside them. Ours are never suppressed. Compiled in by hedgerow_cc.cmake.
//
// Not prometheus-cpp and civetweb, which synchronise by mutexes alone: what is called from a suppressed library is
// not seen, its locks included, and prometheus::Exposer::RegisterCollectable ends in a jump to pthread_mutex_unlock
// whose caller seems to be ours ("unlock of an unlocked mutex").

extern "C" const char* __tsan_default_options() { return "halt_on_error=1:second_deadlock_stack=1"; }

extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libprotobuf.so\n";
}
