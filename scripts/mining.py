#!/usr/bin/env python3
"""Mines transactions with a library that knows nothing of ours (efficient-apriori, another algorithm as well).

Standard input: a transaction a line, its items apart by blanks; an empty line ends a batch. Arguments: least support in
a batch and least confidence, per cent, and how many transactions at least are with both items of a pair.
Standard output: `count N ITEM...` for each item and pair, and, of one batch, `group ITEM...` for each group that greedy
choice makes of them (Archer 4.3.1). A test of crates/policy/src/reclaim/fp_tree compares.
"""

import sys
from collections import Counter

from efficient_apriori import apriori

support, confidence, together = (int(word) for word in sys.argv[1:4])
batches = [[]]
for line in sys.stdin:
    if line.strip():
        batches[-1].append({int(word) for word in line.split()})
    else:
        batches.append([])
batches = [batch for batch in batches if batch]

database = []
for batch in batches:
    times = Counter(item for transaction in batch for item in transaction)
    frequent = {item for item, count in times.items() if 100 * count >= support * len(batch)}
    database += [tuple(sorted(transaction & frequent)) for transaction in batch]
database = [transaction for transaction in database if transaction]
if not database:
    sys.exit()

# Whatever is there once.
itemsets, rules = apriori(
    database, min_support=0.5 / len(database), min_confidence=confidence / 100 - 1e-12, max_length=2
)
for of_length in itemsets.values():
    for items, count in of_length.items():
        print("count", count, *sorted(items))

if len(batches) == 1:
    single = {items[0]: count for items, count in itemsets[1].items()}
    both = itemsets.get(2, {})
    follows = {rule.lhs + rule.rhs for rule in rules}

    def pair(a, b):
        return both.get((min(a, b), max(a, b)), 0)

    def associated(a, b):
        return (a, b) in follows and (b, a) in follows and pair(a, b) >= together

    free = sorted(single, key=lambda item: (-single[item], item))
    while free:
        group = [free.pop(0)]
        first = group[0]
        for other in sorted(free, key=lambda item: (-pair(first, item), item)):
            if all(associated(member, other) for member in group):
                group.append(other)
        free = [item for item in free if item not in group]
        if len(group) > 1:
            print("group", *sorted(group))
