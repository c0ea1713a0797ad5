# Functions, arrays, arithmetic, subshells, pipes, traps, here-documents, large strings.
set -u
declare -A words
fill() { local i; for ((i = 0; i < 5000; i++)); do words["key$((i * 7919 % 5000))"]=$((i * i)); done; }
fill
sum=0
for key in "${!words[@]}"; do sum=$((sum + words[$key])); done
echo "${#words[@]} $sum"

list=()
for i in {1..3000}; do list+=("item $i"); done
echo "${#list[@]} ${list[2999]} ${list[@]:10:3}"
unset 'list[5]'
echo "${#list[@]}"

text=
for i in {1..12}; do text="$text$text$i-"; done
echo "${#text} ${text:100:20} ${text//1/one}" | cksum
upper=${text^^}; echo "${#upper}"

fibonacci() { if (($1 < 2)); then echo "$1"; else echo $(($(fibonacci $(($1 - 1))) + $(fibonacci $(($1 - 2))))); fi; }
fibonacci 9

seq 1 20000 | while read -r n; do ((n % 3)) || echo "$n"; done | tail -3
diff <(seq 1 100) <(seq 2 101)
cat <<END | tr a-z A-Z
here is a document with $((6 * 7)) and $(echo "a command")
END
printf '%s\n' *nothing*
for i in 1 2 3 4; do (sleep 0.0$i; exit "$i") & done
for job in $(jobs -p); do wait "$job"; echo "status $?"; done
coproc tr a-z A-Z
echo "through a coprocess" >&"${COPROC[1]}"
eval "exec ${COPROC[1]}>&-"
cat <&"${COPROC[0]}"
trap 'echo "trapped"' EXIT
[[ "abc123" =~ ([a-z]+)([0-9]+) ]] && echo "${BASH_REMATCH[1]} ${BASH_REMATCH[2]}"
no_such_command_here 2>/dev/null; echo "$?"
exit 7
