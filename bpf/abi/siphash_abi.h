/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), which authenticates what nodes
 * say to each other and to proxies. Compiled by clang for the kernel programs and natively for the nodes and
 * the tests.
 *
 * Natively hr_siphash() takes any length. A kernel program uses hr_siphash_bounded(): a loop of constant bound
 * whose loads stand at constant offsets, so that the verifier of 6.1 follows it wherever the buffer lies. Both
 * have a variant for a message that carries its own tag: the tag is the message's second word, and counts as 0.
 */
#pragma once

#include "bpf/abi/base_abi.h"

/* 16 key bytes are k0 and k1, little-endian; here they are numbers of the host. */
struct hr_siphash_key {
  __u64 k0, k1;
};

/* The word that holds the tag of a message which carries it: bytes 8 to 15. */
#define HR_SIPHASH_TAG_WORD 1u
#define HR_SIPHASH_NO_TAG_WORD 0xffffffffu

struct hr_siphash_state {
  __u64 v0, v1, v2, v3;
};

#define HR_SIPHASH_ROTATE(word, bits) (((word) << (bits)) | ((word) >> (64 - (bits))))

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HR_SIPHASH_LITTLE(word) (word)
#else
#define HR_SIPHASH_LITTLE(word) __builtin_bswap64(word)
#endif

/* Section 2.1 of the paper. */
HR_INLINE void hr_siphash_begin(struct hr_siphash_state *state, const struct hr_siphash_key *key) {
  state->v0 = key->k0 ^ 0x736f6d6570736575ull;
  state->v1 = key->k1 ^ 0x646f72616e646f6dull;
  state->v2 = key->k0 ^ 0x6c7967656e657261ull;
  state->v3 = key->k1 ^ 0x7465646279746573ull;
}

/* SipRound, section 2.4. */
HR_INLINE void hr_siphash_round(struct hr_siphash_state *state) {
  state->v0 += state->v1;
  state->v1 = HR_SIPHASH_ROTATE(state->v1, 13) ^ state->v0;
  state->v0 = HR_SIPHASH_ROTATE(state->v0, 32);
  state->v2 += state->v3;
  state->v3 = HR_SIPHASH_ROTATE(state->v3, 16) ^ state->v2;
  state->v0 += state->v3;
  state->v3 = HR_SIPHASH_ROTATE(state->v3, 21) ^ state->v0;
  state->v2 += state->v1;
  state->v1 = HR_SIPHASH_ROTATE(state->v1, 17) ^ state->v2;
  state->v2 = HR_SIPHASH_ROTATE(state->v2, 32);
}

/* Section 2.2: compresses one word of the message, given as a number of the host. */
HR_INLINE void hr_siphash_word(struct hr_siphash_state *state, __u64 word) {
  state->v3 ^= word;
  hr_siphash_round(state);
  hr_siphash_round(state);
  state->v0 ^= word;
}

/* Sections 2.2 and 2.3. `rest` is the up to 7 bytes after the last whole word, the first one lowest. */
HR_INLINE __u64 hr_siphash_end(struct hr_siphash_state *state, __u64 rest, __u64 size_bytes) {
  hr_siphash_word(state, rest | size_bytes << 56);
  state->v2 ^= 0xff;
  hr_siphash_round(state);
  hr_siphash_round(state);
  hr_siphash_round(state);
  hr_siphash_round(state);
  return state->v0 ^ state->v1 ^ state->v2 ^ state->v3;
}

/*
 * For kernel programs. `max_bytes` is a constant and a multiple of 8, and that much of `data` may be read
 * whatever `size_bytes` is (a stack buffer, a map value, or a packet checked against data_end that far). More
 * than max_bytes counts as max_bytes. `data` is aligned to 8. `zero_word` is the word that counts as 0:
 * HR_SIPHASH_TAG_WORD or HR_SIPHASH_NO_TAG_WORD.
 */
HR_INLINE __u64 hr_siphash_bounded(const struct hr_siphash_key *key, const void *data, __u64 size_bytes,
                                   __u32 max_bytes, __u32 zero_word) {
  const __u64 *words = (const __u64 *)data;
  struct hr_siphash_state state;
  __u64 rest = 0;

  if (size_bytes > max_bytes) size_bytes = max_bytes;
  hr_siphash_begin(&state, key);
  for (__u32 i = 0; i < max_bytes / 8; ++i) {
    const __u64 left = size_bytes - (__u64)i * 8; /* never below 0: the loop has ended by then */
    __u64 word = 0;

    /* A copy, since the bytes were written as something else; for BPF it is one load. */
    if (i != zero_word) __builtin_memcpy(&word, &words[i], sizeof(word));
    word = HR_SIPHASH_LITTLE(word);
    if (left < 8) {
      rest = word & ((1ull << (left * 8)) - 1);
      break;
    }
    hr_siphash_word(&state, word);
  }
  return hr_siphash_end(&state, rest, size_bytes);
}

#ifndef __bpf__

HR_INLINE __u64 hr_siphash_load(const unsigned char *bytes) {
  __u64 word;
  __builtin_memcpy(&word, bytes, sizeof(word));
  return HR_SIPHASH_LITTLE(word);
}

/* The bytes that do not fill a word. */
HR_INLINE __u64 hr_siphash_load_rest(const unsigned char *bytes, __u64 count) {
  __u64 rest = 0;
  for (__u64 i = 0; i < count; ++i) rest |= (__u64)bytes[i] << (8 * i);
  return rest;
}

/* SipHash-2-4 of any bytes. Needs no alignment. */
static inline __u64 hr_siphash(const struct hr_siphash_key *key, const void *data, __u64 size_bytes) {
  const unsigned char *bytes = (const unsigned char *)data;
  const unsigned char *end = bytes + (size_bytes & ~7ull);
  struct hr_siphash_state state;

  hr_siphash_begin(&state, key);
  for (; bytes != end; bytes += 8) hr_siphash_word(&state, hr_siphash_load(bytes));
  return hr_siphash_end(&state, hr_siphash_load_rest(bytes, size_bytes & 7), size_bytes);
}

/* The same of a message of at least 16 bytes that carries its tag, which counts as 0 wherever it stands now. */
static inline __u64 hr_siphash_sealed(const struct hr_siphash_key *key, const void *data, __u64 size_bytes) {
  const unsigned char *bytes = (const unsigned char *)data;
  const unsigned char *end = bytes + (size_bytes & ~7ull);
  struct hr_siphash_state state;

  hr_siphash_begin(&state, key);
  hr_siphash_word(&state, hr_siphash_load(bytes));
  hr_siphash_word(&state, 0);
  for (bytes += 16; bytes != end; bytes += 8) hr_siphash_word(&state, hr_siphash_load(bytes));
  return hr_siphash_end(&state, hr_siphash_load_rest(bytes, size_bytes & 7), size_bytes);
}

/*
 * Names a key to operators, and to a peer that holds two: 32 bits of a tag of the key, never 0. It helps against the
 * key no more than the tag of any datagram does.
 */
static inline __u32 hr_key_id(const struct hr_siphash_key *key) {
  static const char purpose[] = "hedgerow key id 1";
  const __u32 id = (__u32)hr_siphash(key, purpose, sizeof(purpose) - 1);

  return id ? id : 1;
}

#endif /* __bpf__ */
