# Files made from a fixed sequence, so that every run has the same.
set -eu
seq 1 400000 | awk '{ print ($1 * 7919) % 1000003, "line", $1 }' > numbers
wc numbers
sort numbers | sha256sum
sort -n -k1,1 -k3,3r --parallel=2 numbers | sha256sum
sort -S 1M -T . numbers | sha256sum
sort -u -k1,1 numbers | wc -l
cut -d ' ' -f 3 numbers | tac | head -3
uniq -c < <(sort -k2,2 numbers | cut -d ' ' -f 2)
join <(sort numbers | head -1000) <(sort numbers | tail -n +500 | head -1000) | wc
split -l 50000 numbers part. && ls part.* | wc -l
cat part.* | cmp - numbers && echo same
head -c 20000000 /dev/zero | md5sum
shuf --random-source=numbers -n 5 numbers
comm -12 <(seq 1 1000 | sort) <(seq 500 1500 | sort) | wc -l
for i in $(seq 1 20); do mkdir -p "tree/$i/deep/er"; for j in $(seq 1 20); do echo "$i $j" > "tree/$i/deep/$j"; done; done
ls -R tree | sha256sum
find tree -type f -size -2 | sort | tail -2
du -a --apparent-size tree/1/deep/1 | cut -f 2
cp -r tree copy && diff -r tree copy && rm -r copy
factor 1000000007 600851475143 18446744073709551557
base64 numbers | base64 -d | cmp - numbers && echo same
od -An -tx1 numbers | head -1000 | sha256sum
fold -w 20 numbers | nl | tail -1
paste -d, <(seq 5) <(seq 6 10)
tr -d '0-4' < numbers | wc -c
sed -e 's/line/LINE/; s/\([0-9]*\)$/<\1>/' numbers | tail -1
grep -c -E '(12|34).*5$' numbers
ls /nonexistent 2>&1 | sed 's/.*: //' || true
