/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Correlation bytes whose place varies: behind lengths or BER elements (a path of steps), or as the values of headers
 * of a text. Pure functions from a payload's bytes to the key, which compile for both sides: the kernel programs call
 * them through locate.bpf.h, and locate_fuzz compares them with a reference that reads the payload in another way.
 *
 * A payload stands behind a UDP header in hr_parked.l4, where at least 8 readable bytes follow it. Every place that is
 * read is checked against the payload and against that array.
 */
#pragma once

#include "bpf/abi/config_abi.h"
#include "bpf/abi/request_abi.h"
#include "bpf/compiler.h"

struct hr_located {
  __u64 correlation[HR_CORRELATION_BYTES / 8];
  __u32 mark; /* where matches with HR_MATCH_AT_MARK count from */
  __u32 at;   /* where a path has come to, while it is followed */
};

#define HR_UDP_HEADER_BYTES 8
/* A place in hr_parked.l4 from which 16 bytes can be read. */
#define HR_LOCATE_LAST (HR_PARKED_L4_BYTES - HR_CORRELATION_BYTES)
#define HR_BER_TAG_INTEGER 0x02
#define HR_BER_TAG_LONG 0x1f  /* of the low bits: the tag goes on in further bytes, which is not supported */
#define HR_BER_LENGTH_BYTES 4 /* no datagram's element has more */

#define HR_SWAP64(word) __builtin_bswap64(word) /* both supported architectures are little-endian */

/* The first `bytes` of a word in memory order. */
HR_INLINE __u64 hr_first_bytes(__u64 word, __u32 bytes) {
  if (bytes >= 8) return word;
  return bytes ? word & (~0ull >> (64 - 8 * bytes)) : 0;
}

struct hr_element {
  __u32 header; /* bytes before the content */
  __u64 length; /* of the content */
  __u32 tag;    /* BER's; 0: it is none */
};

/* What a step reads of the 8 bytes at its place, most significant first; -1: it makes no sense. */
HR_INLINE int hr_read_step(const struct hr_step *step, __u64 word, struct hr_element *element) {
  __u32 first, more;

  element->tag = 0;
  if (step->kind == HR_STEP_SKIP) {
    element->header = step->bytes;
    element->length = 0;
    return 0;
  }
  if (step->kind == HR_STEP_LENGTH) {
    if (step->bytes == 1)
      element->length = word >> 56;
    else if (step->bytes == 2)
      element->length = step->little_endian ? HR_SWAP64(word) & 0xffff : word >> 48;
    else
      element->length = step->little_endian ? HR_SWAP64(word) & 0xffffffff : word >> 32;
    element->header = step->bytes;
    if (step->add < 0 && element->length < (__u64) - (__s64)step->add) return -1;
    element->length += (__s64)step->add;
    return 0;
  }
  element->tag = word >> 56;
  if ((element->tag & HR_BER_TAG_LONG) == HR_BER_TAG_LONG) return -1;
  first = (word >> 48) & 0xff;
  element->header = 2;
  element->length = first;
  if (first < 0x80) return 0;
  more = first & 0x7f;
  if (more == 0 || more > HR_BER_LENGTH_BYTES) return -1;
  element->header += more;
  element->length = (word << 16) >> (64 - 8 * more);
  return 0;
}

/* The value of a BER element as correlation bytes: an INTEGER as a number, whatever its length; else up to 16 bytes. */
HR_INLINE int hr_read_value(const struct hr_parked *parked, __u64 place, const struct hr_element *element,
                            struct hr_located *located) {
  __u64 length = element->length, word;

  if (length == 0 || length > HR_CORRELATION_BYTES) return -1;
  HR_KEEP_BOUND(place);
  if (place > HR_LOCATE_LAST) return -1;
  word = *(const __u64 *)(parked->l4 + place);
  if (element->tag == HR_BER_TAG_INTEGER && length <= 8) {
    located->correlation[0] = (__u64)((__s64)HR_SWAP64(word) >> (64 - 8 * length));
    located->correlation[1] = 0;
    return 0;
  }
  located->correlation[0] = hr_first_bytes(word, length);
  located->correlation[1] = length > 8 ? hr_first_bytes(*(const __u64 *)(parked->l4 + place + 8), length - 8) : 0;
  return 0;
}

