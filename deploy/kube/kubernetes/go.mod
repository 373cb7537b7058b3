// SPDX-License-Identifier: Apache-2.0
//
// The build adds the rest in the cache, where this file is copied: what Kubernetes' own go.mod names, and its staging modules.
module hedgerow/kubernetes

go 1.24.0

godebug default=go1.24

require k8s.io/kubernetes v1.34.3
