"""What belljar promises of its speed and size, and whether it keeps that."""

# Below this share of runs whose sandbox came to be as it was meant to, a row does not show what its name says.
AS_MEANT = 0.9
# How much the engine may grow while a guest prints and still be called flat.
FLAT_MIB = 4


def judge(results, tolerance):
    rows = {row["id"]: row for row in results["rows"]}
    bare = rows["bare"]["p50_ms"]
    p50 = lambda id: rows[id]["p50_ms"] if id in rows else None
    share = lambda id: p50(id) / bare if id in rows else None
    fastest = max(row["per_second"] for row in results["sustained"] if row["id"] == "warm")
    docker = p50("warm") / p50("docker") if "docker" in rows else None
    idle = results["sessions"]["idle"][-1]["each_mib"]
    grown = results["output"]["grown"]
    part = lambda value: f"1/{1 / value:.1f}"
    most = [
        ("fresh Python, warm, p50 against bare python3 -I -S", share("warm"), 1 / 5, 1 / 20, part),
        ("the same with numpy imported", share("numpy"), 1 / 5, 1 / 20, part),
        ("pool empty, p50 against bare python3 -I -S", share("empty"), 1 / 3, 1 / 6, part),
        ("fresh Python, warm, p50 against docker run", docker, 1 / 100, 1 / 500, part),
        ("call of a host tool", results["sessions"]["tool_us"], 300, 60, lambda us: f"{us:.0f} us"),
        ("memory of an idle session", idle, 6, 2, lambda mib: f"{mib:.1f} MiB"),
        ("engine's memory while a guest prints",
         None if grown is None else grown / (1 << 20), FLAT_MIB, FLAT_MIB, lambda mib: f"+{mib:.1f} MiB"),
    ]
    judged = [verdict(*bar, tolerance) for bar in most]
    # The one where more is better: judged by its reciprocal.
    each = verdict("sustained fresh sandboxes, best of all levels", 1 / fastest, 1 / 500, 1 / 1500,
                   lambda each: f"{1 / each:.0f}/s", tolerance)
    return judged[:3] + [each] + judged[3:]


def verdict(what, measured, bar, goal, show, tolerance):
    """The smaller the better."""
    if measured is None:
        word = "not measured"
    elif measured <= goal:
        word = "goal"
    elif measured <= bar:
        word = "bar"
    elif measured <= bar * (1 + tolerance / 100):
        word = "missed, within noise"
    else:
        word = f"MISSED by {measured / bar - 1:.0%}"
    return {
        "what": what, "verdict": word,
        "shown": "-" if measured is None else show(measured), "bar_shown": show(bar), "goal_shown": show(goal),
    }


def failures(results):
    for bar in results["bars"]:
        if bar["verdict"].startswith("MISSED"):
            yield f"{bar['what']}: {bar['shown']}, the bar is {bar['bar_shown']}"
    for row in results["rows"]:
        if row.get("as_meant", 1) < AS_MEANT:
            yield f"{row['name']}: only {row['as_meant']:.0%} of its sandboxes came to be as the row says: {row['origins']}"