/* Follows a path; -1 where the payload ends before it does, or says nonsense. */
HR_INLINE int hr_follow_path(const struct hr_parked *parked, __u32 payload_bytes, const struct hr_path *path,
                             const struct hr_field *field, struct hr_located *located) {
  __u32 at = 0, i;
  __u64 place;

  located->mark = 0;
  for (i = 0; i < HR_PATH_STEPS; i++) {
    const struct hr_step *step = &path->steps[i];
    struct hr_element element;

    HR_FORGET_RANGE(at, located->at);
    if (i == path->mark) located->mark = at;
    if (i >= path->count) break;
    place = HR_UDP_HEADER_BYTES + (__u64)at;
    HR_KEEP_BOUND(place);
    if (place > HR_LOCATE_LAST) return -1;
    if (hr_read_step(step, HR_SWAP64(*(const __u64 *)(parked->l4 + place)), &element)) return -1;
    if (at + element.header > payload_bytes) return -1;
    at += element.header;
    if (step->kind == HR_STEP_BER_ENTER) continue; /* what it holds is looked at, and its end is not */
    if (element.length > payload_bytes - at) return -1;
    if (step->kind == HR_STEP_BER_VALUE)
      return hr_read_value(parked, HR_UDP_HEADER_BYTES + (__u64)at, &element, located);
    at += (__u32)element.length;
  }
  if (i == HR_PATH_STEPS && path->mark == HR_PATH_STEPS) located->mark = at;
  if (at + field->offset + field->length > payload_bytes) return -1;
  place = HR_UDP_HEADER_BYTES + (__u64)at + field->offset;
  HR_KEEP_BOUND(place);
  if (place > HR_LOCATE_LAST) return -1;
  located->correlation[0] = *(const __u64 *)(parked->l4 + place) & field->mask[0];
  located->correlation[1] = *(const __u64 *)(parked->l4 + place + 8) & field->mask[1];
  return 0;
}

/* ---- Tokens of a text's headers ---------------------------------------------------------------------------------- */

/*
 * A text of lines (RFC 3261 section 7: SIP, alike HTTP): headers are `Name: value`, up to an empty line. The machine
 * reads a byte at a time and has a few words of state. A token is the value of the first header of its name without
 * white space, or of one parameter of that value. Two tokens make the key: of each the FNV-1a hash of 64 bits.
 */
#define HR_SCAN_BYTES 1024 /* how much of a text is read */
#define HR_FNV_BASIS 0xcbf29ce484222325ull
#define HR_FNV_PRIME 0x100000001b3ull

enum hr_scan_phase {
  HR_SCAN_NAME = 0,      /* of a header, from the beginning of its line */
  HR_SCAN_COLON = 1,     /* behind a name, white space before the colon */
  HR_SCAN_VALUE = 2,     /* of a token without a parameter */
  HR_SCAN_SEEK = 3,      /* the value of a token's header, before its parameter */
  HR_SCAN_PARAMETER = 4, /* the name of a parameter */
  HR_SCAN_ARGUMENT = 5,  /* the value of the token's parameter */
  HR_SCAN_REST = 6,      /* of a line that is of no use */
};

struct hr_scan {
  __u64 hash[HR_TOKENS];
  __u64 name[HR_TOKEN_NAME_BYTES / 8]; /* in lower case */
  __u32 phase;
  __u32 column; /* bytes of the name so far */
  __u32 token;  /* whose value is read */
  __u32 found;  /* mask of tokens that have their value */
  __u32 length; /* bytes of the value so far */
  __u32 wanted; /* mask of all tokens */
  __u32 ended;  /* the empty line was seen */
  __u32 pad;
};

/* What is being located: on a stack it would not fit. */
struct hr_locating {
  struct hr_parked copy;
  struct hr_token tokens[HR_TOKENS]; /* the profile's */
  struct hr_scan scan;
  struct hr_located located;
};

HR_INLINE __u8 hr_lower_case(__u8 byte) { return byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte; }

HR_INLINE void hr_scan_begin_line(struct hr_scan *scan) {
  scan->phase = HR_SCAN_NAME;
  scan->column = 0;
  scan->name[0] = scan->name[1] = 0;
}

HR_INLINE int hr_is_tokens_name(const struct hr_scan *scan, const struct hr_token *token) {
  if (scan->column == 1 && token->short_name && (scan->name[0] & 0xff) == token->short_name) return 1;
  return scan->column == token->name_bytes && scan->name[0] == token->name[0] && scan->name[1] == token->name[1];
}

