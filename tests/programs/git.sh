set -eu
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.invalid GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.invalid
commit() { export GIT_AUTHOR_DATE="$1 +0000" GIT_COMMITTER_DATE="$1 +0000"; git add -A; git commit -q -m "$2"; }
git init -q -b main work && cd work
for i in $(seq 1 300); do mkdir -p "d$((i % 17))"; seq "$i" $((i + 400)) > "d$((i % 17))/file$i"; done
commit 1600000000 first
for n in $(seq 1 25); do
    for i in $(seq "$n" 25 300); do echo "change $n" >> "d$((i % 17))/file$i"; done
    commit $((1600000000 + n * 1000)) "change $n"
done
git checkout -q -b side HEAD~10 && seq 1 3000 > wide && commit 1600100000 side
git checkout -q main && export GIT_AUTHOR_DATE="1600200000 +0000" GIT_COMMITTER_DATE="1600200000 +0000"
git merge -q -m merged side
git log --format='%H %s' --graph | tee /dev/stderr 2>/dev/null | sha256sum
git rev-parse HEAD HEAD^{tree}
git diff --stat HEAD~5 | tail -1
git blame -s d3/file3 | sha256sum
git grep -c 'change 7' HEAD | wc -l
git gc -q --aggressive --prune=now && git fsck --full --strict
git count-objects -v | grep -E '^(count|in-pack|packs|garbage)'
cd .. && git clone -q --no-local work copy && cd copy
git rev-parse HEAD && git log --all --oneline | wc -l && git fsck --full
git log -p --no-color | sha256sum
git archive HEAD | tar -tf - | wc -l
git rebase -q --committer-date-is-author-date HEAD~1 && git status --short | wc -l
git checkout -q no-such-branch 2>/dev/null || echo "status $?"
