// SPDX-License-Identifier: Apache-2.0
//
// What else is needed follows from CoreDNS' own go.mod; the build adds it in the cache, where this file is copied.
module hedgerow/coredns

go 1.25.0

require github.com/coredns/coredns v1.14.7
