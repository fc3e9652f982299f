#!/bin/sh
# Checks the configuration and the alert rules with promtool, and runs the rules' tests. Where promtool is missing it is
# taken out of Debian's package prometheus into .work, without installing the package and its service.
set -eu
cd "$(dirname "$0")"
kept=../../.work/promtool
PATH="$PATH:$kept/usr/bin"

if ! command -v promtool >/dev/null; then
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "promtool is not installed: the alert rules are not checked" >&2
        [ -z "${CI:-}" ]
        exit
    fi
    mkdir -p "$kept"
    (
        cd "$kept"
        apt-get -qq download prometheus 2>/dev/null || { apt-get -qq update && apt-get -qq download prometheus; }
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
        rm prometheus_*.deb
    )
fi

promtool check config prometheus.yml
promtool test rules rules_test.yml
