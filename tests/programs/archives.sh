set -eu
export XZ_DEFAULTS= GZIP=
for i in $(seq 1 200); do seq "$i" 37 $((20000 + i)) > "file$i"; done
tar --sort=name --mtime=2020-01-01 --owner=0 --group=0 -cf plain.tar file*
sha256sum < plain.tar
gzip -9 -n -k plain.tar && sha256sum < plain.tar.gz
xz -T1 -6 -k plain.tar && sha256sum < plain.tar.xz
xz -T2 --block-size=1MiB -3 -c plain.tar | sha256sum
mkdir out && tar -C out -xzf plain.tar.gz && cat out/file* | cmp - <(cat file*) && echo same
rm -r out && mkdir out && tar -C out -xJf plain.tar.xz && cat out/file* | cmp - <(cat file*) && echo same
xz -dc plain.tar.xz | cmp - plain.tar && echo same
head -c 1000 plain.tar.gz > torn.gz; gzip -t torn.gz 2>/dev/null || echo "torn: $?"
