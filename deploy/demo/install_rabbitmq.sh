#!/bin/sh
# Installs Debian's rabbitmq-server as root or through sudo, and leaves no service running: neither now nor after a reboot.
set -eu
if [ "$(id -u)" != 0 ]; then
    exec sudo "$0" "$@"
fi

# Debian asks this file before a package may start its service; 101 forbids it. One that is there already comes back.
policy=/usr/sbin/policy-rc.d
kept="$policy.kept-by-leveret"
[ ! -e "$policy" ] || mv "$policy" "$kept"
restore() {
    rm -f "$policy"
    [ ! -e "$kept" ] || mv "$kept" "$policy"
}
trap restore EXIT
trap 'exit 130' INT TERM
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install --yes --no-install-recommends rabbitmq-server
if command -v systemctl >/dev/null; then
    systemctl disable rabbitmq-server || echo "rabbitmq-server stays enabled; disable it if you do not want it" >&2
fi
