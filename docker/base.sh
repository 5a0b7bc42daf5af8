#!/bin/sh
# Makes the base of the images from Debian's packages, where no image can be pulled: docker/base.sh TAG.
# Needs debootstrap and root. This machine's certificates go with it, for pip inside a build.
set -eu

tag=${1:?the name of the image, for example debian:bookworm-slim}
command -v debootstrap >/dev/null || { echo 'debootstrap is missing: apt-get install debootstrap' >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT TERM # else that would leave it
debootstrap --variant=minbase bookworm "$root" >&2
certificates=/etc/ssl/certs/ca-certificates.crt
trusted=
if [ -f "$certificates" ]; then
    mkdir -p "$root/etc/ssl"
    cp "$certificates" "$root/etc/ssl/host-ca.crt"
    trusted='ENV PIP_CERT=/etc/ssl/host-ca.crt'
fi
tar -C "$root" -c --exclude=./dev --exclude=./var/cache/apt --exclude=./var/lib/apt/lists \
    --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' . \
    | docker import --change 'CMD ["bash"]' ${trusted:+--change "$trusted"} - "$tag"