/* A name and its colon have been read. */
HR_INLINE void hr_scan_named(struct hr_scan *scan, const struct hr_token *tokens) {
  __u32 token;

  scan->phase = HR_SCAN_REST;
  if (!(scan->found & 1) && hr_is_tokens_name(scan, &tokens[0]))
    token = 0;
  else if (scan->wanted & ~scan->found & 2 && hr_is_tokens_name(scan, &tokens[1]))
    token = 1;
  else
    return;
  scan->token = token;
  scan->hash[token & 1] = HR_FNV_BASIS;
  scan->length = 0;
  scan->phase = tokens[token & 1].parameter_bytes ? HR_SCAN_SEEK : HR_SCAN_VALUE;
}

HR_INLINE void hr_scan_value_ends(struct hr_scan *scan) {
  if (scan->length) scan->found |= 1u << (scan->token & 1);
}

HR_INLINE int hr_is_blank(__u8 byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }

/* One byte of the text. 1: nothing more is needed, or comes. */
HR_INLINE int hr_scan_byte(struct hr_scan *scan, const struct hr_token *tokens, __u8 byte) {
  const struct hr_token *token = &tokens[scan->token & 1];
  __u32 phase = scan->phase, column;

  if (byte == '\n') {
    if (phase == HR_SCAN_NAME && !scan->column) {
      scan->ended = 1;
      return 1;
    }
    if (phase == HR_SCAN_VALUE || phase == HR_SCAN_ARGUMENT) hr_scan_value_ends(scan);
    hr_scan_begin_line(scan);
    return scan->found == scan->wanted;
  }
  if (phase == HR_SCAN_REST) return 0;
  if (phase == HR_SCAN_NAME || phase == HR_SCAN_COLON) {
    if (byte == ':' && scan->column) {
      hr_scan_named(scan, tokens);
    } else if (hr_is_blank(byte)) {
      /* White space at the beginning continues the line before; a line of CR LF is empty. */
      if (scan->column)
        scan->phase = HR_SCAN_COLON;
      else if (byte != '\r')
        scan->phase = HR_SCAN_REST;
    } else if (phase == HR_SCAN_COLON || scan->column >= HR_TOKEN_NAME_BYTES) {
      scan->phase = HR_SCAN_REST;
    } else {
      column = scan->column;
      scan->name[(column >> 3) & 1] |= (__u64)hr_lower_case(byte) << (8 * (column & 7));
      scan->column = column + 1;
    }
    return 0;
  }
  if (phase == HR_SCAN_SEEK || phase == HR_SCAN_PARAMETER) {
    if (byte == ';') {
      scan->phase = HR_SCAN_PARAMETER;
      scan->column = 0;
    } else if (byte == ',') {
      scan->phase = HR_SCAN_REST; /* another value begins, and the token is of the first */
    } else if (phase == HR_SCAN_PARAMETER && !hr_is_blank(byte)) {
      column = scan->column;
      if (byte == '=') {
        scan->phase = column == token->parameter_bytes ? HR_SCAN_ARGUMENT : HR_SCAN_SEEK;
      } else if (column < 8 && ((token->parameter >> (8 * (column & 7))) & 0xff) == hr_lower_case(byte)) {
        scan->column = column + 1;
      } else {
        scan->phase = HR_SCAN_SEEK;
      }
    }
    return 0;
  }
  if (phase == HR_SCAN_ARGUMENT && (byte == ';' || byte == ',' || hr_is_blank(byte))) {
    if (hr_is_blank(byte) && !scan->length) return 0;
    hr_scan_value_ends(scan);
    scan->phase = HR_SCAN_REST;
    return scan->found == scan->wanted;
  }
  if (hr_is_blank(byte)) return 0;
  scan->hash[scan->token & 1] = (scan->hash[scan->token & 1] ^ byte) * HR_FNV_PRIME;
  scan->length++;
  return 0;
}

HR_INLINE void hr_scan_begin(struct hr_scan *scan, __u32 tokens) {
  __builtin_memset(scan, 0, sizeof(*scan));
  scan->wanted = tokens > 1 ? 3 : 1;
}

/* -1: a token was not found. A text that is cut within a value has not that value. */
HR_INLINE int hr_scan_result(const struct hr_scan *scan, struct hr_located *located) {
  located->mark = 0;
  if (scan->found != scan->wanted) return -1;
  located->correlation[0] = scan->hash[0];
  located->correlation[1] = scan->wanted & 2 ? scan->hash[1] : 0;
  return 0;
}
