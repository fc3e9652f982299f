#!/bin/sh
# Installs what the tests need beside Python and is missing: RabbitMQ, Node.js for the clients in other languages,
# openssl for certificates. As root or through sudo, on Debian; elsewhere it says what is missing.
set -eu
cd "$(dirname "$0")/.."

missing=""
command -v npm >/dev/null || missing="$missing nodejs npm"
command -v openssl >/dev/null || missing="$missing openssl"
if [ -n "$missing" ]; then
    command -v apt-get >/dev/null || { echo "make test: install these first:$missing" >&2; exit 1; }
    as_root=""
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update
    # shellcheck disable=SC2086 # a list of packages
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $missing
fi
ls /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server >/dev/null 2>&1 || deploy/demo/install_rabbitmq.sh
