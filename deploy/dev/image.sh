# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev image`: container images (OCI archives) of the programs, made of this tree's Debian packages and the libraries that they
# depend on, from the distribution's archive, and nothing else: daemon and node have no shell and no package manager. It needs neither a container
# engine nor a registry, and runs no program of an image while it makes it. docs/kubernetes.md says how the images are used.

# Owner of the files of a node's image and of its process; fixed, because the owner of a volume is written down as a number.
readonly IMAGE_NODE_ID=10002
readonly IMAGE_MONITOR_ID=10004

cmd_image() {
  [ $# -le 1 ] || die "usage: ./dev image [FOLDER]"
  local folder stage
  is_root || die "files of an image belong to root: sudo ./dev image"
  ensure_packages build package
  build_preset release programs
  folder=${1:-build/images/$(distribution || say other)}
  stage=$(mktemp -d)
  make_packages build/release "$stage"
  make_images "$stage" "$folder"
  rm -rf "$stage"
  ls -l "$folder"/*.oci.tar
}

# make_images PACKAGES FOLDER: an archive for each image.
make_images() {
  local packages=$1 folder stage version revision created result=0
  mkdir -p "$2"
  folder=$(realpath "$2")
  packages=$(realpath "$packages")
  version=$(dpkg-deb --field "$packages"/hedgerow_*.deb Version)
  revision=$(git rev-parse HEAD 2>/dev/null || say unknown)
  # Of the commit, so that the same commit makes the same image.
  created=$(git log -1 --format=%ct 2>/dev/null || say 0)
  stage=$(mktemp -d)
  mkdir -p build/image-archives/partial "$stage/hedgerow" "$stage/hedgerow-node" "$stage/hedgerow-endpoints"
  {
    image_root "$stage/hedgerow" "$packages"/hedgerow_*.deb
    image_root "$stage/hedgerow-node" "$packages"/hedgerow-node_*.deb
    # The store's command line, whose libraries are the node's.
    image_unpack "$stage/hedgerow-node" "$packages"/hkv_*.deb
    image_trim "$stage/hedgerow-node"
    install -d -m 0700 -o "$IMAGE_NODE_ID" -g "$IMAGE_NODE_ID" "$stage/hedgerow-node/var/lib/hedgerow-node"
    install -d -m 0755 -o "$IMAGE_NODE_ID" -g "$IMAGE_NODE_ID" "$stage/hedgerow-node/run/hedgerow-node"
    # The controller asks the daemon to reload with the daemon's own command line.
    image_root "$stage/hedgerow-endpoints" "$packages"/hedgerow_*.deb python3 python3-yaml
    image_archive hedgerow "proxy that hedges UDP requests in the kernel" 0 \
      '["/usr/bin/hedgerowd"]' '["--config", "/etc/hedgerow/hedgerow.yaml"]'
    image_archive hedgerow-node "node of Hedgerow's replicated key-value store" "$IMAGE_NODE_ID:$IMAGE_NODE_ID" \
      '["/usr/bin/hedgerow-node"]' '["run", "--config", "/etc/hedgerow-node/node.yaml"]'
    image_archive hedgerow-endpoints "backends of Hedgerow's proxy from EndpointSlices and DNS" 0 '["/usr/bin/python3", "/usr/share/hedgerow/endpoints.py"]' '[]'
  } >"$stage/log" 2>&1 || result=$?
  if [ "$result" -ne 0 ]; then
    tail -n 30 "$stage/log" >&2
    rm -rf "$stage"
    die "the images cannot be made"
  fi
  rm -rf "$stage"
}

# image_root ROOT DEB [PACKAGE...]: unpacks a package of ours, what it depends on, and further packages of the distribution.
# Maintainer scripts are not run: of ours they make users and start units, and what libraries need of theirs is done here.
image_root() {
  local root=$1 deb=$2 needed
  shift 2
  # systemd makes the package's user on a host; here the image names users itself. apt finds the rest of the libraries.
  needed=$(dpkg-deb --field "$deb" Depends | sed 's/([^)]*)//g; s/ *, */\n/g' | grep -v systemd | tr -d ' ')
  image_fetch "$root" "$needed" "$@"
  image_unpack "$root" "$deb"
  image_trim "$root"
  mkdir -p "$root/etc/hedgerow" "$root/etc/hedgerow-node" "$root/run/hedgerow" "$root/tmp" "$root/sys/fs/bpf" "$root/proc" "$root/dev"
  chmod 1777 "$root/tmp"
  cat >"$root/etc/passwd" <<USERS
root:x:0:0:root:/:/usr/sbin/nologin
hedgerow-node:x:$IMAGE_NODE_ID:$IMAGE_NODE_ID:Hedgerow, a node of the replicated store:/:/usr/sbin/nologin
USERS
  cat >"$root/etc/group" <<GROUPS
root:x:0:
hedgerow-node:x:$IMAGE_NODE_ID:
hedgerow-monitor:x:$IMAGE_MONITOR_ID:hedgerow-node
GROUPS
  ldconfig -r "$root"
  rm -rf "$root/var/cache/ldconfig"
}

image_trim() {
  local root=$1 each
  # Read by people and by managers of services; conversions between character sets.
  for each in usr/share/man usr/share/locale usr/share/lintian usr/share/bash-completion usr/share/info usr/lib/systemd lib/systemd \
    usr/lib/sysusers.d usr/lib/tmpfiles.d; do
    rm -rf "${root:?}/$each"
  done
  rm -rf "$root"/usr/lib/*/gconv
  # Licences stay.
  find "$root/usr/share/doc" -type f ! -name copyright -delete
  find "$root/usr/share/doc" -type d -empty -delete
}

# image_fetch ROOT NAMES [NAME...]: packages of the distribution and all that they depend on, as apt on this machine is configured,
# whatever is installed here.
image_fetch() {
  local root=$1 archives=$PWD/build/image-archives state uris file
  shift
  state=$(mktemp -d)
  mkdir -p "$root/var/lib/dpkg/status.d" "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib" "$root/usr/lib64"
  # Programs and libraries of Debian 12 are spread over / and /usr, and later ones are not.
  ln -s usr/bin "$root/bin"
  ln -s usr/sbin "$root/sbin"
  ln -s usr/lib "$root/lib"
  ln -s usr/lib64 "$root/lib64"
  : >"$state/status"
  local apt=(apt-get -o Dir::State::status="$state/status" -o Dir::Cache::archives="$archives" -o Debug::NoLocking=1
    -o APT::Sandbox::User=root -o APT::Get::List-Cleanup=0 --yes --no-install-recommends)
  # shellcheck disable=SC2086 # NAMES are lines.
  "${apt[@]}" --download-only install $1 "${@:2}"
  # shellcheck disable=SC2086
  uris=$("${apt[@]}" --print-uris -o Dir::Cache::archives="$state/none" install $1 "${@:2}" | sed -n "s/^'[^']*' \([^ ]*\) .*/\1/p")
  [ -n "$uris" ]
  for file in $uris; do
    case "$file" in
      dpkg_* | tar_*) ;; # for maintainer scripts
      *) image_unpack "$root" "$archives/$file" ;;
    esac
  done
  rm -rf "$state"
}

