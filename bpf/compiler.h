/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs must say to the compiler, and to the verifier through it: one macro for each need, with the symptom
 * that it cures. Compiles natively too, where the verifier's macros are nothing.
 */
#pragma once

/* 6.1 allows no call of a function while a spin lock is held, and a call costs a frame of the 512 bytes of stack. */
#define HR_INLINE static inline __attribute__((always_inline))

/* The kernel's (include/asm-generic/rwonce.h): one access, neither repeated nor split. They order nothing. */
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))

/*
 * Puts x through memory of a map, of which the verifier knows nothing. It walks each round of a loop once for every
 * range that it knows of a variable whose range matters.
 */
#define HR_FORGET_RANGE(x, memory) \
  do {                             \
    WRITE_ONCE(memory, x);         \
    x = READ_ONCE(memory);         \
  } while (0)

#ifdef __bpf__
/* A function that the verifier checks once, by itself, for any arguments. Not inlined even where it has one caller. */
#define HR_GLOBAL __attribute__((weak, noinline))
/*
 * Before a check or a mask of x that the verifier must see on the register that is used next. clang knows x's range
 * from elsewhere and drops the check, or makes it on a copy, and every kernel then says "unbounded memory access" or
 * "invalid access to map value". 6.1 also forgets the bounds of a register that was spilled after its check: x gets a
 * short life of its own. The kernel's selftests call this barrier_var().
 */
#define HR_KEEP_BOUND(x) asm volatile("" : "+r"(x))
/*
 * After an atomic addition whose result orders what follows: an unused result makes clang emit BPF_ADD without
 * BPF_FETCH, and an atomic operation without a return value is no barrier (Documentation/atomic_t.txt, "ORDERING").
 */
#define HR_USE_RESULT(x) asm volatile("" : "+r"(x))
#else
#define HR_KEEP_BOUND(x) ((void)0)
#define HR_USE_RESULT(x) ((void)0)
#endif
