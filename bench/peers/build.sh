#!/bin/sh
# Builds the peers into bench/peers/lib/. Without arguments: all but google's
# tcmalloc, which alone takes several minutes; name it to have it too:
#
#   bench/peers/build.sh                    jemalloc mimalloc2 mimalloc3 snmalloc
#   bench/peers/build.sh tcmalloc           one of them
#   bench/peers/build.sh all                every one
#
# A peer that does not build here is reported and left out of the comparison; the
# exit code is then 1.
set -u
cd "$(dirname "$0")" || exit 1

case "${1-}" in
    '') set -- jemalloc mimalloc2 mimalloc3 snmalloc ;;
    all) set -- jemalloc mimalloc2 mimalloc3 snmalloc tcmalloc ;;
esac

target=${CARGO_TARGET_DIR:-target}
mkdir -p lib
failed=
for peer; do
    echo "== $peer"
    if cargo build --release --locked -p "peer-$peer"; then
        cp "$target/release/libpeer_$peer.so" lib/
    else
        failed="$failed $peer"
    fi
done

ls -l lib
if [ -n "$failed" ]; then
    echo "not built:$failed" >&2
    exit 1
fi
