// SPDX-License-Identifier: Apache-2.0
//
// Options that AddressSanitizer and UndefinedBehaviorSanitizer start with in every binary of the asan preset,
// so that they hold whoever starts it (ctest, pytest, a shell). Compiled into each executable by
// hedgerow_cc.cmake.

extern "C" const char* __asan_default_options() {
  // Container annotations need every user of a std::vector to be instrumented; the system's gRPC, protobuf and
  // Abseil are not.
  return "detect_container_overflow=0:detect_stack_use_after_return=1:strict_string_checks=1:abort_on_error=0";
}

extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1:halt_on_error=1"; }
