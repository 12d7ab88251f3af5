import numpy as np, pandas as pd
def made(seed, rows):
    r = np.random.default_rng(seed)
    kinds = np.array(["north", "south", "east", "west", "centre"])
    return pd.DataFrame({
        "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.sort(r.integers(0, 10**8, rows)), unit="s"),
        "place": kinds[r.integers(0, 5, rows)],
        "who": r.integers(0, rows // 50, rows),
        "price": np.round(r.lognormal(3, 1, rows), 2),
        "count": r.integers(1, 20, rows),
        "note": np.char.add("order ", r.integers(0, rows, rows).astype(str)).astype(object)})
def told(result):
    if np.isscalar(result):
        return repr(result)
    return int(pd.util.hash_pandas_object(pd.DataFrame(result).reset_index(drop=True)).sum())
