# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev package`: .deb packages for the distribution that it runs on. debian/rules says what is in them; it works on a copy of
# what it reads, so that the tree stays as it is, and it needs no root.

cmd_package() {
  [ $# -le 1 ] || die "usage: ./dev package [FOLDER]"
  local folder
  ensure_packages build package
  build_preset release programs
  folder=${1:-build/packages/$(distribution || say other)}
  make_packages build/release "$folder"
  if ! lintian --fail-on error,warning --suppress-tags-from-file debian/lintian-allowed "$folder"/*.deb; then
    die "lintian has complaints that debian/lintian-allowed does not list"
  fi
  ls -l "$folder"/*.deb
}

# make_packages BUILD FOLDER: packages of a build's programs.
make_packages() {
  local build stage folder result=0
  build=$(realpath "$1")
  mkdir -p "$2"
  folder=$(realpath "$2")
  stage=$(mktemp -d)
  mkdir "$stage/deploy"
  cp -a debian CHANGELOG.md "$stage/"
  cp -a deploy/systemd "$stage/deploy/"
  (cd "$stage" && DEB_BUILD_OPTIONS="noautodbgsym ${DEB_BUILD_OPTIONS:-}" BUILD=$build PACKAGES_DIR=$folder debian/rules binary) \
    >"$stage/log" 2>&1 || result=$?
  if [ "$result" -ne 0 ]; then
    tail -n 30 "$stage/log" >&2
    rm -rf "$stage"
    die "the packages cannot be made"
  fi
  rm -rf "$stage"
}
