#!/bin/sh
# arm64-test.sh PREFIX: tries what portable.sh has built into PREFIX for aarch64 in QEMU's virtual machine, with
# Debian's arm64 kernel and C library. No GPU, two ranks, no Python. It fails when a program does; memory order does not
# show here on an x86-64 machine. The plugin of the carrier process is only loaded: its conformance suite runs no case
# here within 100 s, for a reason that was not found.
# Needs qemu-system-aarch64 and cpio. Debian's packages are kept in ARM64_CACHE. ARM64_SECONDS bounds the conformance
# suite of each carrier: so many seconds, then it reports what ran until then. It fails where no case did, as with 30 on
# a busy machine.
set -eu
cd "$(dirname "$0")/.."
prefix=${1:?usage: arm64-test.sh PREFIX}
cache=${ARM64_CACHE:-$HOME/.cache/shunt/arm64}
seconds=${ARM64_SECONDS:-90}
case $seconds in
  '' | *[!0-9]* | 0*) echo "arm64-test: ARM64_SECONDS is $seconds; want a number from 1 on" >&2 && exit 2 ;;
esac
if [ ! -x "$prefix/bin/shunt" ]; then
  echo "arm64-test: $prefix has no bin/shunt; make portable ARCH=aarch64 builds it" >&2 && exit 2
fi
for tool in qemu-system-aarch64 cpio; do
  command -v $tool >/dev/null || { echo "arm64-test: there is no $tool; see make arm64-test" >&2 && exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# apt with a state of its own: this machine's packages stay as they are.
if [ ! -e "$cache/.ready" ]; then
  rm -rf "$cache"
  mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial" "$cache/packages"
  : >"$cache/apt/status"
  cat >"$cache/apt/conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Dir::State "$cache/apt";
Dir::State::Lists "$cache/apt/lists";
Dir::State::status "$cache/apt/status";
Dir::Cache "$cache/apt";
END
  (
    export APT_CONFIG="$cache/apt/conf"
    cd "$cache/packages"
    apt-get -q update >/dev/null
    kernel=$(apt-cache depends linux-image-cloud-arm64 | sed -n 's/^ *Depends: \(linux-image-.*\)$/\1/p')
    apt-get -q download "${kernel:?apt knows no linux-image-cloud-arm64}" busybox-static libc6 >/dev/null
    for package in *.deb; do dpkg-deb -x "$package" ../root; done
  )
  rm -rf "$cache/apt" "$cache/packages"
  touch "$cache/.ready"
fi

tree=$work/tree
mkdir -p "$tree/proc" "$tree/sys" "$tree/dev" "$tree/tmp" "$tree/shunt"
cp -r "$cache/root/bin" "$cache/root/lib" "$tree/"
rm -rf "$tree/lib/modules"
cp -r "$prefix/bin" "$prefix/lib" "$tree/shunt/"

# What runs there. Its last line counts the failures: a machine that stops before has none.
cat >"$tree/init" <<END
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/shunt/bin HOME=/tmp TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs tmp /tmp
hostname arm64
ip link set lo up
failed=0
try() {
  echo "== \$*"
  "\$@" </dev/null && return
  echo "== FAILED with status \$?: \$*"
  failed=\$((failed + 1))
}
plugins=/shunt/lib/shunt/plugins/shunt-transport
suite="shunt conformance --short -n 2 --timeout 5m --stop-after ${seconds}s"
try shunt version
try shunt transports builtin:shm shared:\$plugins-shm.so process:\$plugins-shm
try shunt run -n 2 -- sh -c 'test \$SHUNT_WORLD = 2'
try shunt explain -n 2 --bytes 8,1M all_reduce
try shunt bench -n 2 --memory host --collective all_reduce --max 64K --iters 5
try \$suite --transport builtin:shm
try \$suite --transport shared:\$plugins-shm.so
echo "arm64-test: \$failed failures on \$(uname -m)"
poweroff -f
END
chmod 755 "$tree/init"
(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"
timeout $((4 * seconds + 600)) qemu-system-aarch64 -M virt -cpu neoverse-n1 -smp 2 -m 3G -nographic \
  -no-reboot -nic none -kernel "$cache"/root/boot/vmlinuz-* -initrd "$work/initrd" \
  -append "console=ttyAMA0 quiet panic=-1" </dev/null |
  tr -d '\r' | tee "$work/log"
if ! grep -q '^arm64-test: 0 failures on aarch64$' "$work/log"; then
  echo "arm64-test: a program failed, or the machine stopped; see above" >&2 && exit 1
fi
