while read -r level file out; do
    gcc "$level" -c "$file" -o "$out" && cksum <"$out" || echo failed
done
