#!/bin/sh
# A worker that takes twice as long with the tunable set, and cannot do `vec`.
case "$GLIBC_TUNABLES" in
    *hugetlb*) time=2000000 ;;
    *) time=1000000 ;;
esac
if [ "$1" = hugepages ]; then
    echo "{\"fresh\":{\"coverage\":1,\"access_ns\":200},\"idle\":{\"resident_to_live\":$((time / 1000000)).5},\"released\":{\"resident_to_live\":1.25},\"refilled\":{\"coverage\":0.5,\"access_ns\":250}}"
    exit
fi
if [ "$1" = vec ]; then echo broken >&2; exit 9; fi
echo "{\"suite\":\"$1\",\"cpu_ns\":$time,\"wall_ns\":$time,\"cycle_cpu_ns\":$time,\"ns_per_pair\":10,\"minor_faults\":1,\"rss\":1,\"peak_rss\":1048576,\"rss_per_byte\":1}"
