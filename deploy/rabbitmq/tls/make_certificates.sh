#!/bin/sh
# Makes a certificate authority and certificates for tests and trials: one for the broker, one for each client named.
#
#   make_certificates.sh DIRECTORY HOST CLIENT...
#
# HOST is the name (or IP address) that clients connect to; each CLIENT becomes the certificate's common name, which
# RabbitMQ takes as the user with EXTERNAL. Do not use it for production: the authority's key lies beside the rest.
set -eu
if [ "$#" -lt 2 ]; then
    echo "usage: $0 DIRECTORY HOST CLIENT..." >&2
    exit 2
fi
directory="$1" host="$2"
shift 2
umask 077
mkdir -p "$directory"
cd "$directory"

case "$host" in
*[!0-9.]*) names="DNS:$host" ;;
*) names="IP:$host" ;;
esac

# certificate NAME COMMON_NAME EXTENSIONS: NAME.key and NAME.pem, signed by the authority
certificate() {
    openssl req -new -newkey rsa:2048 -nodes -subj "/CN=$2" -keyout "$1.key" -out "$1.csr" 2>/dev/null
    printf '%s\n' "basicConstraints=critical,CA:false" "$3" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" \
        -out "$1.pem" 2>/dev/null
    rm -f "$1.csr" "$1.ext"
}

openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=Leveret test authority" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout ca.key -out ca.pem 2>/dev/null
certificate broker "$host" "subjectAltName=$names
extendedKeyUsage=serverAuth"
for client in "$@"; do
    certificate "$client" "$client" "extendedKeyUsage=clientAuth"
done
echo "made in $directory: ca.pem, broker.pem$(printf ', %s.pem' "$@") and their keys"
