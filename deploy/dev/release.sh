# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev release`: everything that a release consists of, in one folder, of a clean commit: packages, images, bill of materials, notes
# and checksums. release.py refuses a tree whose version, changelogs and files disagree. RELEASE_KEY names a key of gpg, which signs.

cmd_release() {
  [ $# -le 1 ] || die "usage: ./dev release [FOLDER]"
  local version folder again name
  version=$(/usr/bin/python3 -m deploy.dev.release check) || die "this tree is no release"
  is_root || die "files of an image belong to root: sudo ./dev release"
  folder=${1:-build/releases/hedgerow-$version}
  [ -z "$(ls -A "$folder" 2>/dev/null)" ] || die "$folder is not empty"
  ensure_packages build package
  build_preset release programs
  make_packages build/release "$folder"
  again=$(mktemp -d)
  make_packages build/release "$again"
  for name in "$folder"/*.deb; do
    cmp "$name" "$again/${name##*/}" || die "two times the same packages differ"
  done
  rm -rf "$again"
  make_images "$folder" "$folder"
  /usr/bin/python3 -m deploy.dev.release check >/dev/null || die "the tree has changed meanwhile"
  /usr/bin/python3 -m deploy.dev.release write "$folder"
  (cd "$folder" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
  [ -z "${RELEASE_KEY:-}" ] || gpg --local-user "$RELEASE_KEY" --armor --detach-sign "$folder/SHA256SUMS"
  ls -l "$folder"
  say "next: git tag ${RELEASE_KEY:+-u $RELEASE_KEY }-a -m 'hedgerow $version' v$version"
}