# image_unpack ROOT DEB: through tar, because dpkg-deb replaces the links in ROOT by folders. Scanners read status.d.
image_unpack() {
  dpkg-deb --fsys-tarfile "$2" | tar -C "$1" --extract --keep-directory-symlink --preserve-permissions
  dpkg-deb --field "$2" >"$1/var/lib/dpkg/status.d/$(dpkg-deb --field "$2" Package)"
}

# image_archive NAME DESCRIPTION USER ENTRYPOINT CMD: of $stage/NAME.
image_archive() {
  local name=$1 container
  local buildah=(buildah --storage-driver vfs --root "$stage/storage" --runroot "$stage/run")
  container=$("${buildah[@]}" from scratch)
  "${buildah[@]}" add --quiet "$container" "$stage/$name" /

  "${buildah[@]}" config --user "$3" --entrypoint "$4" --cmd "$5" --stop-signal SIGTERM --env LC_ALL=C.UTF-8 \
    --label "org.opencontainers.image.title=$name" --label "org.opencontainers.image.description=$2" \
    --label "org.opencontainers.image.version=$version" --label "org.opencontainers.image.revision=$revision" \
    --label "org.opencontainers.image.licenses=Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)" "$container"
  rm -f "$folder/$name.oci.tar"
  # By its full name: containerd's import (`ctr images import`, k3s) takes it as it stands, and kubelet asks for that one.
  "${buildah[@]}" commit --quiet --rm --disable-compression=false --timestamp "$created" "$container" "oci-archive:$folder/$name.oci.tar:docker.io/library/$name:$version"
}
