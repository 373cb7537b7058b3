// SPDX-License-Identifier: Apache-2.0

// The oldest Go that ./dev meets is Debian 12's.
module hedgerow/chaos/porcupine

go 1.19

require github.com/anishathalye/porcupine v1.3.1
