#!/bin/bash
# python-headers.sh DIRECTORY VERSION: the headers of a CPython such as 3.12, from the packages of the Debian or Ubuntu
# that has it, unpacked into DIRECTORY/VERSION. Prints the folder that has Python.h.
# Takes root and debootstrap, which checks the packages' signatures. Ends with 75, and the reason, without them.
# --suite VERSION: only prints the release, and the script of debootstrap that unpacks it.
set -euo pipefail
to=$1/$2 version=$2 scripts=/usr/share/debootstrap/scripts skip=75
include=$to/usr/include/python$version

# The script is named because debootstrap does not know releases that are younger than itself.
case $version in
  3.10) suite=jammy script=gutsy ;;
  3.11) suite=bookworm script=sid ;;
  3.12) suite=noble script=gutsy ;;
  3.13) suite=trixie script=sid ;;
  3.14 | 3.15) suite=forky script=sid ;;
  *) echo "python-headers: no release of Debian or Ubuntu is known for CPython $version" >&2 && exit $skip ;;
esac
if [ "$1" = --suite ]; then
  echo "$suite $script"
  exit
fi
mkdir -p "$1"
exec 9>"$to.lock"
flock 9
if [ ! -e "$include/Python.h" ]; then
  if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "python-headers: no headers of CPython $version: fetching them takes root and debootstrap" >&2
    exit $skip
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT

  # unpack SUITE PACKAGE SCRIPT DIRECTORY [OPTION...]: a package of the release, and nothing that it depends on.
  unpack() {
    debootstrap --download-only --variant=minbase --include="$2" "${@:5}" "$1" "$work/$1" '' "$scripts/$3" \
      >"$work/log" 2>&1 9>&- || { tail -5 "$work/log" >&2; exit 1; }
    dpkg-deb -x "$work/$1/var/cache/apt/archives/$2"_*.deb "$4"
  }

  case $suite in
    jammy | noble) # signed by Ubuntu, whose keys are a package of Debian
      unpack trixie ubuntu-keyring sid "$work/keys"
      unpack $suite "libpython$version-dev" $script "$work/made" --components=main,universe \
        --keyring="$work/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"
      ;;
    *) unpack $suite "libpython$version-dev" $script "$work/made" ;;
  esac
  # pyconfig.h only names the machine's own, which is in a folder that no compiler looks into here.
  cp "$work/made/usr/include/$(uname -m)-linux-gnu/python$version/pyconfig.h" "$work/made/usr/include/python$version/"
  rm -rf "$to"
  mkdir -p "$to/usr/include"
  mv "$work/made/usr/include/python$version" "$to/usr/include/"
fi
echo "$include"
